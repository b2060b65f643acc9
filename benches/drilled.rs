//! Keeps what a drill has reported in the form of all that is measured, for the table of `docs/drills.md`.
//!
//! `make keep-drill`, or `cargo run --release --package redquorum-bench --bin drilled -- [drill|mixture]`, behind `make drill`. It
//! reads `target/drill/report.json`.

use std::path::PathBuf;

use serde::Deserialize;

#[path = "shared/built.rs"]
mod built;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/results.rs"]
mod results;

use results::{Metric, Results};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Deserialize)]
struct Report {
    seed: u64,
    /// Of Docker and Linux.
    versions: String,
    results: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    scenario: String,
    server: String,
    server_version: String,
    peer: String,
    violations: Vec<serde::de::IgnoredAny>,
    availability: Availability,
    grants: usize,
    losses: usize,
    refused_writes: usize,
}

#[derive(Deserialize)]
struct Availability {
    during: Phase,
    after: Phase,
    recovery_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Phase {
    share: Option<f64>,
    longest_gap_ms: f64,
}

impl Scenario {
    fn metrics(&self) -> Vec<Metric> {
        let Availability { during, after, recovery_ms } = &self.availability;
        let percent = |phase: &Phase| phase.share.map_or(f64::NAN, |share| 100.0 * share);
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        vec![
            ("violations", count(self.violations.len()), ""),
            ("grants", count(self.grants), ""),
            ("during", percent(during), "%"),
            ("after", percent(after), "%"),
            ("leases lost", count(self.losses), ""),
            ("writes refused", count(self.refused_writes), ""),
            ("longest gap", during.longest_gap_ms / 1_000.0, "s"),
            ("next grant", recovery_ms.map_or(f64::NAN, |ms| ms / 1_000.0), "s"),
        ]
    }
}

fn main() -> Outcome {
    let name = std::env::args().nth(1).unwrap_or_else(|| "drill".to_owned());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let report: Report = serde_json::from_slice(&std::fs::read(target.join("drill/report.json"))?)?;
    let mut results = Results::default();
    let mut servers: Vec<&str> = Vec::new();
    for scenario in &report.results {
        results.add(&scenario.scenario, &format!("{}, {}", scenario.server, scenario.peer), &scenario.metrics());
        servers.push(&scenario.server_version);
    }
    servers.sort_unstable();
    servers.dedup();
    let (servers, built) = (servers.join(" and "), built::built());
    let about =
        format!("{servers}, seed {}; {}; {built}; all containers on one machine.", report.seed, report.versions);
    println!("kept: {}", results.write(&format!("{name}.json"), &about)?.display());
    Ok(())
}
