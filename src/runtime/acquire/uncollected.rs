//! A lease that was won, until its caller polls.

use std::sync::Arc;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
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

    pub(super) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    /// The lease, for a caller that drops the guard itself from now on, if it has polled in time.
    pub(super) fn collect(self, params: &AcquireParams) -> Result<Tenure, AcquireFailure> {
        if self.shared.attempts.is_closed() {
            return Err(AcquireFailure::ShutDown);
        }
        let clock = &*self.shared.clock;
        // P2, by the time at which it is relied on.
        let tenure = self.held.begin_tenure(params.wish(clock.now()), params.terms.min_remaining(), clock);
        let tenure = tenure.ok_or(AcquireFailure::NotPolled)?;
        if !self.shared.keep_alive.adopt(&self.held) {
            return Err(AcquireFailure::ShutDown);
        }
        drop(self.into_held());
        Ok(tenure)
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
            self.shared.let_go(&self.held, None);
        }
    }
}
