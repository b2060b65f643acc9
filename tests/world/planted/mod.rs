//! Bugs planted in the library itself, each of which an invariant must catch.
//!
//! A bug is a text in `bugs/`: what it breaks, and a piece of `src/` with what takes its place. All of them
//! go into one copy of the package below `target/`, each behind a switch, so that the copy is built once and
//! what ships has no trace of a switch. The copy's own simulated world then runs with one bug after the
//! other. What no world can see is caught by a test that the text names, which is run with the bug as well.

mod bug;
mod copy;
mod page;
mod pinned;

use std::io;
use std::ops::Range;
use std::thread;

use bug::Bug;
use copy::Copy;
pub(crate) use page::SCENE;
use pinned::{Finding, Pinned};

use crate::runner::run;
use crate::scenario::{CUT, FORGETFUL, MOVED, NARROW, TOGETHER, seed_name};

/// The most seeds of the narrow mode that a bug is given to show itself, and for one of the rich mode so many of those.
const MOST_SEEDS: u64 = 20_000;
const NARROW_FOR_ONE: u64 = 10;
/// The same of the mode for what several have together.
const NARROW_FOR_ONE_TOGETHER: u64 = 4;
/// Where a search looks first, in parts of all: most bugs show themselves soon, in one mode or the other.
const STAGES: [u64; 4] = [200, 20, 4, 1];
/// Seeds of the narrow mode for a bug that does not show itself in its own any more.
const SEARCHED_AGAIN: u64 = 4_000;

/// Whether each text is about a piece of the library that is there.
pub(crate) fn apply() -> bool {
    done(bug::all().and_then(|bugs| {
        let files = copy::with_bugs(&bugs)?;
        page::check(&bugs, &Pinned::read()?)?;
        println!("planted bugs: {} texts, about {} files", bugs.len(), files.len());
        Ok(true)
    }))
}

/// Runs the seed in which each bug was caught, and asks for the invariant that caught it. Whatever changes a draw of the world makes
/// another run of a seed: then a bug is searched for again.
pub(crate) fn replay_pinned(jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        let caught = bugs.iter().filter_map(|bug| match pinned.get(&bug.name) {
            Some(Finding::Caught { seed, by }) => Some((bug, *seed, by)),
            _ => None,
        });
        let caught: Vec<_> = caught.collect();
        let found = at_once(&caught, jobs, |(bug, seed, by)| {
            Ok(copy.first(bug, *seed, 1, 1)?.is_some_and(|(_, found)| found == **by))
        })?;
        let replayed = found.iter().filter(|found| **found).count();
        let (mut elsewhere, mut missed) = (Vec::new(), Vec::new());
        for ((bug, ..), _) in caught.iter().zip(found).filter(|(_, found)| !found) {
            if let Some((seed, by)) = seek(&copy, bug, SEARCHED_AGAIN, jobs)? {
                elsewhere.push(format!("{} in {}, by \"{by}\"", bug.name, seed_name(seed)));
            } else {
                missed.push(format!("{} in none of {SEARCHED_AGAIN} narrow seeds", bug.name));
            }
        }
        let searched = elsewhere.len() + missed.len();
        println!("planted bugs: {replayed} replayed in their seeds, {searched} searched for again");
        elsewhere.iter().for_each(|bug| println!("  {bug}: pin it anew with make sim PLANTED=name"));
        missed.iter().for_each(|bug| println!("  NOT CAUGHT: {bug}"));
        for bug in bugs.iter().filter(|bug| bug.tests.is_empty()) {
            if !matches!(pinned.get(&bug.name), Some(Finding::Caught { .. })) {
                println!("  {} is caught by nothing; {}", bug.name, bug.unseen);
            }
        }
        Ok(missed.is_empty() & run_tests(&copy, &bugs.iter().collect::<Vec<_>>(), jobs)?)
    }))
}

/// Whether each test that a text names fails with the bug, and passes without.
fn run_tests(copy: &Copy, bugs: &[&Bug], jobs: usize) -> io::Result<bool> {
    let mut wrong: Vec<String> = Vec::new();
    let failing = copy.failing(bugs.iter().flat_map(|bug| &bug.tests))?;
    wrong.extend(failing.iter().map(|test| format!("{test} does not pass without a bug")));
    let named = bugs.iter().flat_map(|bug| bug.tests.iter().map(move |test| (bug, test)));
    let named: Vec<_> = named.collect();
    let failed = at_once(&named, jobs, |(bug, test)| copy.fails(test, bug))?;
    let unharmed = named.iter().zip(failed).filter(|(_, failed)| !failed);
    wrong.extend(unharmed.map(|((bug, test), _)| format!("{test} passes with {}", bug.name)));
    let count = bugs.iter().filter(|bug| !bug.tests.is_empty()).count();
    println!("planted bugs: {} are caught by tests that they name", count);
    wrong.iter().for_each(|wrong| println!("  NOT CAUGHT: {wrong}"));
    Ok(wrong.is_empty())
}

/// What comes of each, in so many threads.
fn at_once<T: Sync, R: Send>(all: &[T], jobs: usize, work: impl Fn(&T) -> io::Result<R> + Sync) -> io::Result<Vec<R>> {
    let one_after_the_other = |part: &[T]| part.iter().map(&work).collect::<io::Result<Vec<R>>>();
    let parts = thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(jobs.max(1)).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || one_after_the_other(part))).collect();
        let ended = |_| Err(io::Error::other("a thread has panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect::<io::Result<Vec<_>>>()
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// The first seed found that catches a bug, among so many of the narrow mode and some of the others.
fn seek(copy: &Copy, bug: &Bug, most: u64, jobs: usize) -> io::Result<Option<(u64, String)>> {
    let mut done = 0;
    for part in STAGES {
        let until = most / part;
        let modes = [
            (NARROW, 1),
            (TOGETHER, NARROW_FOR_ONE_TOGETHER),
            (FORGETFUL, NARROW_FOR_ONE_TOGETHER),
            (MOVED, NARROW_FOR_ONE_TOGETHER),
            (CUT, NARROW_FOR_ONE),
            (0, NARROW_FOR_ONE),
        ];
        for (base, one) in modes {
            let (from, count) = (done / one, (until - done) / one);
            if let Some(found) = first_by_it(copy, bug, base + from..base + from + count.max(1), jobs)? {
                return Ok(Some(found));
            }
        }
        done = until;
    }
    Ok(None)
}

/// The first of these seeds that breaks an invariant with a bug, and none without it: a few do (`docs/testing.md`).
fn first_by_it(copy: &Copy, bug: &Bug, mut seeds: Range<u64>, jobs: usize) -> io::Result<Option<(u64, String)>> {
    while !seeds.is_empty() {
        let Some((seed, by)) = copy.first(bug, seeds.start, seeds.end - seeds.start, jobs)? else { break };
        if run(seed, None, false).violation.is_none() {
            return Ok(Some((seed, by)));
        }
        seeds.start = seed + 1;
    }
    Ok(None)
}

/// Each invariant, with what breaks it.
pub(crate) fn by_invariant() -> io::Result<Vec<(String, String)>> {
    let (bugs, pinned) = (bug::all()?, Pinned::read()?);
    let invariants = page::by_invariant(&bugs, &pinned);
    Ok(invariants.into_iter().map(|(invariant, broken_by)| (invariant.to_owned(), broken_by.join(", "))).collect())
}

/// Writes the page for people.
pub(crate) fn write_page() -> bool {
    done(bug::all().and_then(|bugs| {
        let mut pinned = Pinned::read()?;
        pinned.keep_only(&bugs);
        pinned.write()?;
        page::write(&bugs, &pinned).map(|()| true)
    }))
}

/// Which bugs a search is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sought<'a> {
    All,
    One(&'a str),
    /// Those that no seed is known for, and that were searched for in fewer seeds.
    Uncaught,
}

/// Searches for a seed that catches each bug, and writes down what was found.
pub(crate) fn search(most: Option<u64>, sought: Sought<'_>, jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (mut pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        pinned.keep_only(&bugs);
        let mut searched = Vec::new();
        for bug in &bugs {
            let most = most.unwrap_or(MOST_SEEDS);
            let is_sought = match (sought, pinned.get(&bug.name)) {
                (Sought::All, _) | (Sought::Uncaught, None) => true,
                (Sought::One(name), _) => bug.name == name,
                (Sought::Uncaught, Some(Finding::Missed { seeds })) => *seeds < most,
                (Sought::Uncaught, Some(Finding::Caught { .. })) => false,
            };
            if !is_sought {
                continue;
            }
            searched.push(bug);
            let found = seek(&copy, bug, most, jobs)?;
            let finding = found.map_or(Finding::Missed { seeds: most }, |(seed, by)| Finding::Caught { seed, by });
            println!("{} ({}): {finding}", bug.name, bug.what);
            pinned.set(&bug.name, finding);
            pinned.write()?; // what was found stays, also if the search is stopped
        }
        // What is known not to be caught says so itself.
        let unexplained =
            |bug: &&Bug| bug.unseen.is_empty() && matches!(pinned.get(&bug.name), Some(Finding::Missed { .. }));
        let is_explained = !bugs.iter().any(|bug| unexplained(&bug));
        Ok(is_explained & run_tests(&copy, &searched, jobs)?)
    }))
}

/// One run with a bug, told line by line.
pub(crate) fn replay(name: &str, run: &str) -> bool {
    done(bug::all().and_then(|bugs| {
        let bug = bugs.iter().find(|bug| bug.name == name);
        let bug = bug.ok_or_else(|| io::Error::other(format!("there is no bug called {name}")))?;
        Copy::build(&bugs)?.replay(bug, run)
    }))
}

fn done(result: io::Result<bool>) -> bool {
    result.unwrap_or_else(|error| {
        println!("planted bugs: {error}");
        false
    })
}
