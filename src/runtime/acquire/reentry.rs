//! Entering a lease again that the same holder has in this client (P23).

use std::sync::Arc;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::uncollected::UncollectedLease;
use crate::instance::Request;
use crate::protocol::{FencingToken, ProposingClock};
use crate::runtime::held_lease::HeldLease;
use crate::runtime::in_flight::RoundInFlight;
use crate::runtime::shared::Shared;

/// What came of a re-entry.
pub(super) enum Reentry {
    /// A quorum still has the lease, under a larger token now: the lease for the caller, and the round with the
    /// replies that are outstanding.
    Entered(UncollectedLease, Box<RoundInFlight>),
    /// The lease has ended, by now or with this.
    LeaseEnded,
}

/// Enters a lease again: one round that extends it and gives it a larger token.
pub(super) async fn reenter(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    held: &Arc<HeldLease>,
    seen: Option<FencingToken>,
) -> Result<Reentry, AcquireFailure> {
    // Counted before anything is sent: the last of the other guards may be dropped meanwhile, and what is set
    // after its release would belong to nobody.
    let Some(lease) = UncollectedLease::add_guard(shared, held) else { return Ok(Reentry::LeaseEnded) };
    let by = shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
    let mut seen = seen.max(Some(held.token()));
    let mut repeats = 0;
    loop {
        let Some(mut in_flight) = send(shared, params, held, (by, seen)) else { return Ok(Reentry::LeaseEnded) };
        let verdict = in_flight.verdict_of(|round| held.note_replies(round)).await; // P20
        tracing::debug!(?verdict, granted = ?in_flight.round.granted(), repeats, "re-entry round");
        seen = seen.max(in_flight.round.highest_seen());
        if held.ended(&*shared.clock).is_some() {
            shared.keep_alive.reschedule(held);
            return Ok(Reentry::LeaseEnded); // P20: somebody else was let in, perhaps this holder elsewhere
        }
        let token = in_flight.claim().token;
        if held.settle_reentry(&mut in_flight.round, token, &*shared.clock) {
            shared.keep_alive.reschedule(held);
            return Ok(Reentry::Entered(lease, Box::new(in_flight)));
        }
        let worth_repeating = in_flight.round.stale_token().is_some() || in_flight.lacks_only_scripts();
        // Each repeat goes above a larger token of another instance, so that there are never more.
        if repeats >= shared.instances.len() || !worth_repeating {
            return Err(AcquireFailure::RoundLost(Box::new(in_flight.round.clone())));
        }
        repeats += 1;
    }
}

/// Sends the round; `None` if the lease has ended.
fn send(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    held: &HeldLease,
    (by, seen): (ProposingClock, Option<FencingToken>),
) -> Option<RoundInFlight> {
    let token = shared.tokens.propose(by, seen); // P12
    let mut state = held.state();
    let now = shared.clock.now(); // P2: before anything is sent
    if state.has_ended() {
        return None;
    }
    let terms = state.lease.terms().longer(params.terms); // an extend cannot shorten
    let round = state.lease.begin_reentry(shared.quorum, terms, params.terms.min_remaining(), now).ok()?;
    let round = round.proposing(token, by);
    let claim = state.claim_to_reenter(terms.ttl(), token);
    drop(state);
    Some(RoundInFlight::send(shared, round, Request::Reenter(claim), shared.all_instances()))
}
