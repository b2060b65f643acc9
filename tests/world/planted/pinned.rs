//! Where each planted bug was caught: for the replay, and as a table for people.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;

use super::bug::{Bug, room, root};

/// The lines around the table in `docs/testing.md`.
const BEGIN: &str = "<!-- planted bugs: begin -->\n";
const END: &str = "<!-- planted bugs: end -->\n";

/// What became of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Caught { seed: u64, by: String },
    Missed { seeds: u64 },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught { seed, by } => write!(f, "{seed} {by}"),
            Self::Missed { seeds } => write!(f, "none {seeds}"),
        }
    }
}

impl Finding {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("none", seeds) => Some(Self::Missed { seeds: seeds.parse().ok()? }),
            (seed, by) => Some(Self::Caught { seed: seed.parse().ok()?, by: by.to_owned() }),
        }
    }
}

/// What was found, by the name of the bug.
#[derive(Debug, Default)]
pub(super) struct Pinned(BTreeMap<String, Finding>);

impl Pinned {
    pub(super) fn read() -> io::Result<Self> {
        let text = fs::read_to_string(file())?;
        let line = |line: &str| {
            let (name, finding) = line.split_once(' ')?;
            Some((name.to_owned(), Finding::parse(finding)?))
        };
        let findings: Option<_> = text.lines().map(line).collect();
        findings.map(Self).ok_or_else(|| Error::other("pinned.txt: a line is not \"NAME SEED INVARIANT\""))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Finding> {
        self.0.get(name)
    }

    pub(super) fn set(&mut self, name: &str, finding: Finding) {
        self.0.insert(name.to_owned(), finding);
    }

    /// Forgets the bugs that are not there any more.
    pub(super) fn keep_only(&mut self, bugs: &[Bug]) {
        self.0.retain(|name, _| bugs.iter().any(|bug| bug.name == *name));
    }

    /// Writes the file and the table.
    pub(super) fn write(&self, bugs: &[Bug]) -> io::Result<()> {
        let lines: String = self.0.iter().map(|(name, finding)| format!("{name} {finding}\n")).collect();
        fs::write(file(), lines)?;
        let docs = root().join("docs/testing.md");
        let text = fs::read_to_string(&docs)?;
        let around = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) = around.ok_or_else(|| Error::other("docs/testing.md has no place for the table"))?;
        fs::write(docs, [before, BEGIN, &self.table(bugs), END, after].concat())
    }

    fn table(&self, bugs: &[Bug]) -> String {
        let mut rows: Vec<(&str, String)> = Vec::new();
        for bug in bugs {
            let (seed, by) = match self.get(&bug.name) {
                Some(Finding::Caught { seed, by }) => (seed.to_string(), by.clone()),
                Some(Finding::Missed { seeds }) => (format!("not in {seeds}"), bug.otherwise.clone()),
                None => continue,
            };
            rows.push((&bug.rule, format!("| {} | {} | {seed} | {by} | `{}` |\n", bug.rule, bug.what, bug.name)));
        }
        rows.sort_by_key(|(rule, _)| rule.trim_start_matches('P').parse::<u32>().unwrap_or(0));
        let head = "| rule | planted bug | caught in seed | by | name |\n|---|---|---|---|---|\n";
        rows.into_iter().fold(head.to_owned(), |table, (_, row)| table + &row)
    }
}

fn file() -> PathBuf {
    room().join("pinned.txt")
}
