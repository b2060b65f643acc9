//! What can be asked of the simulated world.
//!
//! - nothing: the fixed set (what `cargo test` runs)
//! - `--seeds N [--start S] [--jobs J] [--narrow | --together]`: many seeds on all cores, with a progress bar; of the narrow mode
//!   they are called `n0`, `n1` .., of that for what several have together `t0`, `t1` .., and of that for leases that
//!   are moved (`--moved`) `m0`, `m1` ..; `--cut` are those in which links are cut, `c0`, `c1` .., and `--forgetful` those in which tokens are
//!   forgotten, `f0`, `f1` ..
//! - `--seconds N --start S`: as many seeds of each mode as run in this time
//! - `--first N [--start S] [--jobs J] [--narrow | --together]`: the first of so many seeds that breaks an invariant, and which, and nothing else
//! - `--replay SEED[/FAULTS]`: one run, told line by line
//! - `--planted [N] [--only NAME | --uncaught]`: a seed for each planted bug, of N at most; it is written down
//! - `--pinned`: the seeds that were written down, of the bugs that are easy to catch
//! - `--only NAME --replay SEED[/FAULTS]`: one run with a planted bug
//! - `--scenes`: whether each scene breaks its invariant, and no other is needed to see it
//! - `--page`: writes `docs/planted.md`
//! - `--hash N`: the hash of so many runs and nothing else

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::batch::{cores, print_batch, run_batch, run_shown};
use crate::faults::Fault;
use crate::invariants::scenes;
use crate::judged::{self, Judged};
use crate::planted::{self, Sought};
use crate::runner::run;
use crate::scenario::{CUT, FORGETFUL, MOVED, NARROW, TOGETHER, seed_name, seed_of};
use crate::shrink::{replay_name, shrink};
use crate::stats::Stats;

/// How scenarios are drawn.
struct Mode {
    option: &'static str,
    /// Where its seeds begin.
    base: u64,
    about: &'static str,
    /// How many are in the fixed set.
    fixed: u64,
}

const MODES: [Mode; 6] = [
    Mode { option: "--narrow", base: NARROW, about: "narrow", fixed: fixed(200, 10_000) },
    Mode { option: "--together", base: TOGETHER, about: "readers, permits and leaders", fixed: fixed(40, 1_000) },
    Mode { option: "--moved", base: MOVED, about: "moved leases", fixed: fixed(60, 300) },
    Mode { option: "--cut", base: CUT, about: "cut links", fixed: fixed(20, 200) },
    Mode { option: "--forgetful", base: FORGETFUL, about: "forgotten tokens", fixed: fixed(40, 2_000) },
    Mode { option: "--rich", base: 0, about: "rich", fixed: fixed(60, 1_000) },
];

const fn fixed(debug: u64, release: u64) -> u64 {
    if cfg!(debug_assertions) { debug } else { release }
}

/// So many are run between two looks at the time.
const NARROW_AT_ONCE: u64 = 4_000;
const TOGETHER_AT_ONCE: u64 = 1_000;
const MOVED_AT_ONCE: u64 = 300;
const CUT_AT_ONCE: u64 = 300;
const FORGETFUL_AT_ONCE: u64 = 1_000;
const RICH_AT_ONCE: u64 = 1_000;
/// Seeds whose runs are compared between processes.
const COMPARED: u64 = 20;

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str| value(name).and_then(|text| text.replace('_', "").parse::<u64>().ok());
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let base = MODES.iter().find(|mode| has(mode.option)).map_or(0, |mode| mode.base);
    let start = value("--start").and_then(|name| seed_of(&name.replace('_', ""))).map_or(base, |start| start | base);
    let jobs = number("--jobs").map_or_else(cores, |jobs| usize::try_from(jobs).unwrap_or(1));
    let ok = if let Some(name) = value("--replay") {
        value("--only").map_or_else(|| replay(&name), |bug| planted::replay(&bug, &name))
    } else if args.iter().any(|arg| arg == "--pinned") {
        planted::replay_pinned(jobs)
    } else if has("--scenes") {
        scenes::are_seen()
    } else if args.iter().any(|arg| arg == "--page") {
        planted::write_page() && judged::write_page().inspect_err(|error| eprintln!("docs/testing.md: {error}")).is_ok()
    } else if args.iter().any(|arg| arg == "--planted") {
        let only = value("--only");
        let all = if args.iter().any(|arg| arg == "--uncaught") { Sought::Uncaught } else { Sought::All };
        planted::search(number("--planted"), only.as_deref().map_or(all, Sought::One), jobs)
    } else if let Some(count) = number("--first") {
        print_first(start, count, jobs)
    } else if let Some(count) = number("--hash") {
        println!("{:016x}", hash(count));
        true
    } else if let Some(limit) = number("--seconds") {
        seeds_for(limit, start, jobs)
    } else if let Some(count) = number("--seeds") {
        seeds(start, count, jobs, false).1
    } else {
        let same = is_deterministic();
        println!(
            "the same seeds give the same runs in two processes, also beside others: {}",
            if same { "yes" } else { "NO" }
        );
        let seen = scenes::are_seen();
        let apply = planted::apply();
        let mut judged = Judged::default();
        same && seen
            && apply
            && MODES.iter().all(|mode| judged.note(mode.about, seeds(mode.base, mode.fixed, jobs, true)))
            && judged.report()
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn hash(count: u64) -> u64 {
    let seeds = (0..count).chain(NARROW..NARROW + count).chain(TOGETHER..TOGETHER + count);
    seeds.fold(0, |hash: u64, seed| hash.rotate_left(1) ^ run(seed, None, false).hash)
}

/// In another process addresses, and the order of what is hashed by chance, are others; in this one other seeds run beside.
fn is_deterministic() -> bool {
    let other =
        std::env::current_exe().and_then(|this| Command::new(this).args(["--hash", &COMPARED.to_string()]).output());
    let done = AtomicBool::new(false);
    let here = std::thread::scope(|scope| {
        scope.spawn(|| {
            let beside = (NARROW..NARROW + MODES[0].fixed).take_while(|_| !done.load(Ordering::Relaxed));
            beside.for_each(|seed| drop(run(seed, None, false)));
        });
        let here = hash(COMPARED);
        done.store(true, Ordering::Relaxed);
        here
    });
    other.is_ok_and(|other| other.stdout == format!("{here:016x}\n").as_bytes())
}

fn print_first(start: u64, count: u64, jobs: usize) -> bool {
    match run_batch((start, count), jobs, &AtomicU64::new(0), |seed| run(seed, None, false)).failed {
        Some((seed, violation)) => println!("{} {}", seed_name(seed), violation.invariant),
        None => println!("none {count}"),
    }
    true
}

/// Fresh seeds of these modes, one after the other, for so many seconds.
#[expect(clippy::disallowed_methods, reason = "for how long the simulator runs, in real time")]
fn seeds_for(limit: u64, start: u64, jobs: usize) -> bool {
    let (began, mut at) = (std::time::Instant::now(), 0);
    while began.elapsed().as_secs() < limit {
        let modes = [
            (NARROW, NARROW_AT_ONCE),
            (TOGETHER, TOGETHER_AT_ONCE),
            (MOVED, MOVED_AT_ONCE),
            (CUT, CUT_AT_ONCE),
            (FORGETFUL, FORGETFUL_AT_ONCE),
            (0, RICH_AT_ONCE),
        ];
        if !modes.into_iter().all(|(mode, count)| seeds(start + mode + at * count, count, jobs, false).1) {
            return false;
        }
        at += 1;
    }
    true
}

/// `is_all` if everything that can come up must.
fn seeds(start: u64, count: u64, jobs: usize, is_all: bool) -> (Stats, bool) {
    let (batch, seconds) = run_shown((start, count), jobs, |seed| run(seed, None, false));
    batch.stats.print();
    print_batch(&batch, batch.stats.runs, seconds, jobs);
    if let Some((seed, violation)) = &batch.failed {
        println!("seed {} breaks \"{}\": {}", seed_name(*seed), violation.invariant, violation.what);
        let plan = shrink(*seed);
        println!("{} fault(s) are enough; replay with\n  make sim REPLAY={}", plan.len(), replay_name(*seed, &plan));
    }
    let missing = if is_all { batch.stats.missing(start) } else { Vec::new() };
    if !missing.is_empty() {
        println!("never came up: {}", missing.join(", "));
    }
    let excused = if is_all { batch.stats.too_often_excused() } else { Vec::new() };
    if !excused.is_empty() {
        println!("too much is excused: {excused:?}");
    }
    let is_well = batch.failed.is_none() && missing.is_empty() && excused.is_empty();
    (batch.stats, is_well)
}

fn replay(name: &str) -> bool {
    let mut parts = name.split('/');
    let Some(seed) = parts.next().and_then(seed_of) else {
        println!("REPLAY is SEED or SEED/FAULTS, not {name:?}");
        return false;
    };
    let plan = parts.next().map(|plan| Fault::parse_plan(plan).expect("a plan"));
    let outcome = run(seed, plan.as_deref(), true);
    outcome.log.iter().for_each(|line| println!("{line}"));
    println!("trace hash {:016x}", outcome.hash);
    match outcome.violation {
        Some(violation) => println!("violated: {} ({})", violation.invariant, violation.what),
        None => return true,
    }
    false
}
