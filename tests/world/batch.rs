//! Runs many seeds on all cores, and says how far it is.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What a run has broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// Counts of what happened in one run, or in many.
pub(crate) trait Totals: Default + Send {
    fn add(&mut self, other: &Self);
}

/// A run to its end.
pub(crate) struct Outcome<S> {
    pub(crate) stats: S,
    pub(crate) hash: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) log: Vec<String>,
}

/// The totals of many seeds, and the smallest that failed.
pub(crate) struct Batch<S> {
    pub(crate) stats: S,
    /// All hashes of runs put together, in any order.
    pub(crate) hash: u64,
    pub(crate) failed: Option<(u64, Violation)>,
}

impl<S: Totals> Batch<S> {
    fn new() -> Self {
        Self { stats: S::default(), hash: 0, failed: None }
    }

    fn add(&mut self, other: Self) {
        self.stats.add(&other.stats);
        self.hash ^= other.hash;
        let earlier = |known: &(u64, Violation)| other.failed.as_ref().is_none_or(|new| known.0 <= new.0);
        if !self.failed.as_ref().is_some_and(earlier) {
            self.failed = other.failed;
        }
    }
}

/// How many threads there are room for.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `count` seeds from `first` on `jobs` threads; stops soon after a failure.
pub(crate) fn run_batch<S: Totals>(
    (first, count): (u64, u64),
    jobs: usize,
    progress: &AtomicU64,
    run: impl Fn(u64) -> Outcome<S> + Sync,
) -> Batch<S> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let batch = Mutex::new(Batch::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                let mut mine = Batch::new();
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let seed = first.wrapping_add(at);
                    let Outcome { stats, hash, violation, .. } = run(seed);
                    progress.fetch_add(1, Ordering::Relaxed);
                    if violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let failed = violation.map(|violation| (seed, violation));
                    mine.add(Batch { stats, hash, failed });
                }
                batch.lock().unwrap_or_else(PoisonError::into_inner).add(mine);
            });
        }
    });
    batch.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// As [`run_batch`], with a progress bar; how many seconds it took too.
pub(crate) fn run_shown<S: Totals>(
    (first, count): (u64, u64),
    jobs: usize,
    run: impl Fn(u64) -> Outcome<S> + Sync,
) -> (Batch<S>, f64) {
    let progress = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    #[expect(clippy::disallowed_methods, reason = "how fast the simulator runs, in real time")]
    let began = std::time::Instant::now();
    let batch = std::thread::scope(|scope| {
        scope.spawn(|| show_progress(&progress, &done, count));
        let batch = run_batch((first, count), jobs, &progress, run);
        done.store(true, Ordering::Relaxed);
        batch
    });
    (batch, began.elapsed().as_secs_f64())
}

/// What there is to say about every batch.
pub(crate) fn print_batch<S>(batch: &Batch<S>, runs: u64, seconds: f64, jobs: usize) {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = runs as f64 / seconds;
    println!("{seconds:.1} s on {jobs} thread(s): {rate:.0} seeds a second; hash of all traces {:016x}", batch.hash);
    println!("violations: {}", u8::from(batch.failed.is_some()));
}

fn show_progress(progress: &AtomicU64, done: &AtomicBool, count: u64) {
    let shown = std::io::stderr().is_terminal();
    while !done.load(Ordering::Relaxed) {
        let now = progress.load(Ordering::Relaxed);
        if shown {
            let part = usize::try_from(now * 40 / count.max(1)).unwrap_or(0).min(40);
            eprint!("\r[{}{}] {now} of {count}", "#".repeat(part), " ".repeat(40 - part));
            let _ = std::io::stderr().flush();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if shown {
        eprintln!();
    }
}
