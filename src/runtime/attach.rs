//! Continues a lease that was detached, from its value.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::slot::Released;
use super::acquire::uncollected::UncollectedLease;
use super::acquire::waiter::Place;
use super::acquire::{AcquireFailure, AcquireParams};
use super::extend::{ExtendFailure, extend};
use super::held_lease::Tenure;
use super::in_flight::RoundInFlight;
use super::shared::Shared;
use super::tasks::{RuntimeEnded, run_abort_on_drop};
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, Lease, Round, Value};
use crate::resource::Resource;

/// A lease as it was detached.
#[derive(Clone, Debug)]
pub(crate) struct Detached {
    pub(crate) value: Value,
    pub(crate) token: FencingToken,
}

type Outcome = Result<UncollectedLease, ExtendFailure>;

/// One extend round without repair: won where a quorum still has the key under the value. So no other client was granted the
/// lock since: that needs one of those keys to be gone, and nothing sets them again. Valid from its send (P2).
///
/// With any result nothing is deleted: the lease may live on elsewhere (P8). A caller that is gone attaches nothing.
pub(crate) async fn attach(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    detached: Detached,
) -> Result<Tenure, ExtendFailure> {
    shared.instances.iter().for_each(|instance| instance.want_locks());
    if shared.is_forked() {
        return Err(ExtendFailure::Forked);
    }
    if shared.attempts.is_closed() {
        return Err(ExtendFailure::ShutDown);
    }
    loop {
        let (client, asked, detached) = (Arc::clone(shared), Arc::clone(params), detached.clone());
        let outcome = run_abort_on_drop(&shared.runtime, |result| carry_out(client, asked, detached, result)).await;
        let lease = outcome.unwrap_or_else(|RuntimeEnded| Err(ExtendFailure::RuntimeEnded))?;
        match lease.collect(params) {
            Ok(tenure) => {
                tenure.held.release_keys();
                return Ok(tenure);
            }
            // Its caller polled when too little was left: what is stored may be attached anew.
            Err(AcquireFailure::NotPolled) => {}
            Err(AcquireFailure::ShutDown) => return Err(ExtendFailure::ShutDown),
            Err(_) => return Err(ExtendFailure::LeaseLost(None)),
        }
    }
}

/// Copies of a lease are attached one after the other: each joins the one before it, or finds that it was released. Else two would
/// be won at once, and the release of one would leave the other without keys.
async fn carry_out(
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    detached: Detached,
    result: oneshot::Sender<Outcome>,
) {
    let resource = Resource::copies_of(detached.value.as_bytes());
    let line = Arc::new(AcquireParams { resource, ..AcquireParams::clone(&params) });
    let mut place = Place::join(&shared, &line, false);
    place.wait_for_turn().await;
    let held = match shared.slots.share_value(&params.resource, &detached.value) {
        Ok(held) => held,
        Err(Released) => return drop(result.send(Err(ExtendFailure::LeaseLost(None)))),
    };
    let Some(held) = held else { return send(shared, params, detached, (place, result)).await };
    let lease = UncollectedLease::new(Arc::clone(&shared), Arc::clone(&held));
    let extended = extend(&shared, &held, None, held.terms().longer(params.terms)).await;
    let _ = result.send(extended.map(|_| lease));
}

async fn send(
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    detached: Detached,
    (place, result): (Place, oneshot::Sender<Outcome>),
) {
    // P10: this client has no earlier vote for it, so that no instance in quarantine gives one.
    let (resource, value, token) = (params.resource.clone(), detached.value, detached.token.of_grant());
    let claim = Claim::new(resource, value, token, params.terms.ttl());
    let asked = Arc::new(Claim { resent: true, ..claim }); // P6: what was sent for it by others may come late
    let started_at = shared.clock.now(); // P2: before anything is sent
    // Less than the least validity is as good as none.
    let in_time = params.terms.valid_until(started_at).saturating_sub(params.terms.min_remaining());
    let round = Round::extend(shared.quorum, params.terms, in_time, started_at);
    let request = Request::Keep(Arc::clone(&asked));
    let mut in_flight = RoundInFlight::send(&shared, round, request);
    in_flight.verdict().await;
    tracing::debug!(granted = ?shared.addresses(in_flight.round.granted()), "attach round");
    let lease = Lease::from_won(&mut in_flight.round, params.terms, shared.clock.now());
    let held = lease.map(|lease| {
        let lease = lease.add_release_targets(shared.all_instances());
        let held = shared.hold(lease, (asked, detached.token), &params.holder);
        held.keep_keys(); // unless it is collected others may have it (P32)
        held.never_hand_over(); // its copies would share it with another caller, under an older token
        shared.slots.put_held(&held);
        held
    });
    let outcome = match &held {
        Some(held) => Ok(UncollectedLease::new(Arc::clone(&shared), Arc::clone(held))),
        None => Err(failure(&in_flight.round)),
    };
    let _ = result.send(outcome);
    drop(place); // the next copy joins
    in_flight.finish(|round| held.iter().for_each(|held| held.note_replies(round))).await; // P20
}

/// It is lost if no quorum can have it; else too few have answered.
fn failure(round: &Round) -> ExtendFailure {
    let round = Box::new(round.clone());
    if round.quorum().is_out_of_reach(round.refusals().count()) {
        ExtendFailure::LeaseLost(Some(round))
    } else {
        ExtendFailure::Unconfirmed { remaining: Duration::ZERO, round }
    }
}
