//! Releasing a lease by hand (P7).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::ballot::Ballot;
use super::held_lease::HeldLease;
use super::shared::Shared;
use crate::protocol::{InstanceSet, Refusal, Reply, Round, Verdict};

/// What a release found.
pub(crate) enum ReleaseOutcome {
    /// A quorum still held the lock.
    WasHeld,
    /// No quorum held it any more.
    WasNotHeld,
    /// Too few instances answered.
    Unconfirmed(Box<Round>),
    /// The runtime of the client has ended, and nothing is sent.
    RuntimeEnded,
}

/// Deletes the keys on every instance that may have them. The round is sent before this returns. With any outcome, and also if
/// the future is dropped or not polled, the release continues in the background where the keys are not known to be gone (P6):
/// nothing of that waits for the caller.
pub(crate) fn release(
    shared: &Arc<Shared>,
    held: &Arc<HeldLease>,
    targets: InstanceSet,
) -> impl Future<Output = ReleaseOutcome> + use<> {
    let lease = shared.with_wakes(held.claim());
    let mut round = Round::release(shared.quorum, shared.clock.now());
    for id in shared.all_instances().without(targets).iter() {
        round.record(id, Reply::Refused(Refusal::default()), round.started_at());
    }
    let ballot = Ballot::new(shared.quorum, targets);
    shared.releaser.release(lease, targets, Some(Arc::clone(&ballot)));
    shared.slots.let_go(held); // it is queued: what is asked next stands behind it
    let shared = Arc::clone(shared);
    async move {
        if shared.has_ended() {
            return ReleaseOutcome::RuntimeEnded;
        }
        let verdict = poll_fn(|cx| {
            // Once it is decided, the replies that are still to come wake no task. A release is never too late.
            for context in [None, Some(&*cx)] {
                ballot.take_out(&mut round, &*shared.clock, context);
                match round.verdict(round.started_at()) {
                    Verdict::Pending => {}
                    verdict => return Poll::Ready(verdict),
                }
            }
            Poll::Pending
        })
        .await;
        tracing::debug!(?verdict, deleted = ?shared.addresses(round.granted()), "release round");
        if verdict == Verdict::Won { ReleaseOutcome::WasHeld } else { of_lost_round(round) }
    }
}

/// A lost round shows that no quorum held the lock any more, unless it was lost only for lack of answers.
fn of_lost_round(round: Round) -> ReleaseOutcome {
    let may_have_held =
        round.which(|reply| matches!(reply, None | Some(Reply::Granted | Reply::NotSent(_) | Reply::Unknown(_))));
    if may_have_held.len() < round.quorum().votes() {
        ReleaseOutcome::WasNotHeld
    } else {
        ReleaseOutcome::Unconfirmed(Box::new(round))
    }
}
