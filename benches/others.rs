//! What a lock costs on other systems, beside this library: the same work on the same machine.
//!
//! `make compare-others`, or `cargo run --release --package redquorum-bench --bin others`. Each system is started on loopback
//! in a directory of its own, with its defaults, and left out with a word where it is not installed. Every user has a connection and a session of its
//! own, as processes would. Two who have one lock at once end the bench as a failure. What it measured is in
//! `target/bench/others.json`.

#[path = "others/etcd.rs"]
mod etcd;
#[path = "shared/machine.rs"]
mod machine;
#[path = "shared/median.rs"]
mod median;
#[path = "shared/opened.rs"]
mod opened;
#[path = "others/postgres.rs"]
mod postgres;
#[path = "others/process.rs"]
mod process;
#[path = "shared/results.rs"]
mod results;
#[path = "others/single.rs"]
mod single;
#[path = "others/system.rs"]
mod system;
#[path = "others/wire.rs"]
mod wire;
#[path = "others/work.rs"]
mod work;
#[path = "others/zookeeper.rs"]
mod zookeeper;

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use redquorum_testkit::Program;

use process::{Dir, now};
use results::Results;
use system::Kind;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of all locks and sessions.
const TTL: Duration = Duration::from_secs(30);

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Outcome {
    let machine = machine::described();
    eprintln!("{machine}");
    let mut systems = Vec::new();
    for kind in Kind::ALL {
        match kind.start().await.map_err(|error| format!("{}: {error}", kind.name()))? {
            Some(system) => systems.push((kind, system)),
            None => eprintln!("{} is not installed: it is left out", kind.name()),
        }
    }
    let mut results = Results::default();
    for round in 0..ROUNDS {
        let count = systems.len();
        for at in 0..count {
            let (kind, system) = &systems[(at + round) % count]; // nobody is always first
            eprintln!("round {} of {ROUNDS}: {}", round + 1, kind.name());
            let metrics = work::round(system).await.map_err(|error| format!("{}: {error}", kind.name()))?;
            eprintln!("{metrics:?}");
            results.add("others", kind.name(), &metrics);
        }
    }
    let about = format!(
        "{}; {}; medians of {ROUNDS} rounds of {} s; {machine}. An fsync of 4 KiB took {:.0} µs in the median.",
        Program::required()?,
        versions(),
        work::LENGTH.as_secs(),
        fsync()?
    );
    eprintln!("written: {}", results.write("others.json", &about)?.display());
    Ok(())
}

/// Of the other systems, as their packages say.
fn versions() -> String {
    let packages = ["etcd-server", "zookeeper", "postgresql"];
    let said = Command::new("dpkg-query").args(["-W", "-f", "${Package} ${Version}, "]).args(packages).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.trim_end_matches(", ").to_owned()
}

/// How long it takes, in microseconds, until a page is on the disk that the systems write to.
fn fsync() -> Outcome<f64> {
    let dir = Dir::new("fsync")?;
    let mut file = File::create(dir.path().join("page"))?;
    let mut times = Vec::new();
    for _ in 0..100 {
        file.write_all(&[7; 4096])?;
        let start = now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6)
}
