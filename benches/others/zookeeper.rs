//! Three servers of ZooKeeper, and the lock of its recipes: an ephemeral node with a sequence number; whose number is the
//! smallest has the lock, and each other watches the one before it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::{Dir, Process, free_ports, program, until_up};
use crate::wire::{Connection, NODE_EXISTS};

const SERVERS: usize = 3;

/// Where distributions put it.
const JAR: &str = "/usr/share/java/zookeeper.jar";

pub(crate) struct ZooKeeper {
    ports: [u16; SERVERS],
    _processes: Vec<Process>,
    _dir: Dir,
}

pub(crate) struct Session(Connection);

/// The path of the own node.
pub(crate) struct Held(String);

pub(crate) async fn start() -> Outcome<Option<ZooKeeper>> {
    let Some(java) = program("java").filter(|_| Path::new(JAR).is_file()) else { return Ok(None) };
    let dir = Dir::new("zookeeper")?;
    let (ports, peers, votes) = (free_ports::<SERVERS>()?, free_ports::<SERVERS>()?, free_ports::<SERVERS>()?);
    let servers: String =
        (0..SERVERS).map(|at| format!("server.{at}=127.0.0.1:{}:{}\n", peers[at], votes[at])).collect();
    let mut processes = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let config = config(&dir, at, *port, &servers)?;
        let command = [&java.to_string_lossy(), "-Xmx512m", "-Dzookeeper.admin.enableServer=false", "-cp", JAR];
        let main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", &config.to_string_lossy()];
        processes.push(Process::start(&[&command[..], &main].concat(), dir.path().join(format!("log{at}")), None)?);
    }
    let port = ports[0];
    until_up(&mut processes, async || Session::open(port).await?.pair().await).await?;
    Ok(Some(ZooKeeper { ports, _processes: processes, _dir: dir }))
}

fn config(dir: &Dir, at: usize, port: u16, servers: &str) -> Outcome<PathBuf> {
    let data = dir.with(&format!("data{at}"))?;
    fs::write(data.join("myid"), at.to_string())?;
    let path = dir.path().join(format!("zoo{at}.cfg"));
    let data = data.display();
    let limits = "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\n";
    fs::write(&path, format!("{limits}dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n{servers}"))?;
    Ok(path)
}

impl ZooKeeper {
    /// The users spread over the servers.
    pub(crate) async fn session(&self, user: usize) -> Outcome<Session> {
        Session::open(self.ports[user % SERVERS]).await
    }
}

impl Session {
    async fn open(port: u16) -> Outcome<Self> {
        Connection::open(port).await.map(Self)
    }

    async fn pair(mut self) -> Outcome {
        self.prepare("first").await?;
        let held = self.acquire("first").await?;
        self.release(held).await
    }

    /// Makes the directory of a lock, as is done once for each.
    pub(crate) async fn prepare(&mut self, name: &str) -> Outcome {
        match self.0.create(&format!("/{name}"), false).await? {
            Ok(_) | Err(NODE_EXISTS) => Ok(()),
            Err(code) => Err(format!("ZooKeeper said {code}").into()),
        }
    }

    pub(crate) async fn acquire(&mut self, name: &str) -> Outcome<Held> {
        let dir = format!("/{name}");
        let own =
            self.0.create(&format!("{dir}/lock-"), true).await?.map_err(|code| format!("ZooKeeper said {code}"))?;
        let own_name = own.rsplit('/').next().unwrap_or_default();
        loop {
            // All have the same name but for the number, whose digits are as many.
            let children = self.0.children(&dir).await?;
            if !children.iter().any(|child| child == own_name) {
                return Err("the own node is gone".into());
            }
            match children.iter().filter(|child| child.as_str() < own_name).max() {
                None => return Ok(Held(own)),
                Some(before) => self.0.until_gone(&format!("{dir}/{before}")).await?,
            }
        }
    }

    pub(crate) async fn release(&mut self, Held(path): Held) -> Outcome {
        self.0.delete(&path).await
    }
}
