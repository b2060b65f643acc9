//! Which instances keep a key for a wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::protocol::{InstanceId, InstanceSet, Quorum};

/// The instances that keep a key for a wait.
#[derive(Debug)]
pub(super) struct Woken {
    ticket: u64,
    instances: Mutex<InstanceSet>,
    came: Notify,
}

impl Woken {
    /// None, so far, for the wait with this ticket.
    pub(super) fn new(ticket: u64) -> Self {
        Self { ticket, instances: Mutex::default(), came: Notify::new() }
    }

    /// The instances so far, which are forgotten.
    pub(super) fn take(&self) -> InstanceSet {
        std::mem::take(&mut *self.instances())
    }

    pub(super) const fn ticket(&self) -> u64 {
        self.ticket
    }

    pub(super) fn note(&self, instance: InstanceId) {
        self.instances().insert(instance);
        self.came.notify_one();
    }

    fn instances(&self) -> MutexGuard<'_, InstanceSet> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once a quorum keeps the key, or a little after the first does.
    pub(super) async fn enough(&self, quorum: Quorum, settle: Duration) {
        loop {
            let count = self.instances().len();
            if count >= quorum.votes() {
                return;
            }
            if count == 0 {
                self.came.notified().await;
                continue;
            }
            tokio::select! {
                biased;
                () = sleep(settle) => return,
                () = self.came.notified() => {}
            }
        }
    }
}
