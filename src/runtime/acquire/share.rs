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
    // Counted under the lease's mutex, so that it is not let go meanwhile.
    let Some(held) = shared.lines.share(params) else { return Ok(None) };
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

/// As [`share`], for a caller that has it at once.
pub(super) async fn share_now(shared: &Arc<Shared>, params: &AcquireParams) -> Result<Option<Tenure>, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    match share(shared, params).await? {
        Some(lease) if lease.held().has_ended() => Ok(None), // in the moment in which it was confirmed
        Some(lease) => lease.collect(params).map(Some),
        None => Ok(None),
    }
}
