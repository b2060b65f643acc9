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
//! First the rule and what is wrong; then, once or more often, a file, a piece of it that is there exactly once, and
//! what takes its place. `PLANTED` is true where this bug is to be seen, in Rust and in a script.
//!
//! Where the simulated world cannot catch it, a second line says why, and which tests do; or which see it besides. `lib` are those beside the
//! code, `model` those of the model checker, any other target is a room in `tests/`:
//!
//! ```text
//! not seen: the next renewal tells the same; caught by runtime::loss::a_push_is_followed, lib::stats::it_is_counted
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The target of the model's tests, which are a package of their own.
pub(super) const MODEL: &str = "model";

/// A planted bug.
#[derive(Debug)]
pub(super) struct Bug {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) what: String,
    /// Why the world does not catch it.
    pub(super) unseen: String,
    /// The tests that do.
    pub(super) tests: Vec<Test>,
    pub(super) edits: Vec<Edit>,
}

/// A test, as `target::its::own::name`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) target: String,
    pub(super) name: String,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.target, self.name)
    }
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
        let (what, second) = told.split_once('\n').unwrap_or((told, ""));
        let (unseen, tests) = second.split_once("; caught by ").unwrap_or((second, ""));
        let tests = tests.split(", ").filter(|test| !test.is_empty()).map(Test::parse).collect::<Option<Vec<_>>>()?;
        let edits = parts.map(|part| Edit::parse(name, part)).collect::<Option<Vec<_>>>()?;
        let is_switched = edits.iter().any(|edit| edit.planted.contains("planted::is"));
        is_switched.then(|| Self {
            name: name.to_owned(),
            rule: rule.to_owned(),
            what: what.to_owned(),
            unseen: unseen.trim().to_owned(),
            tests,
            edits,
        })
    }
}

impl Test {
    fn parse(text: &str) -> Option<Self> {
        let (target, name) = text.trim().split_once("::")?;
        Some(Self { target: target.to_owned(), name: name.to_owned() })
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
