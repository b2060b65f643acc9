//! The floor: a quorum lock as one writes it with the crate redis and without a library.
//!
//! `SET NX PX` to all instances at once, done at the quorum-th OK; a compare-and-delete script to all, done at the
//! quorum-th that deleted. Late replies are awaited in the background. No deadline, no validity, no token, no admission; and no order
//! between a late `SET` and its release, so that a key may stay until it expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Script, Value};

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

pub(crate) struct Held {
    shared: Arc<Shared>,
    name: String,
    value: String,
}

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
        let value = self.shared.drawn.fetch_add(1, Ordering::Relaxed).to_string();
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&value).arg("NX").arg("PX").arg(self.shared.ttl_ms);
        self.shared.quorum(set).await?;
        Ok(Held { shared: Arc::clone(&self.shared), name: name.to_owned(), value })
    }
}

impl Held {
    pub(crate) async fn release(self) -> Outcome {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.shared.hash).arg(1).arg(&self.name).arg(&self.value);
        self.shared.quorum(delete).await
    }
}

impl Shared {
    /// Returns once a quorum has said yes.
    async fn quorum(&self, command: Cmd) -> Outcome {
        let command = Arc::new(command);
        let ask = |connection: &MultiplexedConnection| {
            let (mut connection, command) = (connection.clone(), Arc::clone(&command));
            async move { matches!(connection.send_packed_command(&command).await, Ok(Value::Okay | Value::Int(1))) }
        };
        let mut votes: FuturesUnordered<_> = self.connections.iter().map(ask).collect();
        let mut wanted = self.connections.len() / 2 + 1;
        while wanted > 0 {
            wanted -= usize::from(votes.next().await.ok_or("raw: no quorum")?);
        }
        if !votes.is_empty() {
            tokio::spawn(async move { while votes.next().await.is_some() {} });
        }
        Ok(())
    }
}
