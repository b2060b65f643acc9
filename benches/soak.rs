//! Whether memory stays flat while every lock has a new name.
//!
//! `make soak MINUTES=60`, or `cargo run --release --package redquorum-bench --bin soak -- [--minutes N] [--rate N]`. On five
//! servers of its own one client locks and releases so many new names a second, `orders:<n>`. Beside it two clients wait
//! for each other's lock, and read. Each minute it says how much memory servers and client have. In the end it
//! compares the later half of the minutes with the earlier one, without those in which the first tokens were kept.

#[path = "shared/opened.rs"]
mod opened;
#[path = "shared/resident.rs"]
mod resident;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Program};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Between two batches of new names.
const TICK: Duration = Duration::from_millis(20);
/// Until tokens are forgotten as fast as they come: they are kept for a minute and an eighth.
const FIRST_MINUTES: usize = 2;
/// By so much the least of the later half may be above that of the earlier one: nothing that stays adds up.
const NOISE: f64 = 0.03;

/// What is told of each minute, with its unit.
const TOLD: [&str; 6] =
    ["each server, MiB", "client's heap, MiB", "client, MiB", "tokens each", "keys each", "floor behind, s"];
/// So many of them, the first, must be flat. The client as a whole has what it needed when most was in flight.
const FLAT: usize = 2;

const MIB: f64 = 1024.0 * 1024.0;

/// Asked of each server.
const TOKENS: &str = "return redis.call('ZCARD', 'redquorum:fence')";
const KEYS: &str = "return redis.call('DBSIZE')";
const FLOOR_BEHIND: &str = "local now = redis.call('TIME')
return (now[1] - 1735689600) * 1000 + now[2] / 1000 - redis.call('GET', 'redquorum:floor') / 1000";

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let (mut minutes, mut rate) = (60, 1000);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match (option.as_str(), args.next()) {
            ("--minutes", Some(number)) => minutes = number.parse()?,
            ("--rate", Some(number)) => rate = number.parse()?,
            _ => return Err("known are --minutes N and --rate N".into()),
        }
    }
    let program = Program::required()?;
    let fleet = Fleet::start(&program, 5)?;
    opened::open(&fleet.addresses(), Duration::from_secs(10)).await;
    let redlock = Redlock::builder().instances(fleet.addresses()).connect().await?;
    let other = Redlock::builder().instances(fleet.addresses()).connect().await?;
    let counts = Arc::new(Counts::default());
    println!("five {program}; {rate} new names a second for {minutes} minutes");
    println!("| minute | {} | pairs | failed |", TOLD.join(" | "));
    println!("|{}", "---|".repeat(TOLD.len() + 3));
    tokio::spawn(new_names(redlock.clone(), rate, Arc::clone(&counts)));
    for redlock in [&redlock, &other, &other] {
        tokio::spawn(beside(redlock.clone(), Arc::clone(&counts)));
    }
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    let begun = Instant::now();
    let mut kept = Vec::new();
    for minute in 1..=minutes {
        sleep_until(begun + Duration::from_secs(60) * u32::try_from(minute)?).await;
        let told = look(&fleet)?;
        let cells = told.map(|value| format!("{value:.2}")).join(" | ");
        println!("| {minute} | {cells} | {} | {} |", counts.done.load(Relaxed), counts.failed.load(Relaxed));
        kept.push(told);
    }
    let later = kept.get(FIRST_MINUTES..).unwrap_or_default();
    let (early, late) = later.split_at(later.len() / 2);
    if early.is_empty() {
        return Ok(());
    }
    for (at, what) in TOLD.iter().enumerate().take(FLAT) {
        let (early, late) = (least(early, at), least(late, at));
        let told = if late / early > 1.0 + NOISE { "it GREW" } else { "it is flat" };
        println!("{what}: at least {early:.2} in the earlier half, {late:.2} in the later: {told}");
    }
    Ok(())
}

fn least(minutes: &[[f64; TOLD.len()]], at: usize) -> f64 {
    minutes.iter().map(|minute| minute[at]).fold(f64::INFINITY, f64::min)
}

/// In the order of what is told: the mean of the servers, and the client.
fn look(fleet: &Fleet) -> Outcome<[f64; TOLD.len()]> {
    let mut sum = [0.0; 4];
    for server in fleet.iter() {
        let used = server.info("memory", "used_memory")?.ok_or("no memory")?.parse::<f64>()? / MIB;
        let ask = |script: &str| server.command(&["EVAL", script, "0"]);
        let told = [TOKENS, KEYS, FLOOR_BEHIND].map(|script| ask(script).map(|reply| reply.int()));
        sum[0] += used;
        for (sum, told) in sum[1..].iter_mut().zip(told) {
            *sum += f64::from(i32::try_from(told?.ok_or("no number")?)?);
        }
    }
    let [memory, tokens, keys, behind_ms] = sum.map(|sum| sum / 5.0);
    let resident = resident::resident_kib().ok_or("the system does not tell what memory is used")?;
    let heap = ALLOCATOR.stats();
    let heap = u32::try_from(heap.bytes_allocated.saturating_sub(heap.bytes_deallocated))?;
    let client = f64::from(u32::try_from(resident)?) * 1024.0 / MIB;
    Ok([memory, f64::from(heap) / MIB, client, tokens, keys, behind_ms / 1e3])
}

/// So many in each tick, together, so that they share writes.
async fn new_names(redlock: Redlock, rate: u64, counts: Arc<Counts>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut tick, mut name) = (0, 0);
    loop {
        ticks.tick().await;
        tick += 1;
        while name < rate * tick / 50 {
            name += 1;
            let (lock, counts) = (redlock.lock(format!("orders:{name}")), Arc::clone(&counts));
            tokio::spawn(async move {
                let done =
                    async { Ok::<_, Box<dyn std::error::Error + Send + Sync>>(lock.acquire().await?.release().await?) };
                if done.await.is_ok() { &counts.done } else { &counts.failed }.fetch_add(1, Relaxed);
            });
        }
    }
}

/// Waits for one lock that the others want as well, and reads what none writes.
async fn beside(redlock: Redlock, counts: Arc<Counts>) {
    loop {
        let waited = redlock.lock("queue").acquire().await;
        let read = redlock.rw_lock("page").read().await;
        sleep(Duration::from_millis(50)).await;
        if waited.is_err() || read.is_err() {
            counts.failed.fetch_add(1, Relaxed);
        }
    }
}
