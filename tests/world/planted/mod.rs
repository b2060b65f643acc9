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

use copy::Copy;
use pinned::{Finding, Pinned};

/// The most seeds that a bug is given to show itself.
const MOST_SEEDS: u64 = 20_000;
/// The same, if the seed is not the one any more in which it was caught.
const SEARCHED_AGAIN: u64 = 2_000;

/// Runs the seeds in which the bugs were caught. Whatever changes a draw of the world makes another run of a
/// seed: a bug that is not caught there must be in one of the first seeds.
pub(crate) fn replay_pinned(jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        let (mut caught, mut elsewhere, mut missed) = (0, Vec::new(), Vec::new());
        for bug in &bugs {
            match pinned.get(&bug.name) {
                Some(Finding::Missed { .. }) => {}
                Some(Finding::Caught { seed, .. }) if copy.first(bug, *seed, 1, 1)?.is_some() => caught += 1,
                _ if copy.first(bug, 0, SEARCHED_AGAIN, jobs)?.is_some() => elsewhere.push(bug.name.as_str()),
                _ => missed.push(bug.name.as_str()),
            }
        }
        println!("planted bugs: {caught} caught in their seeds, {} in others", elsewhere.len());
        if !(elsewhere.is_empty() && missed.is_empty()) {
            println!(
                "  in others: {elsewhere:?}, NOT CAUGHT: {missed:?}; find seeds anew with\n  make sim PLANTED=all"
            );
        }
        Ok(missed.is_empty())
    }))
}

/// Searches for a seed that catches each bug, or the one that is named, and writes down what was found.
pub(crate) fn search(most: Option<u64>, only: Option<&str>, jobs: usize) -> bool {
    done(bug::all().and_then(|bugs| {
        let (mut pinned, copy) = (Pinned::read()?, Copy::build(&bugs)?);
        pinned.keep_only(&bugs);
        let mut all_caught = true;
        for bug in bugs.iter().filter(|bug| only.is_none_or(|name| bug.name == name)) {
            let most = most.unwrap_or(MOST_SEEDS);
            let found = copy.first(bug, 0, most, jobs)?;
            let finding = found.map_or(Finding::Missed { seeds: most }, |(seed, by)| Finding::Caught { seed, by });
            println!("{}: {finding}", bug.name);
            all_caught &= matches!(finding, Finding::Caught { .. });
            pinned.set(&bug.name, finding);
            pinned.write(&bugs)?; // what was found stays, also if the search is stopped
        }
        Ok(all_caught)
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
