//! A lease that was won, or that its holder shares (P23), until its caller polls.

use std::sync::Arc;

use super::{AcquireFailure, AcquireParams};
use crate::runtime::extend::{ExtendFailure, extend};
use crate::runtime::held_lease::{HeldLease, Tenure};
use crate::runtime::shared::Shared;
use crate::runtime::tasks::Offered;

/// A lease that its caller has not collected yet; it counts as one guard. Dropped, that guard is (P22).
pub(in crate::runtime) struct UncollectedLease {
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    is_collected: bool,
}

impl UncollectedLease {
    /// For a lease that has counted its guard already.
    pub(in crate::runtime) const fn new(shared: Arc<Shared>, held: Arc<HeldLease>) -> Self {
        Self { shared, held, is_collected: false }
    }

    pub(super) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    /// The lease, for a caller that drops the guard itself from now on, if it has polled in time.
    pub(in crate::runtime) fn collect(mut self, params: &AcquireParams) -> Result<Tenure, AcquireFailure> {
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

/// A lease that was won for a caller that may not poll for long.
pub(super) type WonLease = Offered<UncollectedLease>;

impl WonLease {
    /// The lease for its caller; `None` if that has missed its turn, and waits again.
    pub(super) fn collect(&self, shared: &Shared, params: &AcquireParams) -> Option<Result<Tenure, AcquireFailure>> {
        match self.take().map(|lease| lease.collect(params)) {
            None if shared.attempts.is_closed() => Some(Err(AcquireFailure::ShutDown)),
            None | Some(Err(AcquireFailure::NotPolled)) => None,
            collected => collected,
        }
    }
}

/// One more guard of the lease that the holder has, past every queue; `None` if it has none. Nothing is sent, unless less
/// is left of the lease than a guard must have (P2): then it is extended first.
pub(super) async fn share(
    shared: &Arc<Shared>,
    params: &AcquireParams,
) -> Result<Option<UncollectedLease>, AcquireFailure> {
    let Some(held) = shared.slots.share(params) else { return Ok(None) };
    let lease = UncollectedLease::new(Arc::clone(shared), held);
    let held = lease.held();
    if held.remaining(&*shared.clock) >= params.terms.min_remaining() {
        return Ok(Some(lease));
    }
    let terms = held.terms().longer(params.terms); // an extend cannot shorten
    match extend(shared, held, None, terms).await {
        Ok(_) => Ok(Some(lease)),
        Err(ExtendFailure::Unconfirmed { round, .. }) => Err(AcquireFailure::RoundLost(round)),
        Err(_) => Ok(None),
    }
}

/// As [`share`], for a caller that continues with it now; `None` also if it has ended in this moment.
pub(super) async fn share_now(shared: &Arc<Shared>, params: &AcquireParams) -> Result<Option<Tenure>, AcquireFailure> {
    match share(shared, params).await?.map(|lease| lease.collect(params)) {
        None | Some(Err(AcquireFailure::NotPolled)) => Ok(None),
        Some(collected) => collected.map(Some),
    }
}
