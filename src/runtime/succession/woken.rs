//! Which instances keep a key for a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::foreign::contain;
use crate::protocol::{InstanceId, InstanceSet, Instant};
use crate::runtime::held_lease::HeldLease;

/// The instances that keep one key for a wait.
#[derive(Debug)]
pub(super) struct Woken {
    ticket: AtomicU64,
    /// When it began: by the clock of tickets, and by the own one.
    begun: (u64, Instant),
    noted: Mutex<Noted>,
    /// The last lease of this client on the key, since the wait began.
    won_here: Mutex<Weak<HeldLease>>,
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
    /// None, so far, for the wait that begins now, with this ticket. `came` is told of each that comes.
    pub(super) fn new(ticket: u64, now: Instant, came: Arc<Notify>) -> Self {
        let (noted, won_here) = (Mutex::default(), Mutex::default());
        Self { ticket: AtomicU64::new(ticket), begun: (ticket, now), noted, won_here, came }
    }

    /// The instances so far, which are forgotten. If there are any, the ticket counts as served, and the wait goes on
    /// under the next one.
    pub(super) fn take(&self) -> InstanceSet {
        let instances = std::mem::take(&mut *self.noted()).instances;
        if !instances.is_empty() {
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

    /// It goes on as if it had begun now.
    pub(super) fn begin_anew(&self, now: Instant) {
        let (ticket, begun) = self.begun;
        let waited = u64::try_from(now.saturating_since(begun).as_micros()).unwrap_or(u64::MAX);
        self.count_as_served();
        self.ticket.fetch_max(ticket.saturating_add(waited), Ordering::Relaxed);
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

    /// This client has the key by this lease.
    pub(super) fn note_won_here(&self, held: &Arc<HeldLease>) {
        *self.won_here.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(held);
    }

    /// The lease by which this client has the key: while it lasts what is kept of the key is of no use, and not for others to
    /// have.
    pub(super) fn held_here(&self) -> Option<Arc<HeldLease>> {
        let held = self.won_here.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        held.filter(|held| !held.has_ended())
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
