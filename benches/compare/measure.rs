//! One run of a workload by one subject.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redquorum_testkit::{Server, wait_until};
use tokio::task::JoinSet;

use crate::cost::Cost;
use crate::results::Metric;
use crate::stage::Running;
use crate::subject::{Kind, Subject};
use crate::workload::{Work, Workload};
use crate::{Outcome, TTL};

/// How long late grants may take to be released before what they left is counted. Well below the
/// ttl, with which keys would go by themselves.
const LATE_GRANTS: Duration = Duration::from_millis(300);

#[derive(Default)]
pub(crate) struct Times {
    acquire: Vec<Duration>,
    release: Vec<Duration>,
    pair: Vec<Duration>,
    failed: usize,
}

/// Does a workload, so often in each task, and tells how it went.
pub(crate) fn run(running: &Running, workload: &Workload, kind: Kind, times: usize) -> Outcome<Vec<Metric>> {
    match workload.work {
        Work::Pairs { tasks } => {
            let work = async |subject: Subject| {
                let before = Cost::until_now(running.reachable())?;
                let start = now();
                let done = work(&subject, tasks, times).await?;
                let took = start.elapsed();
                Ok((done, took, Cost::until_now(running.reachable())?.since(&before, tasks * times)))
            };
            let (done, took, cost) = running.with(workload, kind, work)?;
            let mut metrics = metrics(done, took);
            metrics.extend(cost);
            metrics.push(("keys left", count(keys_left(running.reachable(), kind)?), "keys"));
            Ok(metrics)
        }
        Work::Beside { tasks, names } => {
            let work = async |subject: Subject| {
                let stop = Arc::<AtomicBool>::default();
                let big = tokio::spawn(again_and_again(subject.clone(), names, Arc::clone(&stop)));
                let start = now();
                let done = work(&subject, tasks, times).await?;
                let took = start.elapsed();
                stop.store(true, Ordering::Relaxed);
                Ok((done, took, big.await??))
            };
            let (done, took, mut big) = running.with(workload, kind, work)?;
            big.sort_unstable();
            let mut metrics = metrics(done, took);
            metrics.push(("big p50", percentile(&big, 500), "us"));
            Ok(metrics)
        }
        Work::Errors => running.with(workload, kind, async |subject| errors(&subject, times).await),
        Work::Connect => {
            let addresses = running.addresses();
            running.with(workload, kind, async |_| connect(kind, addresses, times).await)
        }
    }
}

fn metrics(mut times: Times, took: Duration) -> Vec<Metric> {
    let pairs_a_second = count(times.pair.len()) / took.as_secs_f64();
    let mut metrics: Vec<Metric> = vec![("pairs/s", pairs_a_second, "1/s"), ("failed", count(times.failed), "pairs")];
    for (names, times) in [
        (["acquire p50", "acquire p99", "acquire p99.9"], &mut times.acquire),
        (["release p50", "release p99", "release p99.9"], &mut times.release),
        (["pair p50", "pair p99", "pair p99.9"], &mut times.pair),
    ] {
        times.sort_unstable();
        metrics.extend(names.into_iter().zip([500, 990, 999]).map(|(name, of)| (name, percentile(times, of), "us")));
    }
    metrics
}

/// Has every task do so many pairs.
pub(crate) async fn work(subject: &Subject, tasks: usize, pairs: usize) -> Outcome<Times> {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        running.spawn(turns(subject.clone(), pairs));
    }
    let mut all = Times::default();
    while let Some(times) = running.join_next().await {
        let times = times?;
        all.acquire.extend(times.acquire);
        all.release.extend(times.release);
        all.pair.extend(times.pair);
        all.failed += times.failed;
    }
    Ok(all)
}

async fn turns(subject: Subject, pairs: usize) -> Times {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let mut times = Times::default();
    for _ in 0..pairs {
        // A new one each time, as those of orders or messages are.
        let name = format!("bench:{}:{}", subject.kind(), NAMES.fetch_add(1, Ordering::Relaxed));
        let start = now();
        match pair(&subject, &name).await {
            Ok([acquired, released]) => {
                times.acquire.push(acquired);
                times.release.push(released);
                times.pair.push(start.elapsed());
            }
            Err(error) => {
                if times.failed == 0 {
                    eprintln!("failed: {error}");
                }
                times.failed += 1;
            }
        }
    }
    times
}

async fn pair(subject: &Subject, name: &str) -> Outcome<[Duration; 2]> {
    let start = now();
    let held = subject.acquire(name).await?;
    let acquired = start.elapsed();
    held.release().await?;
    Ok([acquired, start.elapsed().saturating_sub(acquired)])
}

/// Locks so many names together until it is told to stop; how long each acquire took.
async fn again_and_again(subject: Subject, names: usize, stop: Arc<AtomicBool>) -> Outcome<Vec<Duration>> {
    let names: Vec<String> = (0..names).map(|name| format!("bench:big:{name}")).collect();
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = now();
        let held = subject.acquire_all(&names).await?;
        times.push(start.elapsed());
        held.release().await?;
    }
    Ok(times)
}

/// How long the first error takes, and those that follow.
async fn errors(subject: &Subject, times: usize) -> Outcome<Vec<Metric>> {
    let mut taken = Vec::new();
    for _ in 0..=times {
        let start = now();
        if subject.acquire("bench:no quorum").await.is_ok() {
            return Err("it was acquired without a quorum".into());
        }
        taken.push(start.elapsed());
    }
    let first = taken.remove(0);
    taken.sort_unstable();
    let later =
        [("later errors p50", percentile(&taken, 500), "us"), ("later errors p99", percentile(&taken, 990), "us")];
    Ok([("first error", first.as_secs_f64() * 1e6, "us")].into_iter().chain(later).collect())
}

/// How long a new client takes until it has its first lock, on instances that others use already.
async fn connect(kind: Kind, addresses: Vec<String>, times: usize) -> Outcome<Vec<Metric>> {
    let mut taken = Vec::new();
    for time in 0..times {
        let name = format!("bench:{kind}:first {time}");
        let start = now();
        let subject = Subject::connect(kind, addresses.clone(), TTL).await?;
        let held = subject.acquire(&name).await?;
        taken.push(start.elapsed());
        held.release().await?;
    }
    taken.sort_unstable();
    Ok(vec![("first lock p50", percentile(&taken, 500), "us"), ("first lock p99", percentile(&taken, 990), "us")])
}

/// The keys of a subject that are still there.
fn keys_left(reachable: &[Server], kind: Kind) -> Outcome<usize> {
    let prefix = format!("bench:{kind}:");
    let own = |keys: Vec<String>| keys.iter().filter(|key| key.starts_with(&prefix)).count();
    let mut left = Ok(0);
    wait_until(LATE_GRANTS, || {
        left = reachable.iter().map(|server| server.keys().map(own)).sum();
        !matches!(left, Ok(1..))
    });
    Ok(left?)
}

/// The time that so many of a thousand do not exceed, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "nothing here takes years")]
fn percentile(sorted: &[Duration], per_mille: usize) -> f64 {
    let at = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| time.as_nanos() as f64 / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
const fn count(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}
