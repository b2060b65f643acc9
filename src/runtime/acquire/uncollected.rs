//! A lease that was won, until its caller polls.

use std::sync::Arc;

use crate::runtime::held_lease::{HeldLease, Tenure};
use crate::runtime::shared::Shared;

/// A lease that its caller has not collected yet; it counts as one guard. Dropped, that guard is (P22).
#[derive(Debug)]
pub(super) struct UncollectedLease {
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    is_collected: bool,
}

impl UncollectedLease {
    /// For a lease that has counted its guard already.
    pub(super) const fn new(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_collected: false }
    }

    /// One more guard of a lease that is held; `None` if it has ended.
    pub(super) fn add_guard(shared: &Arc<Shared>, held: &Arc<HeldLease>) -> Option<Self> {
        held.add_guard().then(|| Self::new(Arc::clone(shared), Arc::clone(held)))
    }

    pub(super) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    /// The lease, for a caller that drops the guard itself from now on.
    pub(super) fn collect(self) -> Tenure {
        self.into_held().join_tenure()
    }

    /// The lease, for whoever sees to it that its guard is dropped or collected.
    pub(super) fn into_held(mut self) -> Arc<HeldLease> {
        self.is_collected = true;
        Arc::clone(&self.held)
    }
}

impl Drop for UncollectedLease {
    fn drop(&mut self) {
        if !self.is_collected {
            self.held.forget_uncollected();
            self.shared.let_go(&self.held);
        }
    }
}
