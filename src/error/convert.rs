//! Turns what the protocol and the runtime found into the errors of the API.

use std::time::Duration;

use super::acquire::{Final, Passing};
use super::report::{of_obstacles, of_release, of_round};
use super::{AcquireError, ConnectError, ExtendError, HeldBy, ReleaseError, ShutdownError};
use crate::instance::Claim;
use crate::protocol::{ClientId, ClocksApart, Contention, CurrentHolder, Instant, Round, RoundFailure};
use crate::resource::Resource;
use crate::runtime::Shared;
use crate::runtime::acquire::AcquireFailure;
use crate::runtime::extend::ExtendFailure;

/// Why an acquire failed.
pub(crate) fn acquire_error(shared: &Shared, resource: &Resource, failure: AcquireFailure) -> AcquireError {
    match failure {
        AcquireFailure::ShutDown => Final::ShutDown.into(),
        AcquireFailure::RuntimeEnded => Final::RuntimeEnded.into(),
        AcquireFailure::Forked => Final::Forked.into(),
        AcquireFailure::QueueTimeout => Passing::QueueTimeout.into(),
        AcquireFailure::NotPolled => Passing::NotPolled.into(),
        AcquireFailure::NoRandomness(error) => Final::NoRandomness(error).into(),
        AcquireFailure::ClocksApart(ClocksApart { own_us, instances_us }) => {
            Passing::ClocksApart { own_s: own_us / 1_000_000, instances_s: instances_us / 1_000_000 }.into()
        }
        AcquireFailure::HeldHere { by, expires_in } => held_here(shared, resource, by.as_deref(), expires_in),
        AcquireFailure::PassedOn(next) => passed_on(shared, resource, next),
        AcquireFailure::RoundLost(round) => defeat(shared, resource, &round),
        AcquireFailure::DeadlinePassed { waited, last } => {
            AcquireError::DeadlinePassed { waited, last: Box::new(acquire_error(shared, resource, *last)) }
        }
    }
}

fn held_here(shared: &Shared, resource: &Resource, by: Option<&Claim>, expires_in: Option<Duration>) -> AcquireError {
    let of_claim = |claim: &Claim| CurrentHolder::from_value(claim.value.as_bytes());
    let waiting = shared.known_waiters(resource);
    AcquireError::Contended(Box::new(HeldBy {
        resource: resource.display(),
        by: by.map_or_else(|| shared.tokens.shown(), of_claim),
        refused_by: 0,
        instances: shared.quorum.instances(),
        earliest_expiry: expires_in,
        in_this_client: true,
        waiting_here: waiting.here,
        waiting_elsewhere: waiting.elsewhere,
        next: waiting.next.map(|next| next.to_string()),
    }))
}

/// This client has just let it go for another one.
fn passed_on(shared: &Shared, resource: &Resource, next: ClientId) -> AcquireError {
    let waiting = shared.known_waiters(resource);
    AcquireError::Contended(Box::new(HeldBy {
        resource: resource.display(),
        by: CurrentHolder { holder: None, label: None, client: Some(next.to_string()) },
        refused_by: 0,
        instances: shared.quorum.instances(),
        earliest_expiry: None,
        in_this_client: false,
        waiting_here: waiting.here,
        waiting_elsewhere: waiting.elsewhere,
        next: Some(next.to_string()),
    }))
}

fn defeat(shared: &Shared, resource: &Resource, round: &Round) -> AcquireError {
    let reports = || of_round(shared, round);
    let held_by = |contention| Box::new(held_by(shared, resource, contention));
    match RoundFailure::of(round) {
        RoundFailure::Contended(contention) => AcquireError::Contended(held_by(contention)),
        RoundFailure::SplitVote(_) => AcquireError::SplitVote { reports: reports() },
        RoundFailure::NoQuorum => AcquireError::NoQuorum { needed: shared.quorum.votes(), reports: reports() },
        RoundFailure::InQuarantine(remaining) => AcquireError::InQuarantine { remaining, reports: reports() },
        RoundFailure::TooSlow => Passing::TooSlow { reports: reports() }.into(),
        RoundFailure::StaleToken => Passing::StaleToken.into(),
    }
}

fn held_by(shared: &Shared, resource: &Resource, contention: Contention) -> HeldBy {
    let waiting = shared.known_waiters(resource);
    let by = CurrentHolder::from_value(contention.most_named.value.as_deref().unwrap_or_default());
    HeldBy {
        resource: resource.display(),
        next: None,
        by,
        refused_by: contention.refused_by.len(),
        instances: shared.quorum.instances(),
        earliest_expiry: contention.earliest_expiry,
        in_this_client: false,
        waiting_here: waiting.here,
        waiting_elsewhere: waiting.elsewhere,
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
    }
}

/// Why a release is not confirmed.
pub(crate) fn release_error(shared: &Shared, round: &Round) -> ReleaseError {
    ReleaseError::Unconfirmed { reports: of_release(shared, round) }
}

/// Why the wait for connections was in vain.
pub(crate) fn connect_error(shared: &Shared, begun: Instant) -> ConnectError {
    let reports = of_obstacles(shared);
    ConnectError {
        connected: shared.instances.len() - reports.len(),
        needed: shared.quorum.votes(),
        waited: shared.clock.now().saturating_since(begun),
        reports,
    }
}

/// The releases that are pending after a shutdown; `None` if there are none.
pub(crate) fn shutdown_error(shared: &Shared, pending: &[usize]) -> Option<ShutdownError> {
    let unreleased: Vec<(String, usize)> = shared
        .instances
        .iter()
        .zip(pending)
        .filter(|(_, pending)| **pending > 0)
        .map(|(instance, pending)| (instance.address().to_owned(), *pending))
        .collect();
    (!unreleased.is_empty()).then_some(ShutdownError { unreleased })
}
