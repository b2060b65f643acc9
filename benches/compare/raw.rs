//! The floor: what a quorum costs when nothing but the two commands is sent.
//!
//! `SET NX PX` to all instances at once, done at the third OK; a compare-and-delete script to all,
//! done at the third reply. On each instance a release is sent after its acquire, and late replies are
//! followed, so that nothing is left. No deadline, no validity, no token, no admission.
//!
//! Without that order, as it is mostly written, a `SET` that nobody waits for any more may come behind its release, and
//! its key stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt, poll_fn};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Outcome;

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone)]
pub(crate) struct Raw {
    shared: Arc<Shared>,
}

struct Shared {
    connections: Vec<MultiplexedConnection>,
    hash: String,
    ttl_ms: u64,
    drawn: AtomicU64,
}

/// A lock whose releases keep their order.
pub(crate) struct Held {
    shared: Arc<Shared>,
    /// Tells each instance's task when to release.
    releases: Vec<UnboundedSender<Report>>,
}

/// A lock whose releases keep none.
pub(crate) struct HeldUnordered {
    shared: Arc<Shared>,
    name: Arc<str>,
    value: Arc<str>,
}

type Report = UnboundedSender<bool>;

impl Raw {
    pub(crate) async fn connect(addresses: &[String], ttl: Duration) -> Outcome<Self> {
        let script = Script::new(DELETE);
        let mut connections = Vec::new();
        for address in addresses {
            let info = address.as_str().into_connection_info()?;
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let client = Client::open(info.set_tcp_settings(tcp))?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            script.prepare_invoke().load_async(&mut connection).await?;
            connections.push(connection);
        }
        let (hash, ttl_ms) = (script.get_hash().to_owned(), u64::try_from(ttl.as_millis())?);
        Ok(Self { shared: Arc::new(Shared { connections, hash, ttl_ms, drawn: AtomicU64::new(0) }) })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Outcome<Held> {
        let value: Arc<str> = self.shared.drawn.fetch_add(1, Ordering::Relaxed).to_string().into();
        let name: Arc<str> = name.into();
        let (report, reports) = unbounded_channel();
        let mut held = Held { shared: Arc::clone(&self.shared), releases: Vec::new() };
        for connection in &self.shared.connections {
            let (release, told) = unbounded_channel();
            held.releases.push(release);
            let shared = Arc::clone(&self.shared);
            let work =
                Pair { shared, connection: connection.clone(), name: Arc::clone(&name), value: Arc::clone(&value) };
            tokio::spawn(work.carry_out(report.clone(), told));
        }
        drop(report);
        quorum(reports, self.shared.quorum()).await?;
        Ok(held)
    }
}

impl Raw {
    /// As [`acquire`](Self::acquire), without any order between what is late and its release.
    pub(crate) async fn acquire_unordered(&self, name: &str) -> Outcome<HeldUnordered> {
        let value: Arc<str> = self.shared.drawn.fetch_add(1, Ordering::Relaxed).to_string().into();
        let held = HeldUnordered { shared: Arc::clone(&self.shared), name: name.into(), value };
        let set = |connection: &MultiplexedConnection| {
            let (mut connection, command) = (connection.clone(), self.shared.set(&held.name, &held.value));
            async move { matches!(command.query_async::<Option<String>>(&mut connection).await, Ok(Some(_))) }
        };
        first(self.shared.connections.iter().map(set).collect::<FuturesUnordered<_>>(), self.shared.quorum()).await?;
        Ok(held)
    }
}

impl HeldUnordered {
    pub(crate) async fn release(self) -> Outcome {
        let delete = |connection: &MultiplexedConnection| {
            let (mut connection, command) = (connection.clone(), self.shared.delete(&self.name, &self.value));
            async move { command.query_async::<i64>(&mut connection).await.is_ok() }
        };
        first(self.shared.connections.iter().map(delete).collect::<FuturesUnordered<_>>(), self.shared.quorum()).await
    }
}

/// Waits for so many that are true; the others are given up.
async fn first(mut votes: impl Stream<Item = bool> + Unpin, count: usize) -> Outcome {
    let mut given = 0;
    while let Some(vote) = votes.next().await {
        given += usize::from(vote);
        if given == count {
            return Ok(());
        }
    }
    Err("raw: no quorum".into())
}

impl Held {
    pub(crate) async fn release(self) -> Outcome {
        let (report, reports) = unbounded_channel();
        for release in &self.releases {
            let _ = release.send(report.clone()); // an instance that is gone has no task any more
        }
        drop(report);
        quorum(reports, self.shared.quorum()).await
    }
}

impl Shared {
    fn quorum(&self) -> usize {
        self.connections.len() / 2 + 1
    }

    fn set(&self, name: &str, value: &str) -> redis::Cmd {
        redis::cmd("SET").arg(name).arg(value).arg("NX").arg("PX").arg(self.ttl_ms).to_owned()
    }

    fn delete(&self, name: &str, value: &str) -> redis::Cmd {
        redis::cmd("EVALSHA").arg(&self.hash).arg(1).arg(name).arg(value).to_owned()
    }
}

/// One acquire and its release on one instance.
struct Pair {
    shared: Arc<Shared>,
    connection: MultiplexedConnection,
    name: Arc<str>,
    value: Arc<str>,
}

impl Pair {
    async fn carry_out(mut self, granted: Report, mut told: UnboundedReceiver<Report>) {
        let set = self.shared.set(&self.name, &self.value);
        let set = set.query_async::<Option<String>>(&mut self.connection).await;
        let _ = granted.send(set.is_ok_and(|reply| reply.is_some())); // nobody waits after the quorum
        drop(granted);
        let report = told.recv().await;
        let deleted = self.shared.delete(&self.name, &self.value);
        let deleted = deleted.query_async::<i64>(&mut self.connection).await;
        if let Some(report) = report {
            let _ = report.send(deleted.is_ok());
        }
    }
}

async fn quorum(mut reports: UnboundedReceiver<bool>, votes: usize) -> Outcome {
    first(poll_fn(move |cx| reports.poll_recv(cx)), votes).await
}
