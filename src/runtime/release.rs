//! Releasing a lease (P7).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::fan_out::{AtEnd, Flight};
use super::work::{RuntimeEnded, to_its_end};
use super::{Shared, missed_scripts, nobody_asked};
use crate::instance::Request;
use crate::protocol::{InstanceSet, Reply, Round, Verdict};

/// Whether a quorum still held the lock, or the round that does not tell.
type Found = Result<bool, Box<Round>>;

/// Deletes the keys on every instance that may have them, in one round that is repeated once if only
/// the scripts were missing. Whatever the answer, and also if the future is dropped, what is not
/// known to be gone is cleaned up in the background (P6).
pub(crate) async fn release(shared: &Arc<Shared>, request: Request, asked: InstanceSet) -> Found {
    let flight = launch(shared, request, asked);
    let client = Arc::clone(shared);
    let told = to_its_end(&shared.runtime, |tell| carry_out(client, flight, asked, tell)).await;
    told.unwrap_or_else(|RuntimeEnded| Err(nobody_asked(Round::release(shared.quorum, shared.clock.now()), shared)))
}

async fn carry_out(shared: Arc<Shared>, mut flight: Flight, asked: InstanceSet, tell: oneshot::Sender<Found>) {
    let mut repeated = false;
    let found = loop {
        let verdict = flight.verdict().await;
        tracing::debug!(?verdict, deleted = ?flight.round.granted(), "release round");
        if verdict == Verdict::Won {
            break Ok(true);
        }
        if repeated || !missed_scripts(&flight.round) {
            break was_not_held(&flight.round);
        }
        flight.at_end = AtEnd::Keep; // the repeat asks them all again
        flight = launch(&shared, flight.request().clone(), asked);
        repeated = true;
    };
    drop(flight); // what is owed is known before the caller goes on, and may shut down
    let _ = tell.send(found);
}

fn launch(shared: &Arc<Shared>, request: Request, asked: InstanceSet) -> Flight {
    let round = Round::release(shared.quorum, shared.clock.now());
    Flight::launch(shared, round, request, asked)
}

/// What a lost round says of the lock: that no quorum held it any more, unless that is so only for
/// lack of answers.
fn was_not_held(round: &Round) -> Found {
    let answers = round.answers().iter();
    let may_have_held = answers.filter(|answer| match answer.as_ref().map(|answer| &answer.reply) {
        None | Some(Reply::Granted | Reply::NotSent(_) | Reply::Unknown(_)) => true,
        Some(_) => false,
    });
    if may_have_held.count() < round.quorum().votes() { Ok(false) } else { Err(Box::new(round.clone())) }
}
