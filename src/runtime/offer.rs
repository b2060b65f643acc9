//! A lease on its way to the caller for whom it was won.

use std::sync::Arc;

use super::Shared;
use super::hold::Hold;

/// A lease that its caller has not taken yet: one guard is counted for it. Dropped, it is let go (P22).
#[derive(Debug)]
pub(super) struct Offer {
    shared: Arc<Shared>,
    hold: Arc<Hold>,
    is_taken: bool,
}

impl Offer {
    pub(super) const fn new(shared: Arc<Shared>, hold: Arc<Hold>) -> Self {
        Self { shared, hold, is_taken: false }
    }

    /// One guard more for a lease that is held; `None` if it has ended.
    pub(super) fn of_entry(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Option<Self> {
        hold.count_guard().then(|| Self::new(Arc::clone(shared), Arc::clone(hold)))
    }

    pub(super) const fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The lease, for a guard that lets it go from now on.
    pub(super) fn take(mut self) -> Arc<Hold> {
        self.is_taken = true;
        self.hold.take();
        Arc::clone(&self.hold)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_taken {
            self.shared.let_go(&self.hold);
        }
    }
}
