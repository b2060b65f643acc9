//! proptest makes fault schedules and shrinks those that break an invariant.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::faults::{Fault, MOST_FAULTS};
use crate::mutants::Mutant;
use crate::runner::{replay_name, run};
use crate::scenario::Scenario;

/// A failure and the shortest schedule that still shows it.
pub(crate) struct Shrunk {
    pub(crate) seed: u64,
    pub(crate) plan: Vec<Fault>,
    pub(crate) replay: String,
}

/// Looks for a failing schedule among `cases`, always the same ones for the same `start`.
pub(crate) fn search(cases: u32, start: u64, mutant: Option<Mutant>) -> Option<Shrunk> {
    let plan = vec(any::<[u8; 5]>().prop_map(Fault::from_bytes), 0..=usize::try_from(MOST_FAULTS).unwrap_or(1));
    minimize(cases, start, mutant, (any::<u32>().prop_map(u64::from), plan))
}

/// Takes faults out of the schedule that a failing seed has planned, as long as it still fails.
pub(crate) fn shrink_seed(seed: u64, mutant: Option<Mutant>) -> Shrunk {
    shrunk(seed, Scenario::new(seed, None, mutant).plan, mutant)
}

fn shrunk(seed: u64, mut plan: Vec<Fault>, mutant: Option<Mutant>) -> Shrunk {
    while let Some(fewer) = fewer(seed, &plan, mutant) {
        plan = fewer;
    }
    let replay = replay_name(seed, Some(&plan), mutant);
    Shrunk { seed, plan, replay }
}

/// The schedule without one of its faults, if there is one that it fails without.
pub(crate) fn fewer(seed: u64, plan: &[Fault], mutant: Option<Mutant>) -> Option<Vec<Fault>> {
    let without = |at: usize| [&plan[..at], &plan[at + 1..]].concat();
    (0..plan.len()).map(without).find(|plan| run(seed, Some(plan), mutant, false).violation.is_some())
}

fn minimize(
    cases: u32,
    start: u64,
    mutant: Option<Mutant>,
    strategy: impl Strategy<Value = (u64, Vec<Fault>)>,
) -> Option<Shrunk> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 5_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&start.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&strategy, |(seed, plan)| match run(seed, Some(&plan), mutant, false).violation {
        Some(violation) => Err(TestCaseError::fail(violation.invariant)),
        None => Ok(()),
    });
    match result {
        Err(TestError::Fail(_, (seed, plan))) => Some(shrunk(seed, plan, mutant)),
        _ => None,
    }
}
