//! A lease that was won, or that its holder shares (P23), until its caller polls.

use std::sync::Arc;

use super::{AcquireFailure, AcquireParams};
use crate::runtime::extend::{ExtendFailure, extend};
use crate::runtime::held_lease::{HeldLease, Tenure};
use crate::runtime::shared::Shared;

/// A lease that its caller has not collected yet; it counts as one guard. Dropped, that guard is (P22).
pub(crate) struct UncollectedLease {
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    is_collected: bool,
}

impl UncollectedLease {
    /// For a lease that has counted its guard already.
    pub(crate) const fn new(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_collected: false }
    }

    /// The lease, for a caller that drops the guard itself from now on, if it has polled in time.
    pub(crate) fn collect(mut self, params: &AcquireParams) -> Result<Tenure, AcquireFailure> {
        if self.shared.attempts.is_closed() {
            return Err(AcquireFailure::ShutDown);
        }
        let clock = &*self.shared.clock;
        let tenure = self.held.begin_tenure(params.wish(clock.now()), clock);
        let tenure = tenure.ok_or(AcquireFailure::NotPolled)?;
        if !self.shared.keep_alive.adopt(&self.held) {
            return Err(AcquireFailure::ShutDown);
        }
        self.is_collected = true;
        Ok(tenure)
    }
}

impl Drop for UncollectedLease {
    fn drop(&mut self) {
        if !self.is_collected {
            self.shared.let_go(&self.held, None);
        }
    }
}

/// A lease that its caller may have now; `None` if it is lost. Nothing is sent, unless the holder of the caller has it already, and less
/// is left of it than a guard must have (P2): then it is extended first.
pub(super) async fn extended(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    lease: UncollectedLease,
) -> Result<Option<UncollectedLease>, AcquireFailure> {
    let held = &lease.held;
    if held.remaining(&*shared.clock) >= params.terms.min_remaining() {
        return Ok(Some(lease));
    }
    if params.holder.is_empty() {
        return Ok(None);
    }
    let terms = held.terms().longer(params.terms); // an extend cannot shorten
    match extend(shared, held, None, terms).await {
        Ok(_) => Ok(Some(lease)),
        Err(ExtendFailure::Unconfirmed { round, .. }) => Err(AcquireFailure::RoundLost(round)),
        Err(_) => Ok(None),
    }
}

/// One more guard of the lease that the holder has, past every queue, for a caller that continues with it now; `None` if it has none, or that has ended in this moment.
pub(super) async fn share_now(shared: &Arc<Shared>, params: &AcquireParams) -> Result<Option<Tenure>, AcquireFailure> {
    let Some(held) = shared.keys.share(params) else { return Ok(None) };
    let lease = extended(shared, params, UncollectedLease::new(Arc::clone(shared), held)).await?;
    match lease.map(|lease| lease.collect(params)) {
        None | Some(Err(AcquireFailure::NotPolled)) => Ok(None),
        Some(collected) => collected.map(Some),
    }
}
