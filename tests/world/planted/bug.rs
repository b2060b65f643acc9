//! The text of a planted bug.
//!
//! ```text
//! P7: a release does not end the lease
//! -- src/runtime/held_lease/mod.rs
//! self.end(state, end);
//! ++
//! if !PLANTED { self.end(state, end) }
//! ```
//!
//! First the rule and what is wrong, and in a second line, where no simulated world can catch it, what does;
//! then, once or more often, a file, a piece of it that is there exactly once, and what takes its place. `PLANTED`
//! is true where this bug is to be seen.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A planted bug.
#[derive(Debug)]
pub(super) struct Bug {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) what: String,
    /// What catches it if the world does not.
    pub(super) otherwise: String,
    pub(super) edits: Vec<Edit>,
}

/// One piece of a file, and what takes its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) file: String,
    pub(super) found: String,
    pub(super) planted: String,
}

/// The root of the package.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The room of the planted bugs.
pub(super) fn room() -> PathBuf {
    root().join("tests/world/planted")
}

/// All of them, by name.
pub(super) fn all() -> io::Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(room().join("bugs"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bug = Bug::parse(&name, &fs::read_to_string(&path)?);
        bugs.push(bug.ok_or_else(|| io::Error::other(format!("{} is no planted bug", path.display())))?);
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

impl Bug {
    fn parse(name: &str, text: &str) -> Option<Self> {
        let mut parts = text.split("\n-- ");
        let (rule, told) = parts.next()?.split_once(": ")?;
        let (what, otherwise) = told.split_once('\n').unwrap_or((told, ""));
        let edits = parts.map(|part| Edit::parse(name, part)).collect::<Option<Vec<_>>>()?;
        let is_switched = edits.iter().any(|edit| edit.planted.contains("planted::is"));
        is_switched.then(|| Self {
            name: name.to_owned(),
            rule: rule.to_owned(),
            what: what.to_owned(),
            otherwise: otherwise.trim().to_owned(),
            edits,
        })
    }
}

impl Edit {
    fn parse(name: &str, text: &str) -> Option<Self> {
        let (file, pieces) = text.split_once('\n')?;
        let (found, planted) = pieces.split_once("\n++\n")?;
        let planted = planted.trim().replace("PLANTED", &format!("crate::planted::is(\"{name}\")"));
        Some(Self { file: file.to_owned(), found: found.trim().to_owned(), planted })
    }
}
