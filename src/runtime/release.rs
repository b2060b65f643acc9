//! Releasing a lease (P7).

use std::sync::Arc;

use super::fan_out::{AtEnd, Flight};
use super::{Shared, missed_scripts};
use crate::instance::{Claim, Request};
use crate::protocol::{InstanceSet, Reply, Round, Verdict};

/// Deletes the keys on every instance that may have them, in one round that is repeated once if only
/// the scripts were missing. Whatever the answer, and also if the future is dropped, what is not
/// known to be gone is cleaned up in the background (P6).
pub(crate) async fn release(shared: &Shared, claim: &Arc<Claim>, asked: InstanceSet) -> Result<bool, Box<Round>> {
    let mut repeated = false;
    loop {
        let round = Round::release(shared.quorum, shared.clock.now());
        let request = Request::Release(Arc::clone(claim));
        let mut flight = Flight::launch(shared, round, request, asked);
        let verdict = flight.verdict().await;
        tracing::debug!(?verdict, deleted = ?flight.round.granted(), "release round");
        if verdict == Verdict::Won {
            return Ok(true);
        }
        if repeated || !missed_scripts(&flight.round) {
            return was_not_held(&flight.round);
        }
        flight.at_end = AtEnd::Keep; // the repeat asks them all again
        repeated = true;
    }
}

/// What a lost round says of the lock: that no quorum held it any more, unless that is so only for
/// lack of answers.
fn was_not_held(round: &Round) -> Result<bool, Box<Round>> {
    let answers = round.answers().iter();
    let may_have_held = answers.filter(|answer| match answer.as_ref().map(|answer| &answer.reply) {
        None | Some(Reply::Granted | Reply::NotSent(_) | Reply::Unknown(_)) => true,
        Some(_) => false,
    });
    if may_have_held.count() < round.quorum().votes() { Ok(false) } else { Err(Box::new(round.clone())) }
}
