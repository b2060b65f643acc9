//! Bugs planted in the library itself, each of which an invariant must catch.
//!
//! A bug is a text in `bugs/`: what it breaks, and a piece of `src/` with what takes its place. All of them
//! go into one copy of the package below `target/`, each behind a switch, so that the copy is built once and
//! what ships has no trace of a switch. The copy's own simulated world then runs with one bug after the
//! other.

mod bug;
mod copy;
mod pinned;

use std::io;

use bug::Bug;
use copy::Copy;
use pinned::{Finding, Pinned};

/// The most seeds that a bug is given to show itself.
const MOST_SEEDS: u64 = 20_000;
/// A bug that shows itself in one of so many seeds does so whatever the world draws: it must on every change.
const ROBUST: u64 = 20;
/// Its seeds from 0, if it does not show itself in its own any more: so many at least, and so many times its own.
const SEARCHED_AGAIN: u64 = 200;
const SEARCHED_TIMES: u64 = 3;

/// Whether each text is about a piece of the library that is there.
pub(crate) fn apply() -> bool {
    done(bug::all().and_then(|bugs| {
        let files = copy::with_bugs(&bugs)?;
        println!("planted bugs: {} texts, about {} files", bugs.len(), files.len());
        Ok(true)
    }))
}

/// Runs the seeds in which the bugs were caught that are easy to catch. Whatever changes a draw of the world makes
/// another run of a seed: a bug that is not caught there must be in one of the first seeds.
pub(crate) fn replay_pinned(jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        let (mut caught, mut elsewhere, mut missed) = (0, Vec::new(), Vec::new());
        for bug in &bugs {
            let Some(Finding::Caught { seed, .. }) = pinned.get(&bug.name) else { continue };
            if *seed >= ROBUST {
                continue; // `make sim PLANTED=all`
            }
            let again = (seed * SEARCHED_TIMES).max(SEARCHED_AGAIN);
            if copy.first(bug, *seed, 1, 1)?.is_some() {
                caught += 1;
            } else if let Some((seed, _)) = copy.first(bug, 0, again, jobs)? {
                elsewhere.push(format!("{} in {seed}", bug.name));
            } else {
                missed.push(format!("{} in none of {again}", bug.name));
            }
        }
        println!("planted bugs: {caught} caught in their seeds, {} in others", elsewhere.len());
        elsewhere.iter().for_each(|bug| println!("  {bug}: pin it anew with make sim PLANTED=all"));
        missed.iter().for_each(|bug| println!("  NOT CAUGHT: {bug}"));
        Ok(missed.is_empty())
    }))
}

/// Which bugs a search is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sought<'a> {
    All,
    One(&'a str),
    /// Those that no seed is known for.
    Uncaught,
}

/// Searches for a seed that catches each bug, and writes down what was found.
pub(crate) fn search(most: Option<u64>, sought: Sought<'_>, jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (mut pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        pinned.keep_only(&bugs);
        for bug in &bugs {
            let is_caught = matches!(pinned.get(&bug.name), Some(Finding::Caught { .. }));
            let is_sought = match sought {
                Sought::All => true,
                Sought::One(name) => bug.name == name,
                Sought::Uncaught => !is_caught,
            };
            if !is_sought {
                continue;
            }
            let most = most.unwrap_or(MOST_SEEDS);
            let found = copy.first(bug, 0, most, jobs)?;
            let finding = found.map_or(Finding::Missed { seeds: most }, |(seed, by)| Finding::Caught { seed, by });
            println!("{}: {finding}", bug.name);
            pinned.set(&bug.name, finding);
            pinned.write(&bugs)?; // what was found stays, also if the search is stopped
        }
        // What is known not to be caught says so itself.
        let unexplained =
            |bug: &&Bug| bug.otherwise.is_empty() && matches!(pinned.get(&bug.name), Some(Finding::Missed { .. }));
        Ok(!bugs.iter().any(|bug| unexplained(&bug)))
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
