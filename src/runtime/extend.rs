//! Extending a lease by hand (P8, P9, P10).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::held_lease::{GuardNumber, HeldLease};
use super::in_flight::RoundInFlight;
use super::shared::Shared;
use super::tasks::{RuntimeEnded, run_detached};
use crate::instance::Request;
use crate::protocol::{ExtendRejected, LeaseTerms, Round};

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
    /// The client was shut down, and attaches none any more.
    ShutDown,
    /// The runtime of the client has ended.
    RuntimeEnded,
    /// This is not the process in which the client was built, for one that was to be attached.
    Forked,
}

type Outcome = Result<Duration, ExtendFailure>;

/// One extend round for a held lease, repeated once if only the scripts were missing. It continues in a
/// task of the client, also if the caller is dropped (P22). The guard that extends has the lease for as long.
pub(crate) async fn extend(
    shared: &Arc<Shared>,
    held: &Arc<HeldLease>,
    asked_by: Option<GuardNumber>,
    terms: LeaseTerms,
) -> Outcome {
    let in_flight = send(shared, held, terms)?;
    let (client, lease) = (Arc::clone(shared), Arc::clone(held));
    let outcome =
        run_detached(&shared.runtime, |result| carry_out(client, lease, (asked_by, terms), in_flight, result)).await;
    outcome.unwrap_or_else(|RuntimeEnded| Err(ExtendFailure::RuntimeEnded))
}

async fn carry_out(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    (asked_by, terms): (Option<GuardNumber>, LeaseTerms),
    mut in_flight: RoundInFlight,
    result: oneshot::Sender<Outcome>,
) {
    let mut repeated = false;
    let outcome = loop {
        // What an instance answers counts at once, whenever the others do (P20).
        let verdict = in_flight.verdict_of(|round| held.note_replies(round)).await;
        tracing::debug!(?verdict, granted = ?shared.addresses(in_flight.round.granted()), repeated, "extend round");
        let extended = held.settle(&mut in_flight.round, asked_by, &*shared.clock);
        let has_ended = held.ended(&*shared.clock).is_some();
        if has_ended || extended.is_some() {
            shared.keep_alive.reschedule(&held); // one that failed leaves the next renewal where it is
        }
        if let Some(remaining) = extended {
            break Ok(remaining);
        }
        if has_ended || repeated || !in_flight.lacks_only_scripts() {
            break Err(not_extended(&shared, &held, Box::new(in_flight.round.clone())));
        }
        repeated = true;
        match send(&shared, &held, terms) {
            Ok(next) => in_flight = next,
            Err(failure) => break Err(failure),
        }
    };
    let _ = result.send(outcome);
    finish(&shared, &held, in_flight).await;
}

/// Takes in the replies that come after the verdict: they count for the lease as well (P20).
async fn finish(shared: &Shared, held: &Arc<HeldLease>, mut in_flight: RoundInFlight) {
    let mut checked = in_flight.round.granted();
    shared.keep_alive.recheck(held, checked);
    let on_replies = |round: &Round| {
        held.note_replies(round);
        let granted = round.granted();
        shared.keep_alive.recheck(held, granted.without(checked));
        checked = granted;
    };
    in_flight.finish(on_replies).await;
}

fn send(shared: &Arc<Shared>, held: &HeldLease, terms: LeaseTerms) -> Result<RoundInFlight, ExtendFailure> {
    if held.ended(&*shared.clock).is_some() {
        return Err(ExtendFailure::LeaseLost(None));
    }
    shared.keep_alive.send_before_release(|| {
        let mut state = held.state();
        if state.has_ended() {
            return Err(ExtendFailure::LeaseLost(None));
        }
        let round = state.lease.begin_extend(shared.quorum, terms, shared.clock.now());
        let round = round.map_err(|rejected| match rejected {
            ExtendRejected::Lost => ExtendFailure::LeaseLost(None),
            ExtendRejected::WouldShorten => ExtendFailure::WouldShorten,
        })?;
        let claim = state.claim_to_extend(terms.ttl());
        drop(state);
        Ok(RoundInFlight::send(shared, round, Request::Extend(claim)))
    })
}

fn not_extended(shared: &Shared, held: &HeldLease, round: Box<Round>) -> ExtendFailure {
    match held.remaining(&*shared.clock) {
        Duration::ZERO => ExtendFailure::LeaseLost(Some(round)),
        remaining => ExtendFailure::Unconfirmed { remaining, round },
    }
}
