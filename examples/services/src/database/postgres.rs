//! PostgreSQL as a process of the example's own, reached over a socket in its directory: no port, no other user's data.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::time::sleep;

use super::{Address, Connection};
use crate::{Outcome, ms, now};

/// Ends the server when the example ends, in any way: that closes the input of `cat`.
const SERVE: &str = r#"
"$1"/initdb -D "$2"/data -U postgres --auth trust --no-sync -E UTF8 --locale C >"$2"/initdb.log 2>&1 || exit 1
"$1"/postgres -D "$2"/data -k "$2" -c listen_addresses= -c fsync=off -c max_connections=60 >"$2"/log 2>&1 &
cat >/dev/null
kill -INT $!
wait
rm -rf "$2"
"#;

/// How long it may take to come up on a busy machine.
const PATIENCE: std::time::Duration = ms(60_000);

#[derive(Debug)]
pub(super) struct Postgres {
    shell: Child,
}

/// The directory with PostgreSQL's programs: that of the newest version, or one on `PATH`.
pub(super) fn programs() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut versions: Vec<PathBuf> = installed.collect();
    versions.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = versions.into_iter().rev().map(|path| path.join("bin")).chain(std::env::split_paths(&path));
    candidates.into_iter().find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

/// A new directory that no other user reads.
pub(crate) fn new_dir() -> io::Result<PathBuf> {
    for number in 0.. {
        let dir = std::env::temp_dir().join(format!("redquorum-example-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| dir),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Postgres {
    pub(super) async fn start(programs: &Path, dir: &Path) -> Outcome<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SERVE, "postgres"]).arg(programs).arg(dir).current_dir(dir).stdin(Stdio::piped());
        command.process_group(0); // what a terminal sends to our group must not end it before us
        if rustix::process::geteuid().is_root() {
            // PostgreSQL refuses to be root.
            let (user, group) = user_of("postgres").or_else(|| user_of("nobody")).ok_or("no user for PostgreSQL")?;
            std::os::unix::fs::chown(dir, Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        let mut server = Self { shell: command.spawn()? };
        let begun = now();
        while let Err(error) = Connection::open(&Address::Postgres(dir.to_owned())).await {
            if begun.elapsed() > PATIENCE || server.shell.try_wait()?.is_some() {
                let log = ["initdb.log", "log"].map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
                return Err(format!("PostgreSQL does not come up: {error}\n{}", log.concat()).into());
            }
            sleep(ms(20)).await;
        }
        Ok(server)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

/// The numbers of a user and its group.
pub(crate) fn user_of(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
