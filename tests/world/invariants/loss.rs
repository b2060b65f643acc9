//! A loss is told at once to whoever waits for it, and work under a lock ends with the lock.

use std::time::Duration;

use redquorum::LeaseView;
use tokio::time::timeout;

use crate::time::now;
use crate::world::World;

/// What a timer and a few tasks may take.
const AT_ONCE: Duration = Duration::from_millis(30);

impl World {
    /// After a lease was seen to be over, or was let go.
    pub(crate) async fn check_over(&self, number: usize, client: usize, lease: &LeaseView) {
        if lease.is_valid() {
            return; // it was let go
        }
        let begun = now();
        if timeout(AT_ONCE, lease.lost()).await.is_err() && !self.machines[client].was_disturbed_since(begun) {
            self.violate("a loss is told", format!("lock {number} of client {client} is over, and nobody says so"));
        }
        if lease.is_valid() {
            self.violate("validity never comes back", format!("lock {number}"));
        }
    }

    /// Work that was polled after its lease was over.
    pub(crate) fn check_polled_work(&self, client: usize, lease: &LeaseView) {
        let what = || format!("token {}", lease.fencing_token());
        if !self.is_disturbed(client) {
            self.violate("work ends with its lock", what());
        }
    }

    fn is_disturbed(&self, client: usize) -> bool {
        self.machines[client].was_disturbed_since(now().saturating_sub(AT_ONCE))
    }
}
