//! `docs/planted.md`: the planted bugs of each rule, with what catches them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;

use super::bug::{Bug, MODEL, root};
use super::pinned::{Finding, Pinned};
use crate::invariants::scenes;
use crate::scenario::seed_name;

/// What breaks an invariant beside bugs.
pub(crate) const SCENE: &str = "a scene";

const HEAD: &str = "\
# Planted bugs

Written by `make sim PAGE=yes`; do not edit. Each file in `tests/world/planted/bugs/` breaks one rule of [protocol.md] in the code that ships, and says how. A seed (`n`: of the narrow mode) shows the
bug in the simulation, by the invariant behind it. Where none of the seeds that were searched does, a test catches it, and the file says why; `make sim` runs both.
";

fn page(bugs: &[Bug], pinned: &Pinned) -> String {
    let mut rules: BTreeMap<u32, Vec<&Bug>> = BTreeMap::new();
    for bug in bugs {
        rules.entry(number(&bug.rule)).or_default().push(bug);
    }
    let is_caught = |bug: &&Bug| matches!(pinned.get(&bug.name), Some(Finding::Caught { .. }));
    let caught = bugs.iter().filter(is_caught).count();
    let is_in_model = |bug: &&Bug| bug.tests.iter().any(|test| test.target == MODEL);
    let by_model = bugs.iter().filter(is_in_model).count();
    let by_tests = bugs.iter().filter(|bug| !is_caught(bug) && !is_in_model(bug) && !bug.tests.is_empty()).count();
    let all = bugs.len();
    let mut page = format!(
        "{HEAD}\nOf {all}, the simulation catches {caught}, the [model](testing.md#model-checking-testsmodel) {by_model}, and other tests {by_tests} besides.\n"
    );
    for (rule, bugs) in rules {
        page += &format!("\n## P{rule}\n\n");
        for bug in bugs {
            page += &format!("- `{}`: {}\n", bug.name, caught_by(bug, pinned));
        }
    }
    page += "\n## By invariant\n\nThe bugs that each sees first, or a [scene](testing.md#invariants).\n\n";
    for (invariant, broken_by) in by_invariant(bugs, pinned) {
        page += &format!("- {invariant}: {}\n", broken_by.join(", "));
    }
    page + "\n[protocol.md]: protocol.md\n"
}

/// What breaks each invariant: the bugs that it has caught first, and a scene.
pub(super) fn by_invariant<'a>(bugs: &'a [Bug], pinned: &'a Pinned) -> BTreeMap<&'a str, Vec<String>> {
    let mut invariants: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for bug in bugs {
        if let Some(Finding::Caught { by, .. }) = pinned.get(&bug.name) {
            invariants.entry(by).or_default().push(format!("`{}`", bug.name));
        }
    }
    for invariant in scenes::broken() {
        invariants.entry(invariant).or_default().push(SCENE.to_owned());
    }
    invariants
}

/// The first of its rules.
fn number(rule: &str) -> u32 {
    let digits: String = rule.chars().skip(1).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn caught_by(bug: &Bug, pinned: &Pinned) -> String {
    match pinned.get(&bug.name) {
        Some(Finding::Caught { seed, by }) => format!("{}, {by}", seed_name(*seed)),
        _ if bug.tests.is_empty() => bug.unseen.clone(),
        _ => bug.tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn write(bugs: &[Bug], pinned: &Pinned) -> io::Result<()> {
    fs::write(file(), page(bugs, pinned))
}

/// Whether the page tells what is pinned, and so does the table of guarantees.
pub(super) fn check(bugs: &[Bug], pinned: &Pinned) -> io::Result<()> {
    if fs::read_to_string(file())? != page(bugs, pinned) {
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
