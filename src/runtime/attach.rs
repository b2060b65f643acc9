//! Goes on with a lease that was detached, from its value.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::{AcquireParams, UncollectedLease};
use super::client_task::{RuntimeEnded, run_detached};
use super::extend::{ExtendFailure, extend};
use super::held_lease::{HeldLease, Tenure};
use super::in_flight::RoundInFlight;
use super::shared::Shared;
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, Lease, Reply, Round, Value};

/// A lease as it was detached.
#[derive(Clone, Debug)]
pub(crate) struct Detached {
    pub(crate) value: Value,
    pub(crate) token: FencingToken,
}

type Outcome = Result<UncollectedLease, ExtendFailure>;

/// One extend round without repair: won where a quorum still has the key under the value. So nobody else was granted the
/// lock since: whoever is needs one of those keys to be gone, and nothing sets them again. Valid from its send (P2).
///
/// Whatever comes of it, nothing is deleted: the lease may go on elsewhere (P8).
pub(crate) async fn attach(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    detached: Detached,
) -> Result<Tenure, ExtendFailure> {
    shared.instances.iter().for_each(|instance| instance.want_locks());
    let shutdown = || if shared.attempts.is_closed() { Err(nothing_sent(shared, params)) } else { Ok(()) };
    shutdown()?;
    if shared.is_forked() {
        return Err(nothing_sent(shared, params));
    }
    if let Some(held) = shared.slots.share_value(&params.resource, &detached.value) {
        let lease = UncollectedLease::new(Arc::clone(shared), Arc::clone(&held));
        extend(shared, &held, None, held.terms().longer(params.terms)).await?;
        let tenure = lease.collect(params).map_err(|_| ExtendFailure::LeaseLost(None))?;
        held.release_keys();
        return Ok(tenure);
    }
    let (client, asked) = (Arc::clone(shared), Arc::clone(params));
    let outcome = run_detached(&shared.runtime, |result| carry_out(client, asked, detached, result)).await;
    let lease = outcome.unwrap_or_else(|RuntimeEnded| Err(nothing_sent(shared, params)))?;
    // Too late, or after a shutdown: the keys stay until they expire.
    lease.collect(params).map_err(|_| nothing_sent(shared, params))
}

/// What an attempt says that was not made.
fn nothing_sent(shared: &Shared, params: &AcquireParams) -> ExtendFailure {
    let now = shared.clock.now();
    let round = shared.not_sent(Round::acquire(shared.quorum, params.terms, now));
    ExtendFailure::Unconfirmed { remaining: Duration::ZERO, round }
}

async fn carry_out(
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    detached: Detached,
    result: oneshot::Sender<Outcome>,
) {
    let asked = Arc::new(claim(&params, &detached));
    let started_at = shared.clock.now(); // P2: before anything is sent
    // Less than the least validity is as good as none.
    let in_time = params.terms.valid_until(started_at).saturating_sub(params.terms.min_remaining());
    let round = Round::extend(shared.quorum, params.terms, in_time, started_at);
    let request = Request::Keep(Arc::clone(&asked));
    let mut in_flight = RoundInFlight::send(&shared, round, request);
    in_flight.verdict().await;
    tracing::debug!(granted = ?in_flight.round.granted(), "attach round");
    let held = won(&shared, &params, &detached, (&mut in_flight.round, &asked));
    let outcome = match &held {
        Some(held) => Ok(UncollectedLease::of_detached(Arc::clone(&shared), Arc::clone(held))),
        None => Err(failure(&in_flight.round)),
    };
    let _ = result.send(outcome);
    in_flight.finish(|round| held.iter().for_each(|held| held.note_replies(round))).await; // P20
}

/// What is asked, or held.
fn claim(params: &AcquireParams, detached: &Detached) -> Claim {
    let (resource, value, token) = (params.resource.clone(), detached.value.clone(), detached.token.of_grant());
    // P10: this client has no earlier vote for it, so that no instance in quarantine gives one.
    let claim = Claim::new(resource, value, token, params.terms.ttl());
    Claim { resent: true, ..claim } // P6: what was sent for it by others may come late
}

/// The lease, if the round was won.
fn won(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    detached: &Detached,
    (round, asked): (&mut Round, &Arc<Claim>),
) -> Option<Arc<HeldLease>> {
    let lease = Lease::from_won(round, params.terms, shared.clock.now())?;
    let lease = lease.add_release_targets(shared.all_instances());
    let held = shared.hold(lease, (Arc::clone(asked), detached.token), &params.holder);
    shared.slots.put_held(&held);
    Some(held)
}

/// It is lost if no quorum can have it; else too few have answered to tell.
fn failure(round: &Round) -> ExtendFailure {
    let round = Box::new(round.clone());
    let is_without = |reply: &Reply| matches!(reply, Reply::Refused(_));
    let without = round.replies().iter().flatten().filter(|answer| is_without(&answer.reply)).count();
    if round.quorum().is_out_of_reach(without) {
        ExtendFailure::LeaseLost(Some(round))
    } else {
        ExtendFailure::Unconfirmed { remaining: Duration::ZERO, round }
    }
}
