//! What it costs to keep many leases alive.
//!
//! `make bench-leases`, or `cargo run --release --package redquorum-bench --bin leases -- [count]`
//! (default 100 000). One process takes the locks on five servers of its own and holds them for three
//! ttls of ten seconds. Printed are the leases lost, the processor time of client and servers, the
//! memory of the client for each lease, and the commands for each renewed lease.

#[path = "shared/resident.rs"]
mod resident;

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use redquorum::{Admission, Guard, Redlock};
use redquorum_testkit::{Fleet, Program};
use tokio::time::sleep;

use resident::resident_kib;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const INSTANCES: usize = 5;
const TTL: Duration = Duration::from_secs(10);
const TTLS: u32 = 3;

/// How many acquires are under way at once.
const AT_ONCE: usize = 256;

#[tokio::main]
async fn main() -> Outcome {
    let count: usize = std::env::args().nth(1).map_or(Ok(100_000), |count| count.replace('_', "").parse())?;
    let program = Program::required()?;
    let fleet = Fleet::start(&program, INSTANCES)?;
    let redlock = Redlock::builder()
        .instances(fleet.addresses())
        .ttl(TTL)
        .admission(Admission::Off) // so that new servers vote at once; a renewal costs the same
        .connect()
        .await?;
    drop(redlock.lock("warm up").acquire().await?);
    sleep(Duration::from_millis(200)).await;
    eprintln!("{INSTANCES} x {program}: taking {count} locks");

    let at_first = resident()?;
    let taken: Vec<_> = stream::iter(0..count)
        .map(|index| redlock.lock(format!("lease:{index}")).acquire())
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let guards: Vec<Guard> = taken.into_iter().collect::<Result<_, _>>()?;

    let taken = resident()?.saturating_sub(at_first);

    // The first renewals do more than the later ones: they are left out.
    sleep(TTL / 2).await;
    for server in fleet.iter() {
        server.reset_stats()?;
    }
    let before = Used::by(&fleet)?;
    for round in 1..=TTLS {
        sleep(TTL).await;
        eprintln!("held for {round} ttl: {} lost, {} KiB", lost(&guards), resident()? - at_first);
    }
    let after = Used::by(&fleet)?;
    let grown = resident()?.saturating_sub(at_first);

    let seconds = (TTL * TTLS).as_secs_f64();
    let (client, servers) = ((after.client - before.client) / seconds, (after.servers - before.servers) / seconds);
    let mut commands = 0;
    for server in fleet.iter() {
        commands += server.calls("evalsha")?;
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (leases, taken, grown, commands) = (count as f64, taken as f64, grown as f64, commands as f64);
    let renewals = leases * seconds / (TTL.as_secs_f64() / 3.0);
    println!("lost: {} of {count}", lost(&guards));
    println!("cores: {:.2} (client {client:.2}, servers {servers:.2})", client + servers);
    println!("client memory: {:.2} KiB for each lease, {:.2} when they were taken", grown / leases, taken / leases);
    println!("commands: {:.3} for each renewed lease, on all {INSTANCES} instances together", commands / renewals);
    drop(guards);
    redlock.shutdown(Duration::from_secs(30)).await?;
    let mut left = 0;
    for server in fleet.iter() {
        left += server.keys()?.len();
    }
    println!("keys left behind: {left}");
    Ok(())
}

fn lost(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| !guard.is_valid()).count()
}

fn resident() -> Outcome<u64> {
    Ok(resident_kib().ok_or("the system does not tell what memory is used")?)
}

/// Processor time in seconds.
struct Used {
    client: f64,
    servers: f64,
}

impl Used {
    fn by(fleet: &Fleet) -> Outcome<Self> {
        let mut servers = 0.0;
        for pid in fleet.iter().filter_map(redquorum_testkit::Server::pid) {
            servers += processor_seconds(&pid.to_string())?;
        }
        Ok(Self { client: processor_seconds("self")?, servers })
    }
}

/// User and system time of a process; the kernel counts in hundredths of a second.
fn processor_seconds(process: &str) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("an odd /proc/../stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / 100.0)
}
