//! What a client has done so far, and what it has now.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::runtime::Shared;

/// What a client has done since it was built, and what it has now: a snapshot, given by
/// [`Redlock::stats`](crate::Redlock::stats). How each instance does, and what was sent to it, is in [`Redlock::instances`](crate::Redlock::instances).
///
/// The numbers of what was done only rise. Clones of a client, and its namespaces, count together.
///
/// With the feature `serde` it can be serialised: the fields as they are named here, and `acquire_time_ms` in milliseconds.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Acquires that gave a lock.
    pub acquired: u64,
    /// Of these, the hand-offs within this client, without a request.
    pub handed_over: u64,
    /// Acquires that ended because another client held the lock, at once or at the end of their wait.
    pub contended: u64,
    /// Acquires that ended for any other reason: the instances, the request, a shutdown.
    pub failed: u64,
    /// How long those that gave a lock took, all together.
    #[cfg_attr(feature = "serde", serde(rename = "acquire_time_ms", serialize_with = "crate::serialized::millis"))]
    pub acquire_time: Duration,
    /// Rounds that were sent to acquire a lock. More than acquires, since waiters try again.
    pub acquire_rounds: u64,
    /// Renewals that a quorum confirmed.
    pub renewals: u64,
    /// Renewals that no quorum confirmed; the lock is lost only if none does before it ends.
    pub failed_renewals: u64,
    /// Locks that were lost because their validity had passed: it was not renewed in time, or not at all.
    pub lost_by_expiry: u64,
    /// Locks that were lost because they had been held for as long as `max_hold` allows.
    pub lost_by_max_hold: u64,
    /// Locks that were lost because their keys were gone.
    pub lost_by_deletion: u64,
    /// Locks that were lost because another client had their keys.
    pub lost_by_takeover: u64,
    /// Locks that guards of this client have now.
    pub held: usize,
    /// Of these, those that are read ([`RwLock`](crate::RwLock)).
    pub read: usize,
    /// How many acquires wait now.
    pub waiting: usize,
    /// Releases that an instance has not confirmed yet, over all instances.
    pub pending_releases: usize,
}

pub(crate) fn stats(shared: &Shared) -> ClientStats {
    let counters = &shared.counters;
    ClientStats {
        acquired: counters.acquired.get(),
        handed_over: counters.handed_over.get(),
        contended: counters.contended.get(),
        failed: counters.failed.get(),
        acquire_time: Duration::from_micros(counters.acquire_micros.load(Relaxed)),
        acquire_rounds: counters.rounds.get(),
        renewals: counters.renewals.get(),
        failed_renewals: counters.failed_renewals.get(),
        lost_by_expiry: counters.expired.get(),
        lost_by_max_hold: counters.max_hold.get(),
        lost_by_deletion: counters.gone.get(),
        lost_by_takeover: counters.taken_over.get(),
        held: shared.keep_alive.held(),
        read: shared.keep_alive.read(),
        waiting: shared.slots.all_waiting(),
        pending_releases: shared.releaser.pending().iter().sum(),
    }
}
