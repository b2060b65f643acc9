//! What can go wrong, operation by operation, and on which instance.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::protocol::{CurrentHolder, QuorumError, TtlError};
use crate::resource::ResourceError;

mod convert;
mod loss;
mod report;

pub(crate) use convert::{acquire_error, connect_error, extend_error, release_error, shutdown_error};
pub use loss::Loss;
pub(crate) use loss::loss;
use report::Reports;
pub use report::{InstanceAnswer, InstanceReport};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Who stands in the way of an acquire, who gets the lock next, and how many wait.
///
/// ```no_run
/// # async fn f(redlock: redquorum::Redlock) {
/// use redquorum::AcquireError;
/// if let Err(AcquireError::Contended(held_by)) = redlock.lock("report").try_acquire().await {
///     println!("{} has it, {} wait here and {} elsewhere", held_by.by, held_by.waiting_here, held_by.waiting_elsewhere);
///     if held_by.next.as_deref() == Some(&*redlock.client_id()) {
///         println!("it comes to this client next");
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// The resource that is taken.
    pub resource: String,
    /// Who has it, as far as the stored value tells.
    pub by: CurrentHolder,
    /// How many instances refused; none was asked if it is held in this client.
    pub refused_by: usize,
    /// How many instances there are.
    pub instances: usize,
    /// When the first of the keys in the way expires, unless it is renewed or released before.
    pub earliest_expiry: Option<Duration>,
    /// Whether somebody of this very client has the resource, or waits for it.
    pub in_this_client: bool,
    /// How many of this client wait for exactly these resources, in the order in which they came.
    pub waiting_here: usize,
    /// How many other clients have told this one that they wait for it. They tell the one that has it, or gets it next,
    /// so it is zero elsewhere, as it is without [`order_between_clients`](crate::Builder::order_between_clients).
    pub waiting_elsewhere: usize,
    /// The id of the client that gets it next, as far as it is known ([`Redlock::client_id`](crate::Redlock::client_id)): for which
    /// it is kept, or, of those who wait for a lock that this client has, the first; this very client, if somebody waits here.
    pub next: Option<String>,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, by, refused_by, instances, .. } = self;
        match self.earliest_expiry {
            Some(left) if self.in_this_client => {
                write!(f, "{resource:?} is held in this client, by {by} (valid for {left:.1?})")?;
            }
            None if self.in_this_client => write!(f, "{resource:?} is waited for in this client")?,
            earliest => {
                write!(f, "{resource:?} is held by {by} ({refused_by} of {instances} instances refused")?;
                earliest.map_or(Ok(()), |expiry| write!(f, ", the earliest key expires in {expiry:.1?}"))?;
                write!(f, ")")?;
            }
        }
        match (self.waiting_here, self.waiting_elsewhere) {
            (0, 0) => Ok(()),
            (here, 0) => write!(f, "; {here} wait in this client"),
            (here, elsewhere) => write!(f, "; {here} wait in this client, {elsewhere} elsewhere"),
        }
    }
}

/// Why a lock was not acquired. After any of these no key stays behind: what may have been set is
/// released in the background, within one instance timeout where the instance can be reached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds a resource.
    #[error("{0}")]
    Contended(Box<HeldBy>),
    /// Several clients hold minorities and nobody has a quorum; the next try settles it.
    #[error("nobody has a quorum, several clients held some instances each: {0}")]
    SplitVote(Box<HeldBy>),
    /// Too few instances answered. This is a failure of the instances, not contention.
    #[error("no quorum, {needed} of {} instances must answer: {}", .reports.len(), Reports(.reports))]
    NoQuorum {
        /// The votes needed.
        needed: usize,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// Too many instances may have forgotten locks and sit out their quarantine.
    #[error("too few instances may vote{}: {}", Wait(*.remaining), Reports(.reports))]
    InQuarantine {
        /// How long until enough of them may vote, as far as it is known.
        remaining: Option<Duration>,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// The grants came so late that too little of the ttl would have been left.
    #[error("too slow, no quorum had granted while enough of the ttl was left; use a longer ttl or nearer instances: {}", Reports(.reports))]
    TooSlow {
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// Other clients took larger fencing tokens again and again; the next try proposes a larger one.
    #[error("the proposed fencing token was overtaken again and again; try again")]
    StaleToken,
    /// Other tries of this client, for the same lock or hundreds of others, were under way all the time; nothing was sent.
    #[error("other tries of this client for the same lock, or for hundreds of others, were under way all the time")]
    QueueTimeout,
    /// The lock was won, but its future was not polled until too little of the ttl was left; it was
    /// released.
    #[error(
        "the lock was won, but the future of the acquire was not polled until too little of the ttl was left; poll it"
    )]
    NotPolled,
    /// This machine's wall clock and the one that the instances agree on are more than a day apart. Fencing
    /// tokens come from clocks, and one that is far ahead would stand in the way of everybody, so
    /// nothing was sent.
    #[error(
        "this machine's clock ({own_s} s since 1970) and the instances' ({instances_s} s) are more than a day apart; \
         set the one that is wrong"
    )]
    ClocksApart {
        /// What the own wall clock reads, in seconds since the Unix epoch.
        own_s: u64,
        /// What the instances' read.
        instances_s: u64,
    },
    /// The wait was over before the lock could be had.
    #[error("not acquired after waiting {waited:.1?}; the last try: {last}")]
    DeadlinePassed {
        /// How long it waited.
        waited: Duration,
        /// Why the last whole try failed.
        #[source]
        last: Box<AcquireError>,
    },
    /// The request can never succeed as it is; nothing was sent.
    #[error("bad request: {0}")]
    BadRequest(#[from] BadRequest),
    /// The client was shut down; nothing was sent.
    #[error("the client was shut down")]
    ShutDown,
    /// The tokio runtime in which the client was built has ended; what may have been sent expires.
    #[error("the runtime in which the client was built has ended; build a client in the one that runs")]
    RuntimeEnded,
    /// This process was forked from the one in which the client was built; nothing was sent.
    #[error("the client was built in another process, before a fork; build one in this process")]
    Forked,
    /// The operating system gave no random bytes; nothing was sent.
    #[error("the operating system gave no random bytes")]
    NoRandomness(#[source] Source),
}

impl AcquireError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::BadRequest(_) | Self::ShutDown | Self::RuntimeEnded | Self::Forked | Self::NoRandomness(_)
        )
    }
}

struct Wait(Option<Duration>);

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |wait| write!(f, " for another {wait:.1?}"))
    }
}

/// Why work under a lock did not come to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work was not begun.
    #[error("the work was not begun: {0}")]
    Acquire(#[from] AcquireError),
    /// The lease was lost; the work was dropped where it waited.
    #[error("the work was dropped: {0}")]
    Lost(#[source] Loss),
}

impl RunError {
    /// Whether the same call may succeed later. Work that was dropped may have done a part.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_retryable(),
            Self::Lost(_) => true,
        }
    }
}

/// Why a lease was not extended. The keys are as they were, or live longer; nothing was deleted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is lost: its validity has passed. It will not come back; stop what it protects.
    #[error("the lease is lost, its validity has passed: {}", Reports(.reports))]
    Lost {
        /// What each instance answered, if they were asked.
        reports: Vec<InstanceReport>,
    },
    /// No quorum confirmed it. The lease stays valid as long as it was; try again until then.
    #[error("not extended, no quorum confirmed it; still valid for {remaining:.1?}: {}", Reports(.reports))]
    Unconfirmed {
        /// How long the lease is still valid.
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
}

impl ExtendError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unconfirmed { .. })
    }
}

/// Why it is not known that a lock was released. It is not relied on any more in any case: what is
/// left is deleted in the background, or expires.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Too few instances answered.
    #[error("not confirmed by a quorum, deleting goes on in the background: {}", Reports(.reports))]
    Unconfirmed {
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
}

impl ReleaseError {
    /// Whether calling again may help: never, the release goes on by itself.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// A request that can never succeed as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The resources.
    #[error(transparent)]
    Resources(#[from] ResourceError),
    /// The holder's identity is too long: it is stored with every lock.
    #[error("the holder's identity has {length} bytes; at most {most} are allowed")]
    HolderTooLong {
        /// Its length in bytes.
        length: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The ttl protects nothing.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// The ttl is above the client's `max_ttl`.
    #[error("a ttl of {ttl:?} is above max_ttl, {max_ttl:?}; raise max_ttl on every client of these instances")]
    TtlAboveMax {
        /// The ttl.
        ttl: Duration,
        /// The client's `max_ttl`.
        max_ttl: Duration,
    },
}

/// A client that cannot be built as configured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of instances or the quorum.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// An address cannot be read.
    #[error("the address of instance {index} (counted from 0) cannot be used: {reason}")]
    BadAddress {
        /// Its place in the list.
        index: usize,
        /// What is wrong with it.
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
    /// A duration is longer than instances can be asked for.
    #[error("{setting} is above {} days, which is the longest that can be asked for", .most.as_secs() / 86_400)]
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
}

/// No quorum of instances could be connected in time.
#[derive(Debug, Error)]
#[error("only {connected} of the {needed} instances needed were connected after {waited:.1?}: {}", Reports(.reports))]
#[non_exhaustive]
pub struct ConnectError {
    /// How many were connected.
    pub connected: usize,
    /// The votes needed.
    pub needed: usize,
    /// How long it waited.
    pub waited: Duration,
    /// What stands between this client and each instance that is not connected.
    pub reports: Vec<InstanceReport>,
}

/// Some keys could not be released before the limit; they expire by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not everything could be released in time, the rest expires: {}", Unreleased(.unreleased))]
#[non_exhaustive]
pub struct ShutdownError {
    /// For each such instance its address and how many releases are pending on it.
    pub unreleased: Vec<(String, usize)>,
}

struct Unreleased<'a>(&'a [(String, usize)]);

impl fmt::Display for Unreleased<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, count)) in self.0.iter().enumerate() {
            write!(f, "{}{address} has {count} pending", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_succeed_later_is_retryable() {
        let reports = Vec::new;
        let later = [
            AcquireError::StaleToken,
            AcquireError::NotPolled,
            AcquireError::QueueTimeout,
            AcquireError::TooSlow { reports: reports() },
            AcquireError::InQuarantine { remaining: None, reports: reports() },
        ];
        let never = [AcquireError::ShutDown, AcquireError::RuntimeEnded, AcquireError::Forked];
        for (errors, retryable) in [(Vec::from(later), true), (Vec::from(never), false)] {
            for error in errors {
                assert_eq!(error.is_retryable(), retryable, "{error}");
                assert_eq!(RunError::from(error).is_retryable(), retryable);
            }
        }
        assert!(RunError::Lost(Loss::GivenUp).is_retryable());
        assert!(ExtendError::Unconfirmed { remaining: Duration::ZERO, reports: reports() }.is_retryable());
        assert!(!ExtendError::Lost { reports: reports() }.is_retryable());
        assert!(!ExtendError::WouldShorten.is_retryable());
        assert!(!ReleaseError::Unconfirmed { reports: reports() }.is_retryable());
    }
}
