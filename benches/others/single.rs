//! One Redis: `SET NX PX`, a delete that compares, and a pause of up to 5 ms where it is taken.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo, Script};

use crate::{Outcome, TTL};

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const LONGEST_PAUSE_US: u64 = 5_000;

pub(crate) struct Session {
    connection: MultiplexedConnection,
    delete: Script,
    user: usize,
    drawn: u64,
    chance: u64,
}

/// The value.
pub(crate) struct Held(String);

impl Session {
    pub(crate) async fn open(address: &str, user: usize) -> Outcome<Self> {
        let info = address.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, delete: Script::new(DELETE), user, drawn: 0, chance: user as u64 })
    }

    /// A little of chance is enough here.
    const fn pause(&mut self) -> Duration {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((self.chance >> 33) % LONGEST_PAUSE_US)
    }

    pub(crate) async fn acquire(&mut self, name: &str) -> Outcome<Held> {
        self.drawn += 1;
        let value = format!("{}-{}", self.user, self.drawn);
        let mut command = redis::cmd("SET");
        command.arg(name).arg(&value).arg("NX").arg("PX").arg(TTL.as_secs() * 1_000);
        loop {
            let set: Option<String> = command.query_async(&mut self.connection).await?;
            if set.is_some() {
                return Ok(Held(value));
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    pub(crate) async fn release(&mut self, name: &str, Held(value): Held) -> Outcome {
        let deleted: u64 = self.delete.key(name).arg(value).invoke_async(&mut self.connection).await?;
        if deleted == 1 { Ok(()) } else { Err("it was not locked".into()) }
    }
}
