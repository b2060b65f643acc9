//! Entering a lease again that the same holder has in this client (P23).

use std::sync::Arc;

use super::acquire::{Failure, Wish};
use super::fan_out::Flight;
use super::hold::Hold;
use super::offer::Offer;
use super::{Shared, missed_scripts};
use crate::instance::Request;
use crate::protocol::{FencingToken, InstanceSet};

/// Enters a lease again: a quorum says that it still has it, and gives it a larger token. Gives it for
/// the caller, with what is still on its way; `None` if the lease has ended, by now or with this.
pub(super) async fn re_enter(
    shared: &Arc<Shared>,
    wish: &Wish,
    hold: &Arc<Hold>,
) -> Result<Option<(Offer, Flight)>, Failure> {
    // Counted before anything is sent: the last of the others may let go meanwhile, and what is set
    // after its release would belong to nobody.
    let Some(offer) = Offer::of_entry(shared, hold) else { return Ok(None) };
    let wall_us = shared.proposing_clock().map_err(Failure::ClocksApart)?;
    let mut seen = wish.seen.max(Some(hold.token()));
    let mut repeats = 0;
    loop {
        let Some(mut flight) = launch(shared, wish, hold, (wall_us, seen)) else { return Ok(None) };
        let verdict = flight.verdict().await;
        tracing::debug!(?verdict, granted = ?flight.round.granted(), repeats, "re-entry round");
        seen = seen.max(flight.round.highest_seen());
        hold.note_answers(&flight.round);
        if hold.ended(&*shared.clock).is_some() {
            shared.keeper.plan(hold);
            return Ok(None); // P20: somebody else was let in, perhaps this holder elsewhere
        }
        let token = flight.claim().token;
        if hold.settle_entry(&mut flight.round, token, wish.keeping(shared), &*shared.clock) {
            shared.keeper.plan(hold);
            return Ok(Some((offer, flight)));
        }
        let worth_repeating = flight.round.stale().is_some() || missed_scripts(&flight.round);
        // Each repeat goes above a larger token of another instance, so that there are never more.
        if repeats >= shared.instances.len() || !worth_repeating {
            return Err(Failure::Lost(Box::new(flight.round.clone())));
        }
        repeats += 1;
    }
}

/// Sends the round; `None` if the lease has ended.
fn launch(
    shared: &Arc<Shared>,
    wish: &Wish,
    hold: &Hold,
    (wall_us, seen): (u64, Option<FencingToken>),
) -> Option<Flight> {
    let token = shared.tokens.propose(wall_us, seen); // P12
    let mut state = hold.state();
    let now = shared.clock.now(); // P2: before anything is sent
    if state.has_ended() {
        return None;
    }
    let terms = state.lease.terms().longer(wish.terms); // an extend cannot shorten
    let round = state.lease.begin_entry(shared.quorum, terms, wish.terms.least_left(), now).ok()?;
    let round = round.proposing(token, FencingToken::most_believed(wall_us));
    let claim = state.claim_to_enter(terms.ttl(), token);
    drop(state);
    Some(Flight::launch(shared, round, Request::Enter(claim), InstanceSet::first(shared.instances.len())))
}
