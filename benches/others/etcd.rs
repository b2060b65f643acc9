//! Three servers of etcd, asked by gRPC as etcd's own clients ask: one request to lock, one to unlock, on a connection that stays.
//!
//! As with those a session is a lease, whose end would end its locks. Each user has one, so that two never get in by the same.

use std::path::Path;

use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::process::{Dir, Process, free_ports, program, until_up};
use crate::{Outcome, TTL};

const SERVERS: usize = 3;

pub(crate) struct Etcd {
    ports: [u16; SERVERS],
    _processes: Vec<Process>,
    _dir: Dir,
}

pub(crate) struct Session {
    server: Grpc<Channel>,
    lease: i64,
}

/// What is needed to unlock.
pub(crate) struct Held(Vec<u8>);

pub(crate) async fn start() -> Outcome<Option<Etcd>> {
    let Some(program) = program("etcd") else { return Ok(None) };
    let dir = Dir::new("etcd")?;
    let (ports, peers) = (free_ports::<SERVERS>()?, free_ports::<SERVERS>()?);
    let cluster: Vec<String> =
        peers.iter().enumerate().map(|(at, port)| format!("n{at}=http://127.0.0.1:{port}")).collect();
    let cluster = cluster.join(",");
    let mut processes = Vec::new();
    for (at, (port, peer)) in ports.iter().zip(&peers).enumerate() {
        processes.push(server(&program, dir.path(), at, [*port, *peer], &cluster)?);
    }
    let port = ports[0];
    until_up(&mut processes, async || Session::open(port).await?.pair().await).await?;
    Ok(Some(Etcd { ports, _processes: processes, _dir: dir }))
}

fn server(program: &Path, dir: &Path, at: usize, [port, peer]: [u16; 2], cluster: &str) -> Outcome<Process> {
    let (name, data) = (format!("n{at}"), dir.join(format!("data{at}")));
    let (own, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let command = [
        &program.to_string_lossy(),
        "--name",
        &name,
        "--data-dir",
        &data.to_string_lossy(),
        "--listen-client-urls",
        &own,
        "--advertise-client-urls",
        &own,
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
        "--initial-cluster",
        cluster,
    ];
    Process::start(&command, dir.join(format!("log{at}")), None)
}

impl Etcd {
    /// The users spread over the servers.
    pub(crate) async fn session(&self, user: usize) -> Outcome<Session> {
        Session::open(self.ports[user % SERVERS]).await
    }
}

impl Session {
    async fn open(port: u16) -> Outcome<Self> {
        let endpoint = Endpoint::try_from(format!("http://127.0.0.1:{port}"))?.tcp_nodelay(true);
        let mut server = Grpc::new(endpoint.connect().await?);
        let wanted = Grant { seconds: i64::try_from(TTL.as_secs())? };
        let granted: Granted = ask(&mut server, "/etcdserverpb.Lease/LeaseGrant", wanted).await?;
        Ok(Self { server, lease: granted.lease })
    }

    async fn pair(mut self) -> Outcome {
        let held = self.acquire("first").await?;
        self.release(held).await
    }

    /// Waits for its turn.
    pub(crate) async fn acquire(&mut self, name: &str) -> Outcome<Held> {
        let wanted = Lock { name: name.into(), lease: self.lease };
        let locked: Locked = ask(&mut self.server, "/v3lockpb.Lock/Lock", wanted).await?;
        Ok(Held(locked.key))
    }

    pub(crate) async fn release(&mut self, Held(key): Held) -> Outcome {
        ask(&mut self.server, "/v3lockpb.Lock/Unlock", Unlock { key }).await.map(|Unlocked {}| ())
    }
}

async fn ask<Q, A>(server: &mut Grpc<Channel>, what: &'static str, question: Q) -> Outcome<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    server.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(server.unary(Request::new(question), PathAndQuery::from_static(what), codec).await?.into_inner())
}

// As much of etcd's messages as is needed here: etcd's client generates all of them with a program that not every machine has.

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unlocked {}
