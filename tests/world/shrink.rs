//! Takes faults out of a plan as long as the run still fails.

use crate::faults::Fault;
use crate::runner::run;
use crate::scenario::{Scenario, seed_name};

/// The fewest faults with which the seed still fails.
pub(crate) fn shrink(seed: u64) -> Vec<Fault> {
    let mut plan = Scenario::new(seed, None).plan;
    while let Some(fewer) = fewer(seed, &plan) {
        plan = fewer;
    }
    plan
}

/// The plan without one of its faults, if there is one that it fails without.
fn fewer(seed: u64, plan: &[Fault]) -> Option<Vec<Fault>> {
    let without = |at: usize| [&plan[..at], &plan[at + 1..]].concat();
    (0..plan.len()).map(without).find(|plan| run(seed, Some(plan), false).violation.is_some())
}

/// What a replay needs: the seed and the faults.
pub(crate) fn replay_name(seed: u64, plan: &[Fault]) -> String {
    let plan: Vec<String> = plan.iter().map(Fault::to_string).collect();
    format!("{}/{}", seed_name(seed), plan.join("."))
}
