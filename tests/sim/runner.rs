//! Runs seeds: one, or many on all cores.

use std::sync::atomic::AtomicU64;

use crate::batch::{self, Batch, Outcome};
use crate::faults::Fault;
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::World;

/// A run to its end.
pub(crate) fn run(seed: u64, plan: Option<&[Fault]>, mutant: Option<Mutant>, told: bool) -> Outcome<Stats> {
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

/// Runs `count` seeds from `first` on `jobs` threads; stops soon after a failure.
pub(crate) fn run_batch(first: u64, count: u64, jobs: usize, mutant: Option<Mutant>) -> Batch<Stats> {
    batch::run_batch((first, count), jobs, &AtomicU64::new(0), |seed| run(seed, None, mutant, false))
}
