//! A lease that was won, until its caller polls.

use std::sync::Arc;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use crate::runtime::held_lease::{HeldLease, Tenure};
use crate::runtime::shared::Shared;

/// A lease that its caller has not collected yet; it counts as one guard. Dropped, that guard is (P22).
#[derive(Debug)]
pub(in crate::runtime) struct UncollectedLease {
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    is_collected: bool,
    /// Whether its keys are left to expire if it is not collected: others may have the lease (P32).
    leaves_keys: bool,
}

impl UncollectedLease {
    /// For a lease that has counted its guard already.
    pub(in crate::runtime) const fn new(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_collected: false, leaves_keys: false }
    }

    /// For a lease that was detached, and stays that if nobody collects it.
    pub(in crate::runtime) const fn of_detached(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_collected: false, leaves_keys: true }
    }

    pub(super) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    /// The lease, for a caller that drops the guard itself from now on, if it has polled in time.
    pub(in crate::runtime) fn collect(self, params: &AcquireParams) -> Result<Tenure, AcquireFailure> {
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
            if self.leaves_keys {
                self.held.keep_keys();
            }
            self.shared.let_go(&self.held, None);
        }
    }
}
