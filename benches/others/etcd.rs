//! Three servers of etcd, reached by its JSON gateway: one request to lock, one to unlock, on a connection that stays.
//!
//! As with etcd's own clients a session is a lease, whose end would end its locks. Each user has one, so that two never
//! get in by the same.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Outcome;
use crate::process::{Dir, Process, free_ports, program, until_up};

const SERVERS: usize = 3;

/// Of a session, in seconds: longer than any run.
const TTL: u32 = 300;

pub(crate) struct Etcd {
    ports: [u16; SERVERS],
    _processes: Vec<Process>,
    _dir: Dir,
}

pub(crate) struct Session {
    gateway: Gateway,
    lease: String,
}

/// What is needed to unlock.
pub(crate) struct Held(String);

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
        let mut gateway = Gateway { stream: BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?) };
        gateway.stream.get_ref().set_nodelay(true)?;
        let granted = gateway.ask("/v3/lease/grant", &json!({ "TTL": TTL })).await?;
        Ok(Self { gateway, lease: text(&granted, "ID")? })
    }

    async fn pair(mut self) -> Outcome {
        let held = self.acquire("first").await?;
        self.release(held).await
    }

    /// Waits for its turn.
    pub(crate) async fn acquire(&mut self, name: &str) -> Outcome<Held> {
        let request = json!({ "name": encoded(name), "lease": self.lease });
        Ok(Held(text(&self.gateway.ask("/v3/lock/lock", &request).await?, "key")?))
    }

    pub(crate) async fn release(&mut self, Held(key): Held) -> Outcome {
        self.gateway.ask("/v3/lock/unlock", &json!({ "key": key })).await.map(drop)
    }
}

fn text(answer: &Value, field: &str) -> Outcome<String> {
    Ok(answer[field].as_str().ok_or_else(|| format!("etcd said {answer}"))?.to_owned())
}

/// As much of HTTP as the gateway needs.
struct Gateway {
    stream: BufReader<TcpStream>,
}

impl Gateway {
    async fn ask(&mut self, path: &str, request: &Value) -> Outcome<Value> {
        let body = request.to_string();
        let request = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.line().await?;
        let mut length = None;
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            length = line.strip_prefix("content-length:").map(str::trim).map(str::to_owned).or(length);
        }
        let mut body = vec![0; length.ok_or("an answer without a length")?.parse()?];
        self.stream.read_exact(&mut body).await?;
        if !status.contains(" 200 ") {
            return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }

    async fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// In Base64, as the gateway wants bytes.
fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits =
            three.iter().enumerate().fold(0_usize, |bits, (at, byte)| bits | usize::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * at) & 63];
            encoded.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    encoded
}

#[test]
fn bytes_are_encoded_as_others_do() {
    assert_eq!(["", "f", "fo", "foo", "foobar?~"].map(encoded), ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYmFyP34="]);
}
