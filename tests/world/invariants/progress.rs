//! After faults end, everybody who waits gets in; and a client that is shut down leaves nothing behind.

use std::time::Duration;

use redquorum::Redlock;
use redquorum::testing::simulation::REMEMBERED;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::deeds::Deed;
use crate::time::{now, since};
use crate::world::World;

/// The longest pause before a connection is made again, and what a step of it may take, twice.
const RECONNECT: Duration = Duration::from_secs(3);

/// Longer than bytes are on their way that were sent before all was well.
const LATEST: Duration = Duration::from_millis(500);

/// One run in so many is waited for until clients have forgotten who waited: meanwhile only clocks are asked for.
const FORGETS_EVERY: u64 = 8;

impl World {
    /// A quarantine, a connection, and then one user after the other, each of whom may find a lock that
    /// was left to run out.
    pub(crate) fn time_to_get_in(&self) -> Duration {
        let quarantine = self.scenario.max_ttl * 2 + self.set_back();
        RECONNECT + quarantine + (self.scenario.max_ttl * 2 + RECONNECT / 3) * self.turns()
    }

    /// A user that waits when the faults end gets in, does what it wants to do with the lock, and gets in once more. In
    /// so many times the time in which everybody gets in all are done; if not, a lock is never freed.
    pub(crate) fn time_to_end(&self) -> Duration {
        self.time_to_get_in() * 4
    }

    fn turns(&self) -> u32 {
        u32::try_from(self.scenario.users).unwrap_or(u32::MAX)
    }

    /// Whether all users are done, some time after the faults.
    pub(crate) async fn check_users_end(&self) -> bool {
        let is_done = timeout(self.time_to_end(), self.users_end()).await.is_ok();
        if !is_done {
            self.violate("every user is done in the end", format!("{:?} after the faults", self.time_to_end()));
        }
        is_done
    }

    /// Ends the clients that are left.
    pub(crate) async fn check_shutdown(&self) {
        sleep(LATEST).await;
        if self.scenario.in_order.is_some() && self.scenario.seed.is_multiple_of(FORGETS_EVERY) {
            sleep(REMEMBERED).await;
            self.check_all_is_forgotten();
        }
        let ended = (0..self.machines.len()).filter_map(|index| Some((index, self.end_client(index)?)));
        let clients: Vec<_> = ended.collect();
        for (index, client) in &clients {
            self.check_connected(*index, client).await;
        }
        if self.scenario.is_together {
            self.check_calm_together(&clients).await;
        } else {
            self.check_calm(&clients).await;
        }
        for (index, client) in clients {
            self.check_shut_down(index, &client).await;
            self.check_tables_are_empty(index, &client);
        }
    }

    pub(super) async fn check_connected(&self, index: usize, client: &Redlock) {
        let begun = now();
        while !client.instances().iter().all(|instance| instance.connected) {
            if since(begun) > RECONNECT {
                return self.violate("a client connects again", format!("client {index}: {:?}", client.instances()));
            }
            sleep(RECONNECT / 100).await;
        }
    }

    pub(crate) fn check_tasks_of(&self, runtime: &Handle, expected: usize) {
        let left = runtime.metrics().num_alive_tasks();
        if left > expected {
            self.violate("no task outlives its client", format!("{} are left", left - expected));
        }
    }

    /// When all clients and guards are gone.
    pub(crate) fn check_tasks(&self) {
        // Beside another runtime the life of the world is a task itself.
        self.check_tasks_of(&Handle::current(), usize::from(self.scenario.apart.is_some()));
        self.check_sent();
        let odd: Vec<String> = self.servers.iter().flat_map(|server| server.odd_commands()).collect();
        if let Some(command) = odd.first() {
            self.violate("the simulated servers know every command", command.clone());
        }
    }

    /// By all clients, to all servers.
    pub(crate) fn check_sent(&self) {
        for link in self.links.iter().flatten() {
            for (value, what) in link.sent_violations() {
                if !self.history().detached.contains(&value) {
                    self.violate("nothing is sent for a lease after its release", what);
                }
            }
            self.history().stats.add_deeds(Deed::LateCommand, link.late_commands());
        }
    }
}
