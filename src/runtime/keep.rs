//! Leaves the keys of a lease to run out later than the lease would, as a mark without a holder.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::extend::ExtendFailure;
use super::held_lease::HeldLease;
use super::in_flight::RoundInFlight;
use super::shared::Shared;
use super::tasks::{RuntimeEnded, run_detached};
use crate::instance::{Claim, Request};
use crate::protocol::{LeaseTerms, Round, Verdict};

/// Of the lease's ttl, the part that passes before what was not confirmed is sent again.
const PAUSE_DIVISOR: u32 = 10;

type Outcome = Result<(), ExtendFailure>;

/// Gives the keys of a lease another ttl, and leaves the lease as it is: instances that may have forgotten it wait for
/// `max_ttl` only, so no client may rely on it for longer. Repeated until a quorum has confirmed it or the lease has ended.
pub(crate) async fn keep_for(shared: &Arc<Shared>, held: &Arc<HeldLease>, terms: LeaseTerms) -> Outcome {
    let (client, lease) = (Arc::clone(shared), Arc::clone(held));
    let outcome = run_detached(&shared.runtime, |result| carry_out(client, lease, terms, result)).await;
    outcome.unwrap_or_else(|RuntimeEnded| Err(ExtendFailure::RuntimeEnded))
}

async fn carry_out(shared: Arc<Shared>, held: Arc<HeldLease>, terms: LeaseTerms, result: oneshot::Sender<Outcome>) {
    let mut last = None;
    let outcome = loop {
        let Some((mut in_flight, pause)) = send(&shared, &held, terms) else {
            break Err(ExtendFailure::LeaseLost(last));
        };
        let verdict = in_flight.verdict().await;
        tracing::debug!(?verdict, granted = ?shared.addresses(in_flight.round.granted()), "round that keeps the keys");
        held.note_replies(&in_flight.round); // P20
        let round = Box::new(in_flight.round.clone());
        // Instances that are slow get the keys later, without a wait for them.
        shared.runtime.spawn(async move { in_flight.finish(|_| {}).await });
        if verdict == Verdict::Won {
            break Ok(());
        }
        last = Some(round);
        sleep(pause).await;
    };
    let _ = result.send(outcome);
}

/// Sends the round; `None` if the lease has ended. Also how long to wait before it is sent again.
fn send(shared: &Arc<Shared>, held: &HeldLease, terms: LeaseTerms) -> Option<(RoundInFlight, Duration)> {
    if held.ended(&*shared.clock).is_some() {
        return None;
    }
    shared.keep_alive.send_before_release(|| {
        let mut state = held.state();
        if state.has_ended() {
            return None;
        }
        let own_ttl = state.lease.terms().ttl();
        // A release by other guards must know that it was sent (P6).
        let claim = Claim { is_mark: true, ..state.claim_to_extend(own_ttl).extended_to(terms.ttl()) };
        let round = Round::extend(shared.quorum, terms, state.lease.valid_until(), shared.clock.now());
        drop(state);
        let request = Request::Extend(Arc::new(claim));
        Some((RoundInFlight::send(shared, round, request), own_ttl / PAUSE_DIVISOR))
    })
}
