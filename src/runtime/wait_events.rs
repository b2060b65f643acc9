//! The log of waiting acquires through `tracing`, under a target of its own; `docs/operations.md` has the list. To be
//! written while no mutex is held: a subscriber is foreign code.

use std::time::Duration;

use tracing::{Level, debug, warn};

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

/// The round of this attempt for the waiters was lost. A key without an end is warned of, more and more rarely.
pub(crate) fn refused(resource: &Resource, round: &Round, asks: u32, waiting: impl FnOnce() -> KnownWaiters) {
    let warns = asks.is_power_of_two();
    if !warns && !tracing::enabled!(target: TARGET, Level::DEBUG) {
        return;
    }
    let (RoundFailure::Contended(by) | RoundFailure::SplitVote(by)) = RoundFailure::of(round) else {
        return debug!(target: TARGET, resource = resource.display(), "not granted: too few instances gave a vote");
    };
    let never_expires = by.earliest_expiry == Some(Duration::MAX);
    if warns && never_expires {
        let resource = resource.display();
        warn!(target: TARGET, resource, asks, "waits for a key that never expires: another program has stored it");
    }
    if !tracing::enabled!(target: TARGET, Level::DEBUG) {
        return;
    }
    let KnownWaiters { here, elsewhere, .. } = waiting();
    debug!(
        target: TARGET,
        resource = resource.display(),
        by = %CurrentHolder::from_value(by.most_named.value.as_deref().unwrap_or_default()),
        refused_by = by.refused_by.len(),
        expires_in = ?by.earliest_expiry.filter(|_| !never_expires),
        never_expires,
        waiting_here = here,
        waiting_elsewhere = elsewhere,
        "refused"
    );
}
