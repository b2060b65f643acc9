//! A wait for a loss ends with it at once, and work under a lock ends with the lock.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{LeaseView, Loss};
use tokio::time::{sleep, timeout};

use crate::time::now;
use crate::world::World;

/// What a timer and a few tasks may take.
const AT_ONCE: Duration = Duration::from_millis(30);

impl World {
    /// Looks on until a lock is over, now and then; one who listens waits to be told all along.
    pub(crate) async fn look_on(
        self: Arc<Self>,
        (number, client): (usize, usize),
        lease: LeaseView,
        pause: Duration,
        listens: bool,
    ) {
        self.look_on_until((number, client), (lease.clone(), lease.lost()), pause, listens).await;
    }

    /// The same, by one that is told by this of the loss.
    pub(super) async fn look_on_until(
        &self,
        (number, client): (usize, usize),
        (lease, told): (LeaseView, impl Future<Output = Loss>),
        pause: Duration,
        listens: bool,
    ) {
        let mut told = std::pin::pin!(told);
        while lease.is_valid() && !self.has_ended(number) {
            if !listens {
                sleep(pause).await;
            } else if let Ok(loss) = timeout(pause, told.as_mut()).await {
                return self.check_told((number, client), &lease, &loss);
            }
        }
        if lease.is_valid() {
            return; // it was let go
        }
        let begun = now();
        match timeout(AT_ONCE, told).await {
            Ok(loss) => self.check_told((number, client), &lease, &loss),
            Err(_) if self.machines[client].was_disturbed_since(begun) => {}
            Err(_) => {
                self.violate("a loss is told", format!("lock {number} of client {client} is over, and nobody says so"));
            }
        }
    }

    /// A user was told that a lock is over.
    fn check_told(&self, (number, client): (usize, usize), lease: &LeaseView, loss: &Loss) {
        if lease.is_valid() {
            self.violate("validity never comes back", format!("lock {number}"));
        }
        let is_had = self.history().holds.get(number).is_some_and(|hold| hold.lease.is_some());
        if is_had && matches!(loss, Loss::GivenUp) {
            let what = format!("lock {number} of client {client}: {loss}");
            self.violate("only its own user lets a lock go", what);
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
