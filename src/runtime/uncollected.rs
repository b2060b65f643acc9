//! A lease on its way to the caller for whom it was won.

use std::sync::Arc;

use super::Shared;
use super::held_lease::HeldLease;

/// A lease that its caller has not taken yet: one guard is counted for it. Dropped, it is let go (P22).
#[derive(Debug)]
pub(super) struct UncollectedLease {
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    is_taken: bool,
}

impl UncollectedLease {
    pub(super) const fn new(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_taken: false }
    }

    /// One guard more for a lease that is held; `None` if it has ended.
    pub(super) fn of_entry(shared: &Arc<Shared>, held: &Arc<HeldLease>) -> Option<Self> {
        held.add_guard().then(|| Self::new(Arc::clone(shared), Arc::clone(held)))
    }

    pub(super) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    /// The lease, for a guard that lets it go from now on.
    pub(super) fn take(mut self) -> Arc<HeldLease> {
        self.is_taken = true;
        self.held.take();
        Arc::clone(&self.held)
    }
}

impl Drop for UncollectedLease {
    fn drop(&mut self) {
        if !self.is_taken {
            self.shared.drop_guard(&self.held);
        }
    }
}
