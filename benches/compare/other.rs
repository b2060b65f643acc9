//! The crate rslock, with its defaults.

use std::time::Duration;

use rslock::{Lock, LockManager};

use crate::Outcome;

#[derive(Clone)]
pub(crate) struct Other {
    manager: LockManager,
    ttl: Duration,
}

impl Other {
    /// It connects with the first use, so there is one.
    pub(crate) async fn connect(addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let other = Self { manager: LockManager::new(addresses), ttl };
        other.acquire("first").await?.release().await;
        Ok(other)
    }

    pub(crate) async fn acquire(&self, name: &str) -> Outcome<Lock> {
        Ok(self.manager.lock(name, self.ttl).await?)
    }
}
