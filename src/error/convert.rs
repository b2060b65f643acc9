//! Turns what the protocol and the runtime found into the errors of the API.

use std::time::Duration;

use super::acquire::{Final, Passing};
use super::report::{answered, of_obstacles, of_release, of_round};
use super::{
    AcquireError, BadRequest, ConnectError, ExtendError, HeldBy, LeaderError, ReleaseError, ShutdownError, Unreleased,
};
use crate::instance::Claim;
use crate::instance::redis::RedisInstance;
use crate::process::Forked;
use crate::protocol::{Cause, ClocksApart, Contention, CurrentHolder, Instant, Round, RoundFailure};
use crate::resource::Resource;
use crate::runtime::Shared;
use crate::runtime::acquire::AcquireFailure;
use crate::runtime::extend::ExtendFailure;

impl From<Forked> for BadRequest {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

/// Why an acquire failed.
pub(crate) fn acquire_error(shared: &Shared, resource: &Resource, failure: AcquireFailure) -> AcquireError {
    match failure {
        AcquireFailure::ShutDown => Final::ShutDown.into(),
        AcquireFailure::RuntimeEnded => Final::RuntimeEnded.into(),
        AcquireFailure::Forked => Final::Forked.into(),
        AcquireFailure::QueueTimeout => Passing::QueueTimeout.into(),
        AcquireFailure::NotPolled => Passing::NotPolled.into(),
        AcquireFailure::Stalled => Passing::Stalled.into(),
        AcquireFailure::NoRandomness(error) => Final::NoRandomness(error).into(),
        AcquireFailure::ClocksApart(ClocksApart { own_us, instances_us }) => {
            Passing::ClocksApart { own_s: own_us / 1_000_000, instances_s: instances_us / 1_000_000 }.into()
        }
        AcquireFailure::HeldHere { by, expires_in } => {
            AcquireError::Contended(Box::new(held_here(shared, resource, by.as_deref(), expires_in)))
        }
        AcquireFailure::RoundLost(round) => defeat(shared, resource, &round),
        AcquireFailure::DeadlinePassed { waited, last } => {
            AcquireError::DeadlinePassed { waited, last: Box::new(acquire_error(shared, resource, *last)) }
        }
    }
}

/// Who has the lock, as far as this client knows without a request.
fn held_by(shared: &Shared, resource: &Resource, by: CurrentHolder, in_this_client: bool) -> HeldBy {
    let waiting = shared.known_waiters(resource);
    HeldBy {
        resource: resource.display(),
        by,
        refused_by: 0,
        instances: shared.quorum.instances(),
        earliest_expiry: None,
        never_expires: false,
        in_this_client,
        waiting_here: waiting.here,
        waiting_elsewhere: waiting.elsewhere,
        next: waiting.next.map(|next| next.to_string()).filter(|_| in_this_client),
    }
}

fn held_here(shared: &Shared, resource: &Resource, by: Option<&Claim>, expires_in: Option<Duration>) -> HeldBy {
    let of_claim = |claim: &Claim| CurrentHolder::from_value(claim.value.as_bytes());
    let by = by.map_or_else(|| shared.tokens.shown(), of_claim);
    HeldBy { earliest_expiry: expires_in, ..held_by(shared, resource, by, true) }
}

fn refused(shared: &Shared, resource: &Resource, contention: &Contention) -> HeldBy {
    let by = CurrentHolder::from_value(contention.most_named.value.as_deref().unwrap_or_default());
    let (refused_by, earliest_expiry) = (contention.refused_by.len(), contention.earliest_expiry);
    let never_expires = earliest_expiry == Some(Duration::MAX);
    let earliest_expiry = earliest_expiry.filter(|_| !never_expires);
    HeldBy { refused_by, earliest_expiry, never_expires, ..held_by(shared, resource, by, false) }
}

fn defeat(shared: &Shared, resource: &Resource, round: &Round) -> AcquireError {
    let reports = || of_round(shared, round);
    match RoundFailure::of(round) {
        RoundFailure::Contended(contention) => {
            AcquireError::Contended(Box::new(refused(shared, resource, &contention)))
        }
        RoundFailure::SplitVote(_) => AcquireError::SplitVote { reports: reports() },
        RoundFailure::NoQuorum => AcquireError::NoQuorum { needed: shared.quorum.votes(), reports: reports() },
        RoundFailure::InQuarantine(remaining) => AcquireError::InQuarantine { remaining, reports: reports() },
        RoundFailure::TooSlow => Passing::TooSlow { reports: reports() }.into(),
        RoundFailure::StaleToken => Passing::StaleToken.into(),
    }
}

/// Why an extend failed.
pub(crate) fn extend_error(shared: &Shared, failure: ExtendFailure) -> ExtendError {
    match failure {
        ExtendFailure::LeaseLost(round) => {
            ExtendError::Lost { reports: round.map(|round| of_round(shared, &round)).unwrap_or_default() }
        }
        ExtendFailure::Unconfirmed { remaining, round } => {
            ExtendError::Unconfirmed { remaining, reports: of_round(shared, &round) }
        }
        ExtendFailure::WouldShorten => ExtendError::WouldShorten,
        ExtendFailure::ShutDown => ExtendError::ClientUnusable(Final::ShutDown.into()),
        ExtendFailure::RuntimeEnded => ExtendError::ClientUnusable(Final::RuntimeEnded.into()),
        ExtendFailure::Forked => ExtendError::ClientUnusable(Final::Forked.into()),
    }
}

/// Why it is not known who leads.
pub(crate) fn leader_error<T>(shared: &Shared, answers: Vec<Result<T, Cause>>) -> LeaderError {
    LeaderError::Unknown { unknown: answered(shared, answers).1 }
}

/// Why a release is not confirmed.
pub(crate) fn release_error(shared: &Shared, round: &Round) -> ReleaseError {
    ReleaseError::Unconfirmed { reports: of_release(shared, round) }
}

/// Why the wait for connections failed.
pub(crate) fn connect_error(shared: &Shared, begun: Instant) -> ConnectError {
    let reports = of_obstacles(shared);
    ConnectError {
        connected: shared.instances.len() - reports.len(),
        needed: shared.quorum.votes(),
        waited: shared.clock.now().saturating_since(begun),
        reports,
    }
}

/// Why a child of its process cannot shut a client down: nothing is released.
pub(crate) fn not_shut_down(shared: &Shared) -> ShutdownError {
    let unreleased = |instance: &RedisInstance| Unreleased {
        address: instance.address().to_owned(),
        releases: 0,
        cause: Some(Cause::Forked.into()),
    };
    ShutdownError { unreleased: shared.instances.iter().map(unreleased).collect() }
}

/// The releases that are pending after a shutdown, by instance.
pub(crate) fn unreleased(shared: &Shared) -> Vec<Unreleased> {
    let unreleased = |(instance, releases): (&RedisInstance, usize)| {
        let trouble = || instance.status().trouble.map(|trouble| trouble.cause);
        let cause = shared.obstacle(instance).map(Into::into).or_else(trouble);
        Unreleased { address: instance.address().to_owned(), releases, cause }
    };
    let pending = shared.instances.iter().zip(shared.releaser.pending()).filter(|(_, releases)| *releases > 0);
    pending.map(unreleased).collect()
}
