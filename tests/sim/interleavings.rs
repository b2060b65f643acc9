//! Each fault between any two commands of a plain acquire, whatever the seeds plan (P28).

use crate::batch::Totals;
use crate::faults::{Fault, FaultKind, Trigger};
use crate::plain::GAPS;
use crate::runner::{replay_name, run};
use crate::scenario::{Kind, Scenario};
use crate::stats::Stats;
use crate::world::Between;

/// So many runs have the same fault in the same place.
const RUNS: usize = 8;

/// Whether nothing is violated, and whether all that can come in between has, in these runs and those that were
/// counted before.
pub(crate) fn all_occur(mut counted: Stats) -> bool {
    for (what, gap) in Between::ALL.into_iter().flat_map(|what| (0..GAPS).map(move |gap| (what, gap))) {
        let Between::Fault(what) = what else { continue };
        for seed in seeds_for(what) {
            let plan = [fault(what, gap, seed)];
            let outcome = run(seed, Some(&plan), None, false);
            if let Some(violation) = outcome.violation {
                let replay = replay_name(seed, Some(&plan), None);
                println!("{} ({}): make sim REPLAY={replay}", violation.invariant, violation.what);
                return false;
            }
            counted.add(&outcome.stats);
        }
    }
    let missing = counted.plain.missing();
    println!("all came between the commands of plain acquires: {}", if missing.is_empty() { "yes" } else { "NO" });
    missing.iter().for_each(|(what, gap)| println!("  not behind the {}th command: {what:?}", gap + 1));
    missing.is_empty()
}

/// The first seeds in which such a fault can strike.
fn seeds_for(what: FaultKind) -> impl Iterator<Item = u64> {
    let kind = if what == FaultKind::Step { Kind::Steps } else { Kind::Chaos };
    (0..).filter(move |seed| Scenario::new(*seed, Some(&[]), None).kind == kind).take(RUNS)
}

/// It strikes the instance that carries the acquire out. A step is so long that the key is over.
fn fault(what: FaultKind, gap: usize, seed: u64) -> Fault {
    let amount = u8::try_from(220 + 2 * gap).unwrap_or(u8::MAX);
    Fault { trigger: Trigger::Command, nth: u8::try_from(seed % 6).unwrap_or(0), what, target: 0, amount }
}
