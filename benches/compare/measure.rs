//! One run of a workload by one subject.

use std::time::{Duration, Instant};

use redquorum_testkit::{Fleet, Server, wait_until};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::results::Metric;
use crate::subject::Subject;
use crate::workload::Workload;

/// Names that a task uses in turn.
const NAMES: usize = 64;

/// How long late grants may take to be released before what they left is counted. Well below the
/// ttl, with which keys would go by themselves.
const LATE_GRANTS: Duration = Duration::from_millis(300);

#[derive(Default)]
struct Times {
    acquire: Vec<Duration>,
    release: Vec<Duration>,
    pair: Vec<Duration>,
    failed: usize,
}

/// Has every task do `pairs` and tells how it went.
pub(crate) async fn run(subject: &Subject, workload: Workload, pairs: usize, fleet: &Fleet) -> Outcome<Vec<Metric>> {
    let start = now();
    let mut times = work(subject, workload, pairs).await?;
    let took = start.elapsed();
    let left = keys_left(&fleet[..workload.fault.reachable()])?;
    let done = times.pair.len();
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let mut metrics: Vec<Metric> = vec![
        ("pairs/s", done as f64 / took.as_secs_f64(), "1/s"),
        ("failed", times.failed as f64, "pairs"),
        ("keys left", left as f64, "keys"),
    ];
    for (names, times) in [
        (["acquire p50", "acquire p99"], &mut times.acquire),
        (["release p50", "release p99"], &mut times.release),
        (["pair p50", "pair p99"], &mut times.pair),
    ] {
        times.sort_unstable();
        metrics.extend([(names[0], percentile(times, 50), "us"), (names[1], percentile(times, 99), "us")]);
    }
    Ok(metrics)
}

/// As [`run`], for what only the work itself does.
pub(crate) async fn only_work(subject: &Subject, workload: Workload, pairs: usize) -> Outcome {
    work(subject, workload, pairs).await.map(drop)
}

async fn work(subject: &Subject, workload: Workload, pairs: usize) -> Outcome<Times> {
    let mut tasks = JoinSet::new();
    for task in 0..workload.tasks {
        tasks.spawn(turns(subject.clone(), task, pairs));
    }
    let mut all = Times::default();
    while let Some(times) = tasks.join_next().await {
        let times = times?;
        all.acquire.extend(times.acquire);
        all.release.extend(times.release);
        all.pair.extend(times.pair);
        all.failed += times.failed;
    }
    Ok(all)
}

async fn turns(subject: Subject, task: usize, pairs: usize) -> Times {
    let names: Vec<String> = (0..NAMES).map(|name| format!("bench:{}:{task}:{name}", subject.kind())).collect();
    let mut times = Times::default();
    for name in names.iter().cycle().take(pairs) {
        let start = now();
        match pair(&subject, name).await {
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

fn keys_left(reachable: &[Server]) -> Outcome<usize> {
    let mut left = Ok(0);
    wait_until(LATE_GRANTS, || {
        left = reachable.iter().map(|server| server.keys().map(|keys| keys.len())).sum();
        !matches!(left, Ok(1..))
    });
    Ok(left?)
}

#[expect(clippy::cast_precision_loss, reason = "nothing here takes years")]
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| time.as_nanos() as f64 / 1e3)
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}
