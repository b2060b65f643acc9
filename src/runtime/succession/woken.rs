//! Which instances keep a key for a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::foreign::contain;
use crate::protocol::{InstanceId, InstanceSet, Instant};

/// The instances that keep one key for a wait.
#[derive(Debug)]
pub(super) struct Woken {
    ticket: AtomicU64,
    noted: Mutex<Noted>,
    /// Whether this client has won the key since the wait took a wake-up last.
    is_won_here: AtomicBool,
    /// Shared by the keys of the wait.
    came: Arc<Notify>,
}

/// What the wait has not taken yet.
#[derive(Debug, Default)]
struct Noted {
    instances: InstanceSet,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Woken {
    /// None, so far, for the wait with this ticket. `came` is told of each that comes.
    pub(super) fn new(ticket: u64, came: Arc<Notify>) -> Self {
        Self { ticket: AtomicU64::new(ticket), noted: Mutex::default(), is_won_here: AtomicBool::new(false), came }
    }

    /// The instances so far, which are forgotten. If there are any, the ticket counts as served, and the wait goes on
    /// under the next one.
    pub(super) fn take(&self) -> InstanceSet {
        let instances = std::mem::take(&mut *self.noted()).instances;
        if !instances.is_empty() {
            self.is_won_here.store(false, Ordering::Relaxed);
            self.count_as_served();
        }
        instances
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// Its ticket was served, if only for another wait of its client: it goes on under the next one.
    pub(super) fn count_as_served(&self) {
        self.ticket.fetch_add(1, Ordering::Relaxed);
    }

    /// It goes on under a later ticket, as if it had begun by so much later.
    pub(super) fn postpone(&self, by: Duration) {
        self.ticket.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.noted().instances.len()
    }

    pub(super) fn note(&self, instance: InstanceId, now: Instant) {
        let mut noted = self.noted();
        noted.instances.insert(instance);
        noted.since.get_or_insert(now);
        drop(noted);
        contain(|| self.came.notify_one()); // a wait of a holder is polled by its caller
    }

    /// Whether it has left a wake-up where it is for so long: its caller does not poll (P22).
    pub(super) fn is_unheard(&self, patience: Duration, now: Instant) -> bool {
        self.noted().since.is_some_and(|since| now.saturating_since(since) >= patience)
    }

    /// This client has the key now: what is kept of it is of no use, and for nobody else to have.
    pub(super) fn note_won_here(&self) {
        self.is_won_here.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_won_here(&self) -> bool {
        self.is_won_here.load(Ordering::Relaxed)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
