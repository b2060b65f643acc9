//! Counts the tries that are under way, so that none returns a lock once the client was shut down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The tries of one client that are under way, and whether new ones may begin.
#[derive(Debug, Default)]
pub(crate) struct AttemptTracker {
    under_way: AtomicUsize,
    closed: AtomicBool,
    all_ended: Notify,
    closing: Notify,
}

impl AttemptTracker {
    #[cfg(feature = "testing")]
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// From now on no try begins, and none that is under way returns a lock.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until none is under way; of use after [`close`](Self::close).
    pub(crate) async fn wait(&self) {
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

/// One try, from before anything is sent until its outcome is known and its releases are queued.
#[derive(Debug)]
pub(crate) struct TrackedAttempt(Arc<AttemptTracker>);

impl TrackedAttempt {
    /// `None` if the client was shut down. A shutdown after this waits for the try to end.
    pub(super) fn begin(tracker: &Arc<AttemptTracker>) -> Option<Self> {
        let tracked = Self::of_shutdown(tracker);
        (!tracker.is_closed()).then_some(tracked)
    }

    /// For work of a shutdown: others wait for its end as well.
    pub(crate) fn of_shutdown(tracker: &Arc<AttemptTracker>) -> Self {
        tracker.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(tracker))
    }
}

impl Drop for TrackedAttempt {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_closed() {
            self.0.all_ended.notify_waiters();
        }
    }
}
