//! Extending a lease by hand (P8, P9, P10).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::client_task::{RuntimeEnded, run_detached};
use super::held_lease::HeldLease;
use super::in_flight::RoundInFlight;
use super::{Shared, lacks_only_scripts, nothing_sent};
use crate::instance::Request;
use crate::protocol::{ExtendRefused, InstanceSet, Round, Terms};

/// Why a lease was not extended.
#[derive(Debug)]
pub(crate) enum ExtendFailure {
    /// It has ended; the round that came too late or found it gone, if there was one.
    LeaseLost(Option<Box<Round>>),
    /// No quorum granted; the lease is as it was.
    Unconfirmed {
        /// How long it is still valid.
        remaining: Duration,
        /// The round.
        round: Box<Round>,
    },
    /// The ttl is below the lease's own.
    WouldShorten,
}

/// One extend round for a held lease, repeated once if only the scripts were missing. It goes on in a
/// task of the client, also if the caller goes away (P22).
pub(crate) async fn extend(
    shared: &Arc<Shared>,
    held: &Arc<HeldLease>,
    terms: Terms,
) -> Result<Duration, ExtendFailure> {
    let in_flight = launch(shared, held, terms)?;
    let (client, lease) = (Arc::clone(shared), Arc::clone(held));
    let told = run_detached(&shared.runtime, |tell| carry_out(client, lease, terms, in_flight, tell)).await;
    told.unwrap_or_else(|RuntimeEnded| {
        let round = Round::extend(shared.quorum, terms, shared.clock.now(), shared.clock.now());
        Err(not_extended(shared, held, nothing_sent(round, shared)))
    })
}

async fn carry_out(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    terms: Terms,
    mut in_flight: RoundInFlight,
    tell: oneshot::Sender<Result<Duration, ExtendFailure>>,
) {
    let mut repeated = false;
    let result = loop {
        let verdict = in_flight.verdict().await;
        tracing::debug!(?verdict, granted = ?in_flight.round.granted(), repeated, "extend round");
        held.note_answers(&in_flight.round);
        let extended = held.settle(&mut in_flight.round, &*shared.clock);
        let has_ended = held.ended(&*shared.clock).is_some();
        if has_ended || extended.is_some() {
            shared.keep_alive.reschedule(&held); // one that failed leaves the next renewal where it is
        }
        if let Some(remaining) = extended {
            break Ok(remaining);
        }
        if has_ended || repeated || !lacks_only_scripts(&in_flight.round) {
            break Err(not_extended(&shared, &held, Box::new(in_flight.round.clone())));
        }
        repeated = true;
        match launch(&shared, &held, terms) {
            Ok(next) => in_flight = next,
            Err(refused) => break Err(refused),
        }
    };
    let _ = tell.send(result);
    follow(&shared, &held, in_flight).await;
}

/// Follows what is still on its way after the verdict: it counts as well (P20).
pub(super) async fn follow(shared: &Shared, held: &Arc<HeldLease>, mut in_flight: RoundInFlight) {
    let mut looked_at = in_flight.round.granted();
    shared.keep_alive.recheck(held, looked_at);
    let heard = |round: &Round| {
        held.note_answers(round);
        shared.keep_alive.recheck(held, round.granted().without(looked_at));
        looked_at = round.granted();
    };
    in_flight.follow(heard).await;
}

fn launch(shared: &Arc<Shared>, held: &HeldLease, terms: Terms) -> Result<RoundInFlight, ExtendFailure> {
    if held.ended(&*shared.clock).is_some() {
        return Err(ExtendFailure::LeaseLost(None));
    }
    let mut state = held.state();
    if state.has_ended() {
        return Err(ExtendFailure::LeaseLost(None));
    }
    let round = state.lease.begin_extend(shared.quorum, terms, shared.clock.now()).map_err(refused)?;
    let claim = state.claim_to_extend(terms.ttl());
    drop(state);
    let everyone = InstanceSet::first(shared.instances.len());
    Ok(RoundInFlight::launch(shared, round, Request::Extend(claim), everyone))
}

fn not_extended(shared: &Shared, held: &HeldLease, round: Box<Round>) -> ExtendFailure {
    match held.remaining(&*shared.clock) {
        Duration::ZERO => ExtendFailure::LeaseLost(Some(round)),
        remaining => ExtendFailure::Unconfirmed { remaining, round },
    }
}

fn refused(refused: ExtendRefused) -> ExtendFailure {
    match refused {
        ExtendRefused::Lost => ExtendFailure::LeaseLost(None),
        ExtendRefused::Shorter => ExtendFailure::WouldShorten,
    }
}
