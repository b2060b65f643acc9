//! `SET NX PX` on a majority, as one writes it by hand; a client that is refused tries again up to 5 ms later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};

use crate::draws::Draws;
use crate::{Outcome, TTL};

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

static DRAWN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
pub(crate) struct Plain {
    connections: Vec<MultiplexedConnection>,
    delete: Arc<Script>,
}

impl Plain {
    pub(crate) async fn connect(addresses: &[String]) -> Outcome<Self> {
        let mut connections = Vec::new();
        for address in addresses {
            connections.push(Client::open(address.as_str())?.get_multiplexed_async_connection().await?);
        }
        Ok(Self { connections, delete: Arc::new(Script::new(DELETE)) })
    }

    /// Gives the value that it has set.
    pub(crate) async fn acquire(&self, name: &str) -> Outcome<String> {
        let number = DRAWN.fetch_add(1, Ordering::Relaxed);
        let (value, mut draws) = (format!("plain:{}:{number}", std::process::id()), Draws::new(number as usize));
        loop {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(&value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
            let tries = self.connections.iter().map(async |connection| {
                matches!(set.query_async::<Option<String>>(&mut connection.clone()).await, Ok(Some(_)))
            });
            let granted = join_all(tries).await.into_iter().filter(|granted| *granted).count();
            if granted > self.connections.len() / 2 {
                return Ok(value);
            }
            self.release(name, &value).await;
            tokio::time::sleep(draws.up_to(Duration::from_millis(5))).await;
        }
    }

    pub(crate) async fn release(&self, name: &str, value: &str) {
        let deletes = self.connections.iter().map(async |connection| {
            self.delete.key(name).arg(value).invoke_async::<i64>(&mut connection.clone()).await
        });
        join_all(deletes).await;
    }
}
