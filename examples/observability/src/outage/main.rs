//! An outage, as Prometheus sees it: real servers are killed under load, while a real Prometheus scrapes the client, and
//! every query of the dashboard and of the alerts must give data.
//!
//! `make outage`; it takes a hundred seconds and writes `docs/outage.svg`. It needs the program `prometheus` (Debian's package
//! of that name will do), starts everything on free ports of 127.0.0.1 and ends it again.

mod load;
mod picture;
mod prometheus;
mod queries;

use std::path::Path;
use std::time::Duration;

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Program};
use tokio::time::sleep;

use load::Load;
use prometheus::Prometheus;
use queries::Queries;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of every lock. Small, because instances that forgot sit out this time.
const TTL: Duration = Duration::from_secs(3);

const QUIET: u64 = 12;
const TWO_DOWN: u64 = 25;
const THREE_DOWN: u64 = 25;
const ONE_BACK: u64 = 20;
const ALL_BACK: u64 = 15;

#[tokio::main]
async fn main() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let fleet = Fleet::start(&Program::required()?, 5)?;
    println!("Five servers: {}", fleet[0].program());
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
        .set_buckets(&[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])?
        .install_recorder()?;
    let redlock = Redlock::builder().instances(fleet.addresses()).ttl(TTL).max_ttl(TTL).connect().await?;
    let metrics = prometheus::serve(redlock.clone(), recorder).await?;
    let prometheus = Prometheus::start(&root, metrics).await?;
    let queries = Queries::read(&root, &prometheus).await?;
    let load = Load::start(&redlock);
    let begun = prometheus.now().await?;

    let mut steps = Vec::new();
    for (what, seconds) in [
        ("all five are up", QUIET),
        ("one is killed, one hangs", TWO_DOWN),
        ("a third is killed", THREE_DOWN),
        ("it is back, empty", ONE_BACK),
        ("all are back", ALL_BACK),
    ] {
        match what {
            "one is killed, one hangs" => {
                fleet[3].kill()?;
                fleet[4].hang()?;
            }
            "a third is killed" => fleet[2].kill()?,
            "it is back, empty" => fleet[2].restart()?,
            "all are back" => {
                fleet[3].restart()?;
                fleet[4].resume()?;
            }
            _ => {}
        }
        println!("{what}");
        steps.push((prometheus.now().await? - begun, what));
        for _ in 0..seconds {
            sleep(Duration::from_secs(1)).await;
            queries.ask(&prometheus).await?;
        }
    }

    let ended = prometheus.now().await?;
    load.end().await;
    let fired = prometheus.fired(begun, ended).await?;
    println!("alerts that fired: {}", fired.join(", "));
    for expected in ["NoQuorum", "InstanceDown", "LockLost", "RenewalsFail"] {
        let name = format!("Redquorum{expected}");
        if !fired.contains(&name) {
            return Err(format!("{name} did not fire").into());
        }
    }
    queries.check()?;
    let picture = picture::draw(&prometheus, begun, ended, &steps).await?;
    std::fs::write(root.join("docs/outage.svg"), picture)?;
    println!("docs/outage.svg is written");
    redlock.shutdown(TTL).await?;
    Ok(())
}
