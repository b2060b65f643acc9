//! Where each planted bug was caught, for the replay.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;

use super::bug::{Bug, room};
use crate::scenario::{seed_name, seed_of};

/// What became of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Caught { seed: u64, by: String },
    Missed { seeds: u64 },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught { seed, by } => write!(f, "{} {by}", seed_name(*seed)),
            Self::Missed { seeds } => write!(f, "none {seeds}"),
        }
    }
}

impl Finding {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("none", seeds) => Some(Self::Missed { seeds: seeds.parse().ok()? }),
            (seed, by) => Some(Self::Caught { seed: seed_of(seed)?, by: by.to_owned() }),
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

    /// Writes the file.
    pub(super) fn write(&self) -> io::Result<()> {
        fs::write(file(), self.0.iter().map(|(name, finding)| format!("{name} {finding}\n")).collect::<String>())
    }
}

fn file() -> PathBuf {
    room().join("pinned.txt")
}
