//! Servers of others as processes of this program, in a directory that is removed with them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Outcome;

/// How long servers may take to come up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs a program and ends it as soon as its own input is closed: also if this program is killed.
const WITH_PARENT: &str = r#"
"$@" &
cat >/dev/null
kill -TERM $!
wait
"#;

/// Ended when dropped.
pub(crate) struct Process {
    shell: Child,
    log: PathBuf,
}

impl Process {
    /// As the user with these numbers, if any are given.
    pub(crate) fn start(command: &[&str], log: PathBuf, user: Option<(u32, u32)>) -> Outcome<Self> {
        let output = File::create(&log)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", WITH_PARENT, "sh"]).args(command).stdin(Stdio::piped());
        shell.stdout(output.try_clone()?).stderr(output);
        shell.process_group(0); // what a terminal sends to our group must not end it before us
        if let Some((user, group)) = user {
            shell.uid(user).gid(group);
        }
        Ok(Self { shell: shell.spawn()?, log })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

/// Removed when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Outcome<Self> {
        for number in 0.. {
            let dir = std::env::temp_dir().join(format!("redquorum-bench-{}-{name}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return Ok(created.map(|()| Self(dir))?),
            }
        }
        Err("no name is left for a directory".into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A directory in it.
    pub(crate) fn with(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0)); // what is left is in the directory for such things
    }
}

/// Ports that nobody has now.
pub(crate) fn free_ports<const N: usize>() -> Outcome<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener); // kept until all are found
    }
    Ok(ports)
}

/// Tries until it works, or a process has ended, or patience has.
pub(crate) async fn until_up<T>(processes: &mut [Process], try_it: impl AsyncFn() -> Outcome<T>) -> Outcome<T> {
    let begun = now();
    loop {
        let error = match try_it().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let ended = processes.iter_mut().find_map(|one| one.shell.try_wait().ok().flatten().map(|_| one.log.clone()));
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let log = ended.or_else(|| processes.first().map(|one| one.log.clone())).unwrap_or_default();
            let log = fs::read_to_string(log).unwrap_or_default();
            let last = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
            return Err(format!("it does not come up: {error}\n{last}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Where a program is, among the usual places.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The numbers of a user and its group.
pub(crate) fn user_of(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
