//! Why a lease ended.

use thiserror::Error;

use super::report::{InstanceReport, Reports, address, of_round};
use crate::protocol::{Cause, CurrentHolder};
use crate::runtime::Shared;
use crate::runtime::held_lease::LeaseEnd;

/// Why a lease ended. It never comes back: stop what it protects.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its validity has passed: it was not renewed, or no quorum confirmed it in time.
    #[error("the validity of the lease has passed{}", last_try(.reports))]
    Expired {
        /// What each instance answered to the last renewal that failed, if one did.
        reports: Vec<InstanceReport>,
    },
    /// It was held for as long as its `max_hold` allows, and not renewed after that.
    #[error("it was held for as long as its max_hold allows")]
    MaxHold,
    /// So many instances did not have it any more that no quorum can have kept it: it was deleted,
    /// or they were flushed.
    #[error("no quorum can have kept the lease: it is missing on {}", .instances.join(", "))]
    Gone {
        /// The addresses of those instances, and of those that never had it.
        instances: Vec<String>,
    },
    /// Another client has it now: another value has replaced that of its key since the lease was granted, on at least
    /// as many instances as the key is missing from.
    #[error("the lease was taken over by {by} on {}", .instances.join(", "))]
    TakenOver {
        /// Who it is, as far as the stored value shows.
        by: CurrentHolder,
        /// The addresses of the instances that do not have it any more.
        instances: Vec<String>,
    },
    /// The runtime in which the client was built has ended: the lease is not renewed any more. For callbacks only
    /// ([`LeaseView::on_lost`](crate::LeaseView::on_lost)).
    #[error("the runtime in which the client was built has ended, so the lease is not renewed any more")]
    RuntimeEnded,
    /// The client was shut down ([`Redlock::shutdown`](crate::Redlock::shutdown)). The lock is released as soon as its
    /// guard is dropped, and one instance timeout later in any case.
    #[error("the client was shut down")]
    ShutDown,
    /// This is a child, by `fork()`, of the process that has the lease: a lease is never valid in another process.
    #[error("{}", Cause::Forked)]
    Forked,
    /// Its last guard was dropped or released.
    #[error("the lease was given up by its guards")]
    GivenUp,
}

fn last_try(reports: &[InstanceReport]) -> String {
    if reports.is_empty() { String::new() } else { format!("; the last renewal: {}", Reports(reports)) }
}

/// The end of a lease, as the API reports it.
pub(crate) fn loss(shared: &Shared, end: LeaseEnd) -> Loss {
    let keys = match end {
        LeaseEnd::GivenUp => return Loss::GivenUp,
        LeaseEnd::ShutDown => return Loss::ShutDown,
        LeaseEnd::MaxHold => return Loss::MaxHold,
        LeaseEnd::Expired(round) => {
            return Loss::Expired { reports: round.map(|round| of_round(shared, &round)).unwrap_or_default() };
        }
        LeaseEnd::Gone(keys) => keys,
    };
    let instances = keys.on.iter().map(|instance| address(shared, instance)).collect();
    let Some(value) = keys.taken_over_by.as_deref() else {
        return Loss::Gone { instances };
    };
    Loss::TakenOver { by: CurrentHolder::from_value(value), instances }
}
