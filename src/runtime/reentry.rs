//! Entering a lease again that the same holder has in this client (P23).

use std::sync::Arc;

use super::acquire::{AcquireFailure, AcquireParams};
use super::held_lease::HeldLease;
use super::in_flight::RoundInFlight;
use super::uncollected::UncollectedLease;
use super::{Shared, lacks_only_scripts};
use crate::instance::Request;
use crate::protocol::{FencingToken, InstanceSet};

/// Enters a lease again: a quorum says that it still has it, and gives it a larger token. Gives it for
/// the caller, with what is still on its way; `None` if the lease has ended, by now or with this.
pub(super) async fn reenter(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    held: &Arc<HeldLease>,
) -> Result<Option<(UncollectedLease, RoundInFlight)>, AcquireFailure> {
    // Counted before anything is sent: the last of the others may let go meanwhile, and what is set
    // after its release would belong to nobody.
    let Some(offer) = UncollectedLease::of_entry(shared, held) else { return Ok(None) };
    let wall_us = shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
    let mut seen = params.seen.max(Some(held.token()));
    let mut repeats = 0;
    loop {
        let Some(mut in_flight) = launch(shared, params, held, (wall_us, seen)) else { return Ok(None) };
        let verdict = in_flight.verdict().await;
        tracing::debug!(?verdict, granted = ?in_flight.round.granted(), repeats, "re-entry round");
        seen = seen.max(in_flight.round.highest_seen());
        held.note_answers(&in_flight.round);
        if held.ended(&*shared.clock).is_some() {
            shared.keep_alive.reschedule(held);
            return Ok(None); // P20: somebody else was let in, perhaps this holder elsewhere
        }
        let token = in_flight.claim().token;
        if held.settle_entry(&mut in_flight.round, token, params.policy(shared), &*shared.clock) {
            shared.keep_alive.reschedule(held);
            return Ok(Some((offer, in_flight)));
        }
        let worth_repeating = in_flight.round.stale().is_some() || lacks_only_scripts(&in_flight.round);
        // Each repeat goes above a larger token of another instance, so that there are never more.
        if repeats >= shared.instances.len() || !worth_repeating {
            return Err(AcquireFailure::RoundLost(Box::new(in_flight.round.clone())));
        }
        repeats += 1;
    }
}

/// Sends the round; `None` if the lease has ended.
fn launch(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    held: &HeldLease,
    (wall_us, seen): (u64, Option<FencingToken>),
) -> Option<RoundInFlight> {
    let token = shared.tokens.propose(wall_us, seen); // P12
    let mut state = held.state();
    let now = shared.clock.now(); // P2: before anything is sent
    if state.has_ended() {
        return None;
    }
    let terms = state.lease.terms().longer(params.terms); // an extend cannot shorten
    let round = state.lease.begin_entry(shared.quorum, terms, params.terms.least_left(), now).ok()?;
    let round = round.proposing(token, FencingToken::most_believed(wall_us));
    let claim = state.claim_to_enter(terms.ttl(), token);
    drop(state);
    Some(RoundInFlight::launch(shared, round, Request::Enter(claim), InstanceSet::first(shared.instances.len())))
}
