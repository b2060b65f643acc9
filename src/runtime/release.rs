//! Releasing a lease (P7).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::client_task::{RuntimeEnded, run_detached};
use super::in_flight::{OnDrop, RoundInFlight};
use super::{Shared, lacks_only_scripts, nothing_sent};
use crate::instance::Request;
use crate::protocol::{InstanceSet, Reply, Round, Verdict};

/// Whether a quorum still held the lock, or the round that does not tell.
type Found = Result<bool, Box<Round>>;

/// Deletes the keys on every instance that may have them, in one round that is repeated once if only
/// the scripts were missing. Whatever the answer, and also if the future is dropped, what is not
/// known to be gone is cleaned up in the background (P6).
pub(crate) async fn release(shared: &Arc<Shared>, request: Request, asked: InstanceSet) -> Found {
    let in_flight = launch(shared, request, asked);
    let client = Arc::clone(shared);
    let told = run_detached(&shared.runtime, |tell| carry_out(client, in_flight, asked, tell)).await;
    told.unwrap_or_else(|RuntimeEnded| Err(nothing_sent(Round::release(shared.quorum, shared.clock.now()), shared)))
}

async fn carry_out(
    shared: Arc<Shared>,
    mut in_flight: RoundInFlight,
    asked: InstanceSet,
    tell: oneshot::Sender<Found>,
) {
    let mut repeated = false;
    let found = loop {
        let verdict = in_flight.verdict().await;
        tracing::debug!(?verdict, deleted = ?in_flight.round.granted(), "release round");
        if verdict == Verdict::Won {
            break Ok(true);
        }
        if repeated || !lacks_only_scripts(&in_flight.round) {
            break was_not_held(&in_flight.round);
        }
        in_flight.on_drop = OnDrop::LeaveKeys; // the repeat asks them all again
        in_flight = launch(&shared, in_flight.request().clone(), asked);
        repeated = true;
    };
    drop(in_flight); // what is owed is known before the caller goes on, and may shut down
    let _ = tell.send(found);
}

fn launch(shared: &Arc<Shared>, request: Request, asked: InstanceSet) -> RoundInFlight {
    let round = Round::release(shared.quorum, shared.clock.now());
    RoundInFlight::launch(shared, round, request, asked)
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
