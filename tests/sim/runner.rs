//! Runs seeds: one, or many on all cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::faults::Fault;
use crate::invariants::Violation;
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::World;

/// A run to its end.
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    pub(crate) hash: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) log: Vec<String>,
}

pub(crate) fn run(seed: u64, plan: Option<&[Fault]>, mutant: Option<Mutant>, told: bool) -> Outcome {
    let mut world = World::new(Scenario::new(seed, plan, mutant), told);
    world.run();
    Outcome {
        stats: world.stats,
        hash: world.trace_hash(),
        violation: world.violation.take(),
        log: world.log.take().unwrap_or_default(),
    }
}

/// What a replay needs: the seed, the faults unless the seed planned them, the planted bug.
pub(crate) fn replay_name(seed: u64, plan: Option<&[Fault]>, mutant: Option<Mutant>) -> String {
    let plan = plan.map(|plan| plan.iter().map(Fault::to_string).collect::<Vec<_>>().join("."));
    match (plan, mutant) {
        (None, None) => seed.to_string(),
        (plan, None) => format!("{seed}/{}", plan.unwrap_or_default()),
        (None, Some(mutant)) => format!("{seed}/seed/{mutant:?}"),
        (Some(plan), Some(mutant)) => format!("{seed}/{plan}/{mutant:?}"),
    }
}

/// The totals of many seeds, and the smallest that failed.
pub(crate) struct Batch {
    pub(crate) stats: Stats,
    /// All trace hashes put together, in any order.
    pub(crate) hash: u64,
    pub(crate) failed: Option<(u64, Violation)>,
}

/// Runs `count` seeds from `first` on `jobs` threads; stops soon after a failure.
pub(crate) fn run_batch(first: u64, count: u64, jobs: usize, mutant: Option<Mutant>, progress: &AtomicU64) -> Batch {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let batch = Mutex::new(Batch { stats: Stats::default(), hash: 0, failed: None });
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                let mut mine = Batch { stats: Stats::default(), hash: 0, failed: None };
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let seed = first.wrapping_add(at);
                    let outcome = run(seed, None, mutant, false);
                    mine.stats.add(&outcome.stats);
                    mine.hash ^= outcome.hash;
                    progress.fetch_add(1, Ordering::Relaxed);
                    if let Some(violation) = outcome.violation {
                        mine.failed = Some((seed, violation));
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let mut all = batch.lock().unwrap_or_else(PoisonError::into_inner);
                all.stats.add(&mine.stats);
                all.hash ^= mine.hash;
                let earlier = |known: &(u64, Violation)| mine.failed.as_ref().is_none_or(|new| known.0 <= new.0);
                if !all.failed.as_ref().is_some_and(earlier) {
                    all.failed = mine.failed;
                }
            });
        }
    });
    batch.into_inner().unwrap_or_else(PoisonError::into_inner)
}
