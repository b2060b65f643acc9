//! Which instances keep a key for a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::protocol::{InstanceId, InstanceSet};

/// The instances that keep one key for a wait.
#[derive(Debug)]
pub(super) struct Woken {
    ticket: AtomicU64,
    instances: Mutex<InstanceSet>,
    /// Shared by the keys of the wait.
    came: Arc<Notify>,
}

impl Woken {
    /// None, so far, for the wait with this ticket. `came` is told of each that comes.
    pub(super) fn new(ticket: u64, came: Arc<Notify>) -> Self {
        Self { ticket: AtomicU64::new(ticket), instances: Mutex::default(), came }
    }

    /// The instances so far, which are forgotten. If there are any, the ticket counts as served, and the wait goes on
    /// under the next one.
    pub(super) fn take(&self) -> InstanceSet {
        let instances = std::mem::take(&mut *self.instances());
        if !instances.is_empty() {
            self.ticket.fetch_add(1, Ordering::Relaxed);
        }
        instances
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> usize {
        self.instances().len()
    }

    pub(super) fn note(&self, instance: InstanceId) {
        self.instances().insert(instance);
        self.came.notify_one();
    }

    fn instances(&self) -> MutexGuard<'_, InstanceSet> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
