//! `docs/planted.md`: for each rule its planted bugs and what catches them, and how often what the world draws comes up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;

use super::bug::{Bug, root};
use super::pinned::{Finding, Pinned};
use crate::scenario::seed_name;

const HEAD: &str = "\
# Planted bugs

Written by `make sim PAGE=yes`; do not edit. Each bug is a text in `tests/world/planted/bugs/` that breaks one rule of `docs/protocol.md` in the
code that ships, and is searched for in seeds of the simulated world, from the first on: `n` stands for the narrow mode. Where none was found, it says why, and
which test fails with the bug; `make sim` runs that test with it.
";

/// The page, without what the world draws.
pub(super) fn tables(bugs: &[Bug], pinned: &Pinned) -> String {
    let is_caught = |bug: &&&Bug| matches!(pinned.get(&bug.name), Some(Finding::Caught { .. }));
    let mut rules: BTreeMap<u32, Vec<&Bug>> = BTreeMap::new();
    for bug in bugs {
        rules.entry(bug.rule.trim_start_matches('P').parse().unwrap_or(0)).or_default().push(bug);
    }
    let caught = bugs.iter().collect::<Vec<_>>().iter().filter(is_caught).count();
    let by_tests = bugs.iter().filter(|bug| !is_caught(&bug) && !bug.tests.is_empty()).count();
    let mut page =
        format!("{HEAD}\n{caught} of {} are caught by the world, {by_tests} by a test.\n\n## Rules\n\n", bugs.len());
    page += "| rule | bugs | caught | by the invariants |\n|---|---|---|---|\n";
    for (rule, bugs) in &rules {
        let by: BTreeSet<&str> = bugs
            .iter()
            .filter_map(|bug| match pinned.get(&bug.name) {
                Some(Finding::Caught { by, .. }) => Some(by.as_str()),
                _ => None,
            })
            .collect();
        let by = by.into_iter().collect::<Vec<_>>().join("; ");
        page += &format!("| P{rule} | {} | {} | {by} |\n", bugs.len(), bugs.iter().filter(is_caught).count());
    }
    page += "\n## Bugs\n\n| rule | planted bug | seed | by | name |\n|---|---|---|---|---|\n";
    for (rule, bugs) in &rules {
        for bug in bugs {
            let tests = bug.tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ");
            let otherwise = if tests.is_empty() { bug.unseen.clone() } else { format!("{}; {tests}", bug.unseen) };
            let (seed, by) = match pinned.get(&bug.name) {
                Some(Finding::Caught { seed, by }) => (seed_name(*seed), by.clone()),
                Some(Finding::Missed { seeds }) => (format!("none in {seeds}"), otherwise),
                None => ("not searched".to_owned(), otherwise),
            };
            page += &format!("| P{rule} | {} | {seed} | {by} | `{}` |\n", bug.what, bug.name);
        }
    }
    page
}

pub(super) fn write(bugs: &[Bug], pinned: &Pinned, drawn: &str) -> io::Result<()> {
    let drawn =
        format!("\n## What the world draws\n\nIn the fixed seeds; if anything never comes up they fail.\n\n{drawn}");
    fs::write(file(), tables(bugs, pinned) + &drawn)
}

/// Whether the page tells what is pinned, and so does the table of guarantees.
pub(super) fn check(bugs: &[Bug], pinned: &Pinned) -> io::Result<()> {
    if !fs::read_to_string(file())?.starts_with(&tables(bugs, pinned)) {
        return Err(Error::other("docs/planted.md is not of today: make sim PAGE=yes"));
    }
    check_guarantees(&fs::read_to_string(root().join("docs/safety.md"))?, pinned)
}

/// Each guarantee names a bug that breaks it, and the invariant by which that bug is caught.
fn check_guarantees(page: &str, pinned: &Pinned) -> io::Result<()> {
    let table = page.split("guarantees: begin").nth(1).and_then(|rest| rest.split("guarantees: end").next());
    let rows: Vec<&str> = table.unwrap_or_default().lines().filter(|line| line.starts_with("| G")).collect();
    let is_wrong = |row: &&&str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [.., invariant, bug, _] = cells.as_slice() else { return true };
        !matches!(pinned.get(bug.trim_matches('`')), Some(Finding::Caught { by, .. }) if by == invariant)
    };
    match rows.iter().find(is_wrong) {
        _ if rows.len() < 9 => Err(Error::other("docs/safety.md has no table of guarantees")),
        Some(row) => Err(Error::other(format!("docs/safety.md: its bug is not caught by its invariant: {row}"))),
        None => Ok(()),
    }
}

fn file() -> PathBuf {
    root().join("docs/planted.md")
}
