//! What can be asked of the simulator.
//!
//! - nothing: the fixed set, the planted bugs, shrinking (what `cargo test` runs)
//! - `--seeds N [--start S] [--jobs J]`: many seeds on all cores, with a progress bar
//! - `--replay SEED[/FAULTS[/MUTANT]]`: one run, told line by line
//! - `--mutants [N] [--only NAME]`: the table of planted bugs, with at most N seeds for each

use std::process::ExitCode;

use crate::batch::{Violation, cores, print_batch, run_shown};
use crate::faults::Fault;
use crate::interleavings;
use crate::mirror;
use crate::mutants::Mutant;
use crate::runner::{replay_name, run, run_batch};
use crate::shrink;
use crate::stats::Stats;

/// Seeds of the fixed set.
const FIXED: u64 = if cfg!(debug_assertions) { 300 } else { 2_000 };
/// Seeds that a planted bug is given to show itself, in the fixed set.
const MUTANT_SEEDS: u64 = 300_000;

/// A planted bug that takes more seeds than are searched, and the seed that showed it.
const RARE: (Mutant, u64) = (Mutant::OpenBySetBack, 651_276_895_184);

/// What the scripts can answer.
const KINDS_OF_ANSWERS: usize = 14;

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str| value(name).and_then(|text| text.replace('_', "").parse::<u64>().ok());
    let jobs = number("--jobs").map_or_else(cores, |jobs| usize::try_from(jobs).unwrap_or(1));
    let ok = if let Some(name) = value("--replay") {
        replay(&name)
    } else if args.iter().any(|arg| arg == "--mutants") {
        mutant_table(number("--mutants").unwrap_or(MUTANT_SEEDS), jobs, value("--only").as_deref())
    } else if let Some(count) = number("--seeds") {
        seeds(number("--start").unwrap_or(0), count, jobs).is_some()
    } else {
        fixed_set(jobs)
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fixed_set(jobs: usize) -> bool {
    println!("the same seed gives the same trace: {}", if is_deterministic() { "yes" } else { "NO" });
    let shrinks = shrinking_works();
    println!("a failing schedule is shrunk: {}", if shrinks { "yes" } else { "NO" });
    is_deterministic()
        && shrinks
        && is_faithful()
        && seeds(0, FIXED, jobs).is_some_and(interleavings::all_occur)
        && proptest_schedules()
        // Some take so many seeds that they are left to the optimized build.
        && (cfg!(debug_assertions) || mutant_table(MUTANT_SEEDS, jobs, None))
}

fn is_deterministic() -> bool {
    (0..20).all(|seed| run(seed, None, None, false).hash == run(seed, None, None, true).hash)
}

/// The fake instance does what the in-process one does.
fn is_faithful() -> bool {
    match mirror::compare(if cfg!(debug_assertions) { 2_000 } else { 20_000 }) {
        Ok(answers) => {
            println!("the fake instance answers as the in-process one does: yes ({})", answers.join(", "));
            answers.len() == KINDS_OF_ANSWERS
        }
        Err(difference) => {
            println!("the fake instance answers as the in-process one does: NO\n  {difference}");
            false
        }
    }
}

fn shrinking_works() -> bool {
    let mutant = Some(Mutant::ClockStopsInPause);
    let found = shrink::search(2_000, 1, mutant);
    found.is_some_and(|shrunk| {
        let fails = run(shrunk.seed, Some(&shrunk.plan), mutant, false).violation.is_some();
        println!("  to {} fault(s): make sim REPLAY={}", shrunk.plan.len(), shrunk.replay);
        fails && shrink::fewer(shrunk.seed, &shrunk.plan, mutant).is_none()
    })
}

fn proptest_schedules() -> bool {
    match shrink::search(if cfg!(debug_assertions) { 100 } else { 1_000 }, 2, None) {
        None => true,
        Some(shrunk) => {
            println!("a schedule breaks an invariant; replay with\n  make sim REPLAY={}", shrunk.replay);
            false
        }
    }
}

/// Runs seeds with a progress bar and says what happened; nothing if an invariant was broken.
fn seeds(start: u64, count: u64, jobs: usize) -> Option<Stats> {
    let (batch, seconds) = run_shown((start, count), jobs, |seed| run(seed, None, None, false));
    batch.stats.print();
    print_batch(&batch, batch.stats.runs, seconds, jobs);
    if let Some((seed, violation)) = &batch.failed {
        report(*seed, violation);
    }
    batch.failed.is_none().then_some(batch.stats)
}

fn report(seed: u64, violation: &Violation) {
    println!("seed {seed} breaks \"{}\": {}", violation.invariant, violation.what);
    let shrunk = shrink::shrink_seed(seed, None);
    println!("{} fault(s) are enough; replay with\n  make sim REPLAY={}", shrunk.plan.len(), shrunk.replay);
}

fn replay(name: &str) -> bool {
    let mut parts = name.split('/');
    let Some(seed) = parts.next().and_then(|seed| seed.parse().ok()) else {
        println!("REPLAY is SEED, SEED/FAULTS or SEED/FAULTS/MUTANT, not {name:?}");
        return false;
    };
    let plan = parts.next().filter(|plan| *plan != "seed").map(|plan| Fault::parse_plan(plan).expect("a plan"));
    let mutant = parts.next().map(|name| Mutant::parse(name).expect("a mutant"));
    let outcome = run(seed, plan.as_deref(), mutant, true);
    outcome.log.iter().for_each(|line| println!("{line}"));
    println!("trace hash {:016x}", outcome.hash);
    match outcome.violation {
        Some(violation) => println!("violated: {} ({})", violation.invariant, violation.what),
        None => return true,
    }
    false
}

/// Each planted bug with the number of seeds until an invariant caught it.
fn mutant_table(most: u64, jobs: usize, only: Option<&str>) -> bool {
    println!("| rule | planted bug | seeds until caught | by | replay |");
    println!("|---|---|---|---|---|");
    let mut all_caught = true;
    let named = |mutant: &Mutant| only.is_none_or(|name| format!("{mutant:?}") == name);
    for mutant in Mutant::ALL.iter().copied().filter(named) {
        let start = if mutant == RARE.0 { RARE.1 } else { 0 };
        let batch = run_batch(start, most, jobs, Some(mutant));
        let (count, by, replay) = match &batch.failed {
            Some((seed, violation)) => {
                let replay = replay_name(*seed, None, Some(mutant));
                let count = if start == 0 { (seed + 1).to_string() } else { format!("more than {most}") };
                (count, violation.invariant, replay)
            }
            None => (format!("survived {most}"), "-", String::new()),
        };
        println!("| {} | {} | {count} | {by} | `{replay}` |", mutant.rule(), mutant.what());
        all_caught &= batch.failed.is_some();
    }
    all_caught
}
