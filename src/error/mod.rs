//! What can go wrong, operation by operation, and on which instance.

use std::time::Duration;

use thiserror::Error;

use crate::protocol::{Cause, QuorumError, TtlError};
use crate::resource::ResourceError;

mod acquire;
mod convert;
mod held_by;
mod loss;
mod report;

pub use acquire::{AcquireError, FinalReason, PassingReason};
pub(crate) use acquire::{Final, Passing};
pub(crate) use convert::{
    acquire_error, connect_error, extend_error, leader_error, not_shut_down, release_error, unreleased,
};
pub use held_by::HeldBy;
pub use loss::Loss;
pub(crate) use loss::loss;
use report::Reports;
pub(crate) use report::answered;
pub use report::{InstanceAnswer, InstanceReport, Unanswered, Unreleased};

/// Why work under a lock did not end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work was not begun.
    #[error("the work was not begun: {0}")]
    Acquire(#[from] AcquireError),
    /// The lease was lost; the work was dropped where it waited, or, if it blocked, what it returned.
    #[error("the lock was lost before the work had ended: {0}")]
    Lost(#[source] Loss),
}

impl RunError {
    /// Whether the same call may succeed later. Work that was dropped may have done a part.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_retryable(),
            Self::Lost(loss) => !matches!(loss, Loss::ShutDown | Loss::RuntimeEnded | Loss::Forked),
        }
    }

    /// As [`AcquireError::held_by`]; `None` if the lock was acquired, and lost.
    #[must_use]
    pub fn held_by(&self) -> Option<&HeldBy> {
        match self {
            Self::Acquire(error) => error.held_by(),
            Self::Lost(_) => None,
        }
    }
}

/// Why a lease was not extended. The keys are as they were, or live longer; nothing was deleted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is lost. It will not come back; stop what it protects. [`LeaseView::lost`](crate::LeaseView::lost) says why.
    #[error("the lease is lost and will not come back{}", listed(.reports))]
    Lost {
        /// What each instance answered, if a request was sent.
        reports: Vec<InstanceReport>,
    },
    /// No quorum confirmed it. The lease stays valid as long as it was; try again until then.
    #[error("not extended, no quorum confirmed it{}: {}", still_valid(*.remaining), Reports(.reports))]
    Unconfirmed {
        /// How long the lease is still valid; zero for one that was to be attached.
        remaining: Duration,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// The ttl is below the lease's own, which could end it before its validity.
    #[error("an extend cannot shorten a lease; release it instead")]
    WouldShorten,
    /// The request can never succeed as it is; nothing was sent.
    #[error("bad request: {0}")]
    BadRequest(#[from] BadRequest),
    /// No lease can be attached by this client any more: it was shut down, its runtime has ended, or this is another process.
    #[error("{0}")]
    ClientUnusable(FinalReason),
}

impl ExtendError {
    /// Its class for who counts failures.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::WouldShorten => "would_shorten",
            Self::BadRequest(_) => "bad_request",
            Self::ClientUnusable(reason) => reason.kind(),
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unconfirmed { .. })
    }
}

/// Why a release is not confirmed. The lock is not relied on any more in any case: its keys are
/// deleted in the background, or expire.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Too few instances answered.
    #[error("not confirmed by a quorum; it continues in the background: {}", Reports(.reports))]
    Unconfirmed {
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// The request can never succeed as it is; nothing was sent.
    #[error("bad request: {0}")]
    BadRequest(#[from] BadRequest),
    /// The runtime in which the client was built has ended.
    #[error(
        "the runtime in which the client was built has ended: nothing is released, and the keys expire with their ttl"
    )]
    RuntimeEnded,
}

impl ReleaseError {
    /// Whether calling again may help: never, the release continues by itself.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// A request that can never succeed as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The resource.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// This is a child, by `fork()`, of the process that built the client: connections and locks stay with that one.
    #[error("{}", Cause::Forked)]
    Forked,
    /// The holder's identity is too long: it is stored with every lock.
    #[error("the holder's identity has {length} bytes; at most {most} are allowed")]
    HolderTooLong {
        /// Its length in bytes.
        length: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The holder reads the lock, or writes it, and would wait until it has released it itself.
    #[error(
        "the holder {holder:?} would wait for itself: it has the lock already, and readers become no writers; release it first"
    )]
    WaitsForItself {
        /// The holder.
        holder: String,
    },
    /// A semaphore cannot have so many permits.
    #[error("{given} permits were asked for; a semaphore has 1 to {most}")]
    Permits {
        /// How many were given.
        given: u32,
        /// The most that are possible.
        most: u32,
    },
    /// The info of a candidate is too long: it is stored with the election.
    #[error("the info of a candidate takes {length} bytes, each `%` and `:` three; at most {most} are possible")]
    InfoTooLong {
        /// How many bytes it takes in a value.
        length: usize,
        /// The most that are possible.
        most: usize,
    },
    /// Keys cannot be kept for so long.
    #[error("{time:?} is longer than keys can be kept, {longest:?}")]
    KeptTooLong {
        /// The time.
        time: Duration,
        /// The longest time.
        longest: Duration,
    },
    /// A lock that is to be kept for a time after its work, by a call that waits.
    #[error("at_least goes with try_run: a call that waits would do the work again when its mark ends")]
    AtLeastWaits,
    /// The ttl protects nothing.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// The ttl is above the client's `max_ttl`.
    #[error(
        "a ttl of {ttl:?} is above max_ttl, {max_ttl:?}; use a shorter one, or raise max_ttl in steps (see 'changing max_ttl' in redquorum::guide::operations)"
    )]
    TtlAboveMax {
        /// The ttl.
        ttl: Duration,
        /// The client's `max_ttl`.
        max_ttl: Duration,
    },
}

/// Why it is not known who leads.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LeaderError {
    /// Too few instances answered, or vote.
    #[error("too few instances answered who leads: {}", joined(.unknown))]
    Unknown {
        /// Those that did not answer, and those in quarantine that have a key.
        unknown: Vec<Unanswered>,
    },
    /// The request can never succeed as it is; nothing was sent.
    #[error("bad request: {0}")]
    BadRequest(#[from] BadRequest),
}

impl LeaderError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// A client that cannot be built as configured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of instances or the quorum.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// The address of an instance cannot be read, or what else is set for it cannot work.
    #[error("the address of instance {} cannot be used: {reason}", .index + 1)]
    BadAddress {
        /// Its place in the list, from 0; the words count from 1.
        index: usize,
        /// What is wrong with it, and what to write.
        reason: String,
    },
    /// Two addresses lead to the same server process, which would then have two votes.
    #[error("the address {address} is given twice; every instance has one vote")]
    DuplicateAddress {
        /// The address.
        address: String,
    },
    /// The default ttl.
    #[error("the default ttl: {0}")]
    Ttl(#[source] BadRequest),
    /// A duration that must not be zero is.
    #[error("{setting} must not be zero")]
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
    /// A duration is longer than instances support.
    #[error("{setting} is above {} hours, the longest that is allowed", .most.as_secs() / 3_600)]
    TooLong {
        /// The name of the setting.
        setting: &'static str,
        /// The longest.
        most: Duration,
    },
    /// Two settings do not go together.
    #[error("{0}")]
    Conflict(String),
    /// The client was not built within a tokio runtime.
    #[error("no tokio runtime is running here; build the client within one")]
    NoRuntime,
    /// The file with the password cannot be used.
    #[cfg(feature = "config")]
    #[error("password_file: {}: {reason}", .path.to_string_lossy().escape_debug())]
    PasswordFile {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The thread of a blocking client could not be started.
    #[error("the thread of the client could not be started: {0}")]
    NoThread(String),
    /// The tokio runtime has no timers. The panic with which it says so is caught, and printed by the panic hook.
    #[error("the tokio runtime has no timers; build it with enable_time() or enable_all()")]
    NoTimers,
    /// The tokio runtime has no sockets. As for timers.
    #[error("the tokio runtime has no sockets; build it with enable_io() or enable_all()")]
    NoNetwork,
}

/// No quorum of instances could be connected in time.
#[derive(Debug, Error)]
#[error("only {connected} of the {needed} instances needed could be used after {waited:.1?}: {}", Reports(.reports))]
#[non_exhaustive]
pub struct ConnectError {
    /// How many were connected.
    pub connected: usize,
    /// The votes needed.
    pub needed: usize,
    /// How long it waited.
    pub waited: Duration,
    /// Why each instance is not connected.
    pub reports: Vec<InstanceReport>,
}

/// A quorum did not confirm the release of each lock before the limit: a lock may still be held, until it expires.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no quorum confirmed in time that each lock is released; a lock may be held until it expires{}", pending(.unreleased))]
#[non_exhaustive]
pub struct ShutdownError {
    /// The instances that have not confirmed releases; empty if attempts had not ended by then.
    pub unreleased: Vec<Unreleased>,
}

/// What instances answered, if they got a request.
fn listed(reports: &[InstanceReport]) -> String {
    if reports.is_empty() { String::new() } else { format!(": {}", Reports(reports)) }
}

fn pending(unreleased: &[Unreleased]) -> String {
    if unreleased.is_empty() { String::new() } else { format!(": {}", joined(unreleased)) }
}

/// Nothing of a lease that is held elsewhere.
fn still_valid(remaining: Duration) -> String {
    if remaining.is_zero() { String::new() } else { format!("; still valid for {remaining:.1?}") }
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_known_now_and_at_the_deadline() {
        let held_by = || Box::new(HeldBy::sample());
        let late = |last| AcquireError::DeadlinePassed { waited: Duration::ZERO, last: Box::new(last) };
        for error in [AcquireError::Contended(held_by()), late(AcquireError::Contended(held_by()))] {
            assert!(error.is_contended() && error.held_by() == Some(&*held_by()));
            assert_eq!(RunError::from(error).held_by(), Some(&*held_by()));
        }
        for error in [
            AcquireError::SplitVote { reports: Vec::new() },
            Passing::QueueTimeout.into(),
            Passing::StaleToken.into(),
            AcquireError::from(Final::ShutDown),
            late(Passing::NotPolled.into()),
        ] {
            assert!(!error.is_contended() && error.held_by().is_none(), "{error}");
        }
        assert_eq!(RunError::Lost(Loss::GivenUp).held_by(), None);
    }

    #[test]
    fn an_instance_where_no_release_of_this_process_is_pending_says_only_why() {
        let said = |releases, cause: Option<Cause>| {
            let unreleased = Unreleased { address: "a:1".to_owned(), releases, cause: cause.map(Into::into) };
            unreleased.to_string()
        };
        assert_eq!(said(0, Some(Cause::Forked)), format!("a:1: {}", Cause::Forked));
        assert_eq!(said(2, None), "a:1 has 2 pending");
        assert_eq!(said(2, Some(Cause::Busy)), format!("a:1 has 2 pending ({})", Cause::Busy));
    }

    #[test]
    fn only_what_may_succeed_later_is_retryable() {
        let reports = Vec::new;
        let later = [
            Passing::StaleToken.into(),
            AcquireError::SplitVote { reports: reports() },
            Passing::NotPolled.into(),
            Passing::QueueTimeout.into(),
            Passing::Stalled.into(),
            Passing::ClocksApart { own_s: 0, instances_s: 100_000 }.into(),
            Passing::TooSlow { reports: reports() }.into(),
            AcquireError::InQuarantine { remaining: None, reports: reports() },
        ];
        let never = [
            AcquireError::from(Final::ShutDown),
            AcquireError::from(Final::RuntimeEnded),
            AcquireError::from(Final::Forked),
        ];
        for (errors, retryable) in [(Vec::from(later), true), (Vec::from(never), false)] {
            for error in errors {
                assert_eq!(error.is_retryable(), retryable, "{error}");
                #[cfg(feature = "metrics")]
                assert!(AcquireError::FAILURES.split(' ').any(|kind| kind == error.kind()), "{error}");
                assert_eq!(RunError::from(error).is_retryable(), retryable);
            }
        }
        assert!(RunError::Lost(Loss::GivenUp).is_retryable());
        assert!(!RunError::Lost(Loss::ShutDown).is_retryable() && !RunError::Lost(Loss::RuntimeEnded).is_retryable());
        assert!(ExtendError::Unconfirmed { remaining: Duration::ZERO, reports: reports() }.is_retryable());
        let lost = ExtendError::Lost { reports: reports() };
        assert!(!lost.is_retryable() && lost.to_string().ends_with("will not come back"), "{lost}");
        assert!(!ExtendError::WouldShorten.is_retryable());
        assert!(!ReleaseError::Unconfirmed { reports: reports() }.is_retryable());
    }
}
