//! The directory of this process's servers, and the shell that clears up should the process be killed.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// Keeps the list of living servers; the end of its input is the end of this process.
const REAPER: &str = r#"
trap '' HUP INT TERM
live=' '
while read -r change pid; do
  case $change in
    +) live="$live$pid " ;;
    -) case $live in *" $pid "*) live="${live%% $pid *} ${live#* $pid }" ;; esac ;;
  esac
done
[ "$live" = ' ' ] || kill -KILL $live
rm -rf "$1"
"#;

/// Never dropped: the system closes the pipe when the process ends, in whatever way.
static HOME: Mutex<Option<Home>> = Mutex::new(None);

struct Home {
    root: PathBuf,
    reaper: Child,
    made: u32,
}

/// A new empty directory; the caller removes it, or the end of the process does.
pub(crate) fn new_dir() -> Result<PathBuf, Error> {
    with(|home| {
        home.made += 1;
        let dir = home.root.join(format!("server-{}", home.made));
        fs::create_dir(&dir).map_err(Error::io(format!("create {}", dir.display())))?;
        Ok(dir)
    })
}

/// Has `pid` killed should this process end first.
pub(crate) fn watch(pid: u32) -> Result<(), Error> {
    with(|home| home.tell('+', pid))
}

/// No longer. To be called before the process is waited for, while its id cannot be another's.
pub(crate) fn unwatch(pid: u32) -> Result<(), Error> {
    with(|home| home.tell('-', pid))
}

fn with<T>(act: impl FnOnce(&mut Home) -> Result<T, Error>) -> Result<T, Error> {
    let mut slot = HOME.lock().unwrap_or_else(PoisonError::into_inner);
    let home = match slot.take() {
        Some(home) => home,
        None => Home::new()?,
    };
    act(slot.insert(home))
}

impl Home {
    fn new() -> Result<Self, Error> {
        let root = unique_dir(&std::env::temp_dir())?;
        let reaper = Command::new("sh")
            .args(["-c", REAPER, "redquorum-testkit"])
            .arg(&root)
            .process_group(0) // what a terminal sends to our group must not end it before us
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("start `sh`, which clears up after this process"))?;
        Ok(Self { root, reaper, made: 0 })
    }

    fn tell(&mut self, change: char, pid: u32) -> Result<(), Error> {
        let doing = "tell the clearing shell about a server";
        let Some(pipe) = self.reaper.stdin.as_mut() else {
            return Err(Error::io(doing)(std::io::ErrorKind::BrokenPipe.into()));
        };
        pipe.write_all(format!("{change} {pid}\n").as_bytes()).map_err(Error::io(doing))
    }
}

fn unique_dir(parent: &Path) -> Result<PathBuf, Error> {
    let mut number = 0;
    loop {
        let dir = parent.join(format!("redquorum-testkit-{}-{number}", process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            // A process of the same id left it, in a way that even its shell did not survive.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(Error::io(format!("create {}", dir.display()))(error)),
        }
    }
}
