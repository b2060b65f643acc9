//! What is given up, and what is asked of a client that ends, leaves nothing behind.

use std::time::Duration;

use redquorum::{Guard, Redlock};
use tokio::time::{sleep, timeout};

use super::{MOMENTS, asks};
use crate::schedule::{Boxed, Schedule};
use crate::world::World;

/// What a shutdown is given. It needs far less: releases are confirmed at once.
const SHUTDOWN: Duration = Duration::from_secs(1);

impl World {
    /// A lock that was won for a future which nobody polls runs out.
    pub(super) async fn check_uncollected(&self, one: &Redlock, other: &Redlock) {
        let asks = asks(one, "uncollected", None);
        let asked = tokio::spawn(Schedule::Unpolled(1, self.scenario.ttl * 2).carry_out(asks));
        sleep(self.scenario.ttl * 3 / 2).await;
        drop(self.must_give("that nobody has taken", other.lock("uncollected").try_acquire().await));
        drop(asked.await);
    }

    /// Shuts a client down in the middle of everything; nothing that it has set is there afterwards.
    pub(crate) async fn check_shut_down(&self, index: usize, client: &Redlock) {
        let before: Vec<Vec<u8>> = self.lock_values();
        for moment in MOMENTS {
            drop(moment.carry_out(asks(client, "given up", None)).await);
        }
        let dropped = client.lock("dropped").try_acquire().await;
        let released = client.lock("released").try_acquire().await;
        drop(dropped);
        if let Ok(guard) = released {
            let release: Boxed<_> = Box::pin(guard.release());
            drop(MOMENTS[0].carry_out(release).await);
        }
        let held = client.lock("held").try_acquire().await;
        let (late, ended) =
            tokio::join!(client.lock("late").try_acquire(), timeout(SHUTDOWN * 2, client.shutdown(SHUTDOWN)));
        match ended {
            Ok(Ok(left)) if left.is_empty() => {}
            Ok(ended) => self.violate("a shutdown ends when all is well", format!("client {index}: {ended:?}")),
            Err(_) => self.violate("a shutdown ends in time", format!("client {index}")),
        }
        let left = self.lock_values().into_iter().find(|value| !before.contains(value));
        if let Some(value) = left {
            let what = format!("client {index}: {:?}", String::from_utf8_lossy(&value));
            self.violate("a shutdown leaves no key behind", what);
        }
        self.check_ended_with_client(index, held.ok());
        if let Ok(guard) = late {
            self.violate("no lock is given after a shutdown", format!("client {index}: {guard:?}"));
        }
    }

    /// What a client gave that is shut down.
    pub(in crate::invariants) fn check_ended_with_client(&self, index: usize, held: Option<Guard>) {
        if let Some(guard) = held.filter(|guard| guard.is_valid()) {
            self.violate("no lease outlives a shutdown", format!("client {index}: {guard:?}"));
        }
    }

    fn lock_values(&self) -> Vec<Vec<u8>> {
        self.servers.iter().flat_map(|server| server.locks()).map(|(_, value)| value).collect()
    }
}
