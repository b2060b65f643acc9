//! Releasing a lease by hand (P7).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::client_task::{RuntimeEnded, run_detached};
use super::held_lease::HeldLease;
use super::in_flight::{OnDrop, RoundInFlight};
use super::shared::Shared;
use crate::instance::Request;
use crate::protocol::{InstanceId, InstanceSet, Reply, Round, Verdict};

/// What a release found.
pub(crate) enum ReleaseOutcome {
    /// A quorum still held the lock.
    WasHeld,
    /// No quorum held it any more.
    WasNotHeld,
    /// Too few instances answered to tell.
    Unconfirmed(Box<Round>),
}

/// Deletes the keys on every instance that may have them, in one round that is repeated once if only
/// the scripts were missing. The round is sent before this returns. Whatever the outcome, and also if the future is
/// dropped, the release goes on in the background wherever the keys are not known to be gone (P6).
pub(crate) fn release(
    shared: &Arc<Shared>,
    held: &Arc<HeldLease>,
    targets: InstanceSet,
) -> impl Future<Output = ReleaseOutcome> + use<> {
    let release = (shared.wake_next(held.release()), targets);
    let in_flight = send(shared, &release);
    shared.slots.let_go(held); // it is queued: what is asked next stands behind it
    let shared = Arc::clone(shared);
    async move {
        let client = Arc::clone(&shared);
        let outcome = run_detached(&shared.runtime, |result| carry_out(client, in_flight, release, result)).await;
        outcome.unwrap_or_else(|RuntimeEnded| {
            ReleaseOutcome::Unconfirmed(shared.not_sent(Round::release(shared.quorum, shared.clock.now())))
        })
    }
}

async fn carry_out(
    shared: Arc<Shared>,
    mut in_flight: RoundInFlight,
    release: (Request, InstanceSet),
    result: oneshot::Sender<ReleaseOutcome>,
) {
    // Once it is repeated: whose first answer is not known, so that a second one may find nothing left.
    let mut in_doubt = None;
    let outcome = loop {
        let verdict = in_flight.verdict().await;
        tracing::debug!(?verdict, deleted = ?in_flight.round.granted(), "release round");
        if verdict == Verdict::Won {
            break ReleaseOutcome::WasHeld;
        }
        if in_doubt.is_some() || !in_flight.lacks_only_scripts() {
            break of_lost_round(&in_flight.round, in_doubt.unwrap_or_default());
        }
        in_flight.on_drop = OnDrop::LeaveKeys; // the repeat is sent to all of them
        let (deleted, unclear) = (in_flight.round.granted(), in_flight.round.in_doubt());
        in_flight = send(&shared, &release);
        for id in deleted.iter() {
            in_flight.round.on_reply(id, Reply::Granted, shared.clock.now()); // nothing is left there
        }
        in_doubt = Some(unclear);
    };
    drop(in_flight); // pending releases are counted before the caller goes on, and may shut down
    let _ = result.send(outcome);
}

fn send(shared: &Arc<Shared>, (request, targets): &(Request, InstanceSet)) -> RoundInFlight {
    let round = Round::release(shared.quorum, shared.clock.now());
    RoundInFlight::send(shared, round, request.clone(), *targets)
}

/// A lost round shows that no quorum held the lock any more, unless it was lost only for lack of answers, or of answers that
/// are not `in_doubt`.
fn of_lost_round(round: &Round, in_doubt: InstanceSet) -> ReleaseOutcome {
    let answers = InstanceId::all(round.replies().len()).zip(round.replies());
    let may_have_held = answers.filter(|(id, answer)| match answer.as_ref().map(|answer| &answer.reply) {
        None | Some(Reply::Granted | Reply::NotSent(_) | Reply::Unknown(_)) => true,
        Some(_) => in_doubt.contains(*id),
    });
    if may_have_held.count() < round.quorum().votes() {
        ReleaseOutcome::WasNotHeld
    } else {
        ReleaseOutcome::Unconfirmed(Box::new(round.clone()))
    }
}
