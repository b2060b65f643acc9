//! Why a lock was not acquired.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::report::Reports;
use super::{BadRequest, HeldBy, InstanceReport, listed};
use crate::protocol::Cause;

/// Why a lock was not acquired. After any of these no key stays behind: what may have been set is
/// released in the background, within one instance timeout where the instance can be reached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another client holds the lock: a quorum of instances names it, or an instance names one that has not released
    /// since the round before (rule P31).
    #[error("{0}")]
    Contended(Box<HeldBy>),
    /// Undecided: several clients tried at the same moments, and none is known to hold the lock. Try again.
    #[error("undecided: several clients tried at the same moment, and no holder is known; try again: {}", Reports(.reports))]
    SplitVote {
        /// What each instance answered in the last round.
        reports: Vec<InstanceReport>,
    },
    /// Too few instances answered. This is a failure of the instances, not contention.
    #[error("no quorum: {needed} of {} instances must answer: {}", .reports.len(), Reports(.reports))]
    NoQuorum {
        /// The votes needed.
        needed: usize,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// Too many instances are in quarantine, since they may have forgotten locks.
    #[error("too few instances may vote{}: {}", wait(*.remaining), Reports(.reports))]
    InQuarantine {
        /// How long until enough of them may vote, as far as it is known.
        remaining: Option<Duration>,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// This attempt failed for a reason that passes: try again. [`kind`](Self::kind) names the reason.
    #[error("{0}")]
    TryAgain(PassingReason),
    /// The limit of the wait passed before the lock was free.
    #[error("not acquired after waiting {waited:.1?}; the last attempt: {last}")]
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
    /// No attempt of this client can succeed any more. [`kind`](Self::kind) names the reason.
    #[error("{0}")]
    ClientUnusable(FinalReason),
}

/// Why an attempt failed that may be made again, in words.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct PassingReason(#[from] Passing);

/// Why a client is of no use any more, in words.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct FinalReason(#[from] Final);

#[derive(Debug, Error)]
pub(crate) enum Passing {
    /// The grants came so late that too little of the ttl would have been left.
    #[error("too slow: too little of the ttl was left when the grants came; use a longer ttl, nearer instances or fewer names{}", listed(.reports))]
    TooSlow {
        /// What each instance answered; empty where the first of several locks had aged by the time of the last.
        reports: Vec<InstanceReport>,
    },
    /// Other clients took larger fencing tokens again and again; the next attempt proposes a larger one.
    #[error("the proposed fencing token was overtaken again and again; try again")]
    StaleToken,
    /// Nothing was sent.
    #[error(
        "nothing was sent: other attempts of this client, for this lock or for hundreds of others, were under way all the time"
    )]
    QueueTimeout,
    /// It was released.
    #[error("the lock was won, but its future was not polled until too little of the ttl was left; poll it")]
    NotPolled,
    /// What was sent, if anything was, is released once it runs again.
    #[error(
        "the runtime in which the client was built did not run meanwhile; a current-thread runtime runs only while it is blocked on"
    )]
    Stalled,
    /// Fencing tokens come from clocks, and one that is far ahead would block all clients, so nothing was sent. In seconds since the
    /// Unix epoch.
    #[error(
        "this machine's clock ({own_s} s since 1970) and the instances' ({instances_s} s) are more than a day apart; \
         set the one that is wrong"
    )]
    ClocksApart { own_s: u64, instances_s: u64 },
}

#[derive(Debug, Error)]
pub(crate) enum Final {
    /// What was sent before is released.
    #[error("the client was shut down")]
    ShutDown,
    /// What may have been sent expires.
    #[error("the runtime in which the client was built has ended; build a client in the one that runs")]
    RuntimeEnded,
    /// Nothing was sent.
    #[error("{}", Cause::Forked)]
    Forked,
    /// Nothing was sent.
    #[error("the operating system gave no random bytes")]
    NoRandomness(#[source] Arc<io::Error>),
}

impl FinalReason {
    /// One word for it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.0 {
            Final::ShutDown => "shut_down",
            Final::RuntimeEnded => "runtime_ended",
            Final::Forked => "forked",
            Final::NoRandomness(_) => "no_randomness",
        }
    }
}

impl From<Passing> for AcquireError {
    fn from(reason: Passing) -> Self {
        Self::TryAgain(PassingReason(reason))
    }
}

impl From<Final> for AcquireError {
    fn from(reason: Final) -> Self {
        Self::ClientUnusable(FinalReason(reason))
    }
}

impl AcquireError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, Self::BadRequest(_) | Self::ClientUnusable(_))
    }

    /// Every [`kind`](Self::kind) but `contended`.
    #[cfg(feature = "metrics")]
    pub(crate) const FAILURES: &str = "split_vote no_quorum in_quarantine too_slow stale_token queue_timeout not_polled stalled \
        clocks_apart deadline_passed bad_request shut_down runtime_ended forked no_randomness";

    /// One word for logs and metrics, the same for every instance and lock: `contended`, `split_vote`, `no_quorum`, `in_quarantine`,
    /// `deadline_passed` or `bad_request`; of [`TryAgain`](Self::TryAgain) `too_slow`, `stale_token`, `queue_timeout`, `not_polled`,
    /// `stalled` or `clocks_apart`; of [`ClientUnusable`](Self::ClientUnusable) `shut_down`, `runtime_ended`, `forked` or `no_randomness`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Contended(_) => "contended",
            Self::SplitVote { .. } => "split_vote",
            Self::NoQuorum { .. } => "no_quorum",
            Self::InQuarantine { .. } => "in_quarantine",
            Self::TryAgain(PassingReason(Passing::TooSlow { .. })) => "too_slow",
            Self::TryAgain(PassingReason(Passing::StaleToken)) => "stale_token",
            Self::TryAgain(PassingReason(Passing::QueueTimeout)) => "queue_timeout",
            Self::TryAgain(PassingReason(Passing::NotPolled)) => "not_polled",
            Self::TryAgain(PassingReason(Passing::Stalled)) => "stalled",
            Self::TryAgain(PassingReason(Passing::ClocksApart { .. })) => "clocks_apart",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::BadRequest(_) => "bad_request",
            Self::ClientUnusable(reason) => reason.kind(),
        }
    }

    /// Who holds the lock, as the last try found. `None` if no client is known to, and the
    /// instances, the request or other tries at the same moment were the cause.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// # let _guard = redlock.lock("order:42").acquire().await?;
    /// let lock = redlock.lock("order:42").wait_at_most(Duration::from_millis(50));
    /// let status = match lock.acquire().await {
    ///     Ok(_guard) => 200,
    ///     Err(error) => match error.held_by() {
    ///         Some(held_by) => { println!("held by {}", held_by.by); 409 }
    ///         None => { println!("{error}"); 503 }
    ///     },
    /// };
    /// assert_eq!(status, 409);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn held_by(&self) -> Option<&HeldBy> {
        match self {
            Self::Contended(held_by) => Some(held_by),
            Self::DeadlinePassed { last, .. } => last.held_by(),
            _ => None,
        }
    }

    /// Whether another client holds the lock, and there was no other cause.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.held_by().is_some()
    }
}

fn wait(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |wait| format!(" for another {wait:.1?}"))
}
