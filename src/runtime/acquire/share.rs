//! Another guard of a lease that the same holder has in this client (P23).

use std::sync::Arc;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::uncollected::UncollectedLease;
use crate::runtime::extend::{ExtendFailure, extend};
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

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
        Err(ExtendFailure::LeaseLost(_) | ExtendFailure::WouldShorten) => Ok(None),
    }
}

/// As [`share`], for a caller that goes on with it now; `None` also if it has ended in this moment.
pub(super) async fn share_now(shared: &Arc<Shared>, params: &AcquireParams) -> Result<Option<Tenure>, AcquireFailure> {
    match share(shared, params).await? {
        Some(lease) => match lease.collect(params) {
            Err(AcquireFailure::NotPolled) => Ok(None),
            collected => collected.map(Some),
        },
        None => Ok(None),
    }
}
