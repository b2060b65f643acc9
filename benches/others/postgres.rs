//! One PostgreSQL and its advisory locks. They are kept in memory, for as long as the connection lives.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use tokio_postgres::{Client, NoTls, Statement};

use crate::Outcome;
use crate::process::{Dir, Process, free_ports, program, until_up, user_of};

pub(crate) struct Postgres {
    port: u16,
    _processes: Vec<Process>,
    _dir: Dir,
}

pub(crate) struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

/// Its directory, that of the newest version.
fn programs() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut versions: Vec<PathBuf> = installed.collect();
    versions.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let on_path = program("initdb").and_then(|path| path.parent().map(PathBuf::from));
    let candidates = versions.into_iter().rev().map(|path| path.join("bin")).chain(on_path);
    candidates.into_iter().find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

pub(crate) async fn start() -> Outcome<Option<Postgres>> {
    let Some(programs) = programs() else { return Ok(None) };
    let dir = Dir::new("postgres")?;
    let mut user = None;
    if rustix::process::geteuid().is_root() {
        // PostgreSQL refuses to be root.
        let (uid, gid) = user_of("postgres").or_else(|| user_of("nobody")).ok_or("no user for PostgreSQL")?;
        chown(dir.path(), Some(uid), Some(gid))?;
        user = Some((uid, gid));
    }
    let data = dir.path().join("data");
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.args(["-U", "postgres", "--auth", "trust", "-E", "UTF8", "--locale", "C", "-D"]).arg(&data);
    initdb.current_dir(dir.path());
    if let Some((uid, gid)) = user {
        std::os::unix::process::CommandExt::uid(&mut initdb, uid);
        std::os::unix::process::CommandExt::gid(&mut initdb, gid);
    }
    let output = initdb.output()?;
    if !output.status.success() {
        return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let [port] = free_ports()?;
    let (server, data, socket) =
        (programs.join("postgres"), data.to_string_lossy().into_owned(), dir.path().to_string_lossy().into_owned());
    let port_text = port.to_string();
    let command =
        [&server.to_string_lossy(), "-D", &data, "-k", &socket, "-p", &port_text, "-c", "listen_addresses=127.0.0.1"];
    let mut processes = vec![Process::start(&command, dir.path().join("log"), user)?];
    until_up(&mut processes, async || Session::open(port).await.map(drop)).await?;
    Ok(Some(Postgres { port, _processes: processes, _dir: dir }))
}

impl Postgres {
    pub(crate) async fn session(&self) -> Outcome<Session> {
        Session::open(self.port).await
    }
}

impl Session {
    async fn open(port: u16) -> Outcome<Self> {
        let (client, connection) =
            tokio_postgres::connect(&format!("host=127.0.0.1 port={port} user=postgres"), NoTls).await?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock(hashtextextended($1, 0))").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock(hashtextextended($1, 0))").await?;
        Ok(Self { client, lock, unlock })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Outcome {
        Ok(self.client.query_one(&self.lock, &[&name]).await.map(drop)?)
    }

    pub(crate) async fn release(&self, name: &str) -> Outcome {
        let had: bool = self.client.query_one(&self.unlock, &[&name]).await?.get(0);
        if had { Ok(()) } else { Err("it was not locked".into()) }
    }
}
