//! Counts the tries that are under way, so that none gives a lock once the client was shut down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::Shared;
use super::acquire::AcquireFailure;
use super::held_lease::HeldLease;
use super::uncollected::UncollectedLease;

/// The tries of one client.
#[derive(Debug, Default)]
pub(crate) struct AttemptTracker {
    under_way: AtomicUsize,
    closed: AtomicBool,
    all_ended: Notify,
}

impl AttemptTracker {
    /// From now on no try begins, and none that is under way gives a lock.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until none is under way; of use after [`close`](Self::close).
    pub(super) async fn ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.all_ended.notified());
            ended.as_mut().enable();
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// One try, from before anything is sent until its result is known and what it owes is queued.
#[derive(Debug)]
pub(super) struct TrackedAttempt(Arc<Shared>);

impl TrackedAttempt {
    /// `None` if the client was shut down. Whoever closes after this waits for the try to end.
    pub(super) fn begin(shared: &Arc<Shared>) -> Option<Self> {
        shared.attempts.under_way.fetch_add(1, Ordering::SeqCst);
        let begun = Self(Arc::clone(shared));
        (!shared.attempts.is_closed()).then_some(begun)
    }

    /// What the caller is told: after a shutdown no lease, however the try ended.
    pub(super) fn offer(
        &self,
        outcome: Result<Arc<HeldLease>, AcquireFailure>,
    ) -> Result<UncollectedLease, AcquireFailure> {
        self.pass_on(outcome.map(|held| UncollectedLease::new(Arc::clone(&self.0), held))?)
    }

    /// The same for a lease that was entered again.
    pub(super) fn pass_on(&self, offer: UncollectedLease) -> Result<UncollectedLease, AcquireFailure> {
        if self.0.attempts.is_closed() { Err(AcquireFailure::ShutDown) } else { Ok(offer) }
    }
}

impl Drop for TrackedAttempt {
    fn drop(&mut self) {
        let tracker = &self.0.attempts;
        if tracker.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && tracker.is_closed() {
            tracker.all_ended.notify_waiters();
        }
    }
}
