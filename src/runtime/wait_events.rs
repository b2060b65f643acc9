//! What waiting acquires tell through `tracing`, under a target of their own; `docs/operations.md` has the list.
//! Nothing is worked out unless somebody listens. To be called while no mutex is held: who listens is foreign code, and
//! what it does ends nothing of the client.

use tracing::{Level, debug};

use crate::protocol::{ClientId, CurrentHolder, InstanceSet, Round, RoundFailure};
use crate::resource::{Resource, display_name};

const TARGET: &str = "redquorum::wait";

/// Why a lock that is waited for is asked for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AskReason {
    /// The wait has begun.
    #[default]
    First,
    /// This client was woken: the lock was let go, and it comes first.
    Woken,
    /// What stood in the way has expired.
    Expired,
    /// The pause since the last ask is over.
    Pause,
    /// Somebody of this client let it go, or lost it.
    LetGo,
    /// Others had their turn: after the most hand-overs in a row, or a client that was woken.
    Turn,
    /// Somebody joined the line, or left it.
    Line,
}

/// Who is known to wait for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownWaiters {
    /// How many of this client.
    pub(crate) here: usize,
    /// How many other clients.
    pub(crate) elsewhere: usize,
    /// Who is woken if this client lets it go.
    pub(crate) next: Option<ClientId>,
}

/// A round is about to be sent for those who wait.
pub(crate) fn asks(resource: &Resource, asks: u32, why: AskReason, waiting: impl FnOnce() -> KnownWaiters) {
    debug!(target: TARGET, resource = resource.display(), asks, ?why, waiting_here = waiting().here, "asks");
}

/// It was lost.
pub(crate) fn refused(resource: &Resource, round: &Round, waiting: impl FnOnce() -> KnownWaiters) {
    if !tracing::enabled!(target: TARGET, Level::DEBUG) {
        return;
    }
    let (RoundFailure::Contended(by) | RoundFailure::SplitVote(by)) = RoundFailure::of(round) else {
        return debug!(target: TARGET, resource = resource.display(), "not granted: too few instances gave a vote");
    };
    let KnownWaiters { here, elsewhere, .. } = waiting();
    debug!(
        target: TARGET,
        resource = resource.display(),
        by = %CurrentHolder::from_value(by.most_named.value.as_deref().unwrap_or_default()),
        refused_by = by.refused_by.len(),
        expires_in = ?by.earliest_expiry,
        waiting_here = here,
        waiting_elsewhere = elsewhere,
        "refused"
    );
}

/// It was won, with so many asks and rounds.
pub(crate) fn won(resource: &Resource, asks: u32, rounds: usize) {
    debug!(target: TARGET, resource = resource.display(), asks, rounds, "won");
}

/// A lease passed to the next of its client, for the so-manieth time in a row.
pub(crate) fn handed_over(resource: &Resource, in_a_row: u32, waiting_here: usize) {
    debug!(target: TARGET, resource = resource.display(), in_a_row, waiting_here, "handed over");
}

/// The client that has the lock was told that this one waits, if it heard that.
pub(crate) fn announced(key: &[u8], heard: bool) {
    debug!(target: TARGET, key = display_name(key), heard, "announced");
}

/// Behind a release the next client is woken.
pub(crate) fn wakes(key: &[u8], next: ClientId, waiting_elsewhere: usize) {
    debug!(target: TARGET, key = display_name(key), %next, waiting_elsewhere, "wakes the next");
}

/// A wait was woken over these instances.
pub(crate) fn woken(key: &[u8], over: InstanceSet) {
    debug!(target: TARGET, key = display_name(key), ?over, "woken");
}

/// Wake-ups that came over these instances, for a wait that is over, go to the next.
pub(crate) fn passed_on(key: &[u8], over: InstanceSet, next: Option<ClientId>) {
    let next = next.map(|next| next.to_string());
    debug!(target: TARGET, key = display_name(key), ?over, next, "passed on");
}
