//! The log of waiting acquires through `tracing`, under a target of its own; `docs/operations.md` has the list. To be
//! written while no mutex is held: a subscriber is foreign code.

use tracing::{Level, debug};

use crate::protocol::{ClientId, CurrentHolder, Round, RoundFailure};
use crate::resource::Resource;

pub(crate) const TARGET: &str = "redquorum::wait";

/// Why an attempt for a waiter is sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AskReason {
    /// The wait has begun.
    #[default]
    First,
    /// This client was woken: the lock was released, and it is the next.
    Woken,
    /// The rival's key has expired.
    Expired,
    /// The pause since the last attempt is over.
    Pause,
    /// Another caller of this client gave it up, or lost it.
    LetGo,
    /// Others had their turn: after the most hand-overs in a row, or a client that was woken.
    Turn,
    /// A caller joined the queue, or left it.
    Line,
}

/// The known waiters for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownWaiters {
    /// How many of this client.
    pub(crate) here: usize,
    /// How many other clients.
    pub(crate) elsewhere: usize,
    /// Which client is woken if this one releases it.
    pub(crate) next: Option<ClientId>,
}

/// A round for the waiters was lost.
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
