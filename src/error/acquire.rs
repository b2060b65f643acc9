//! Why a lock was not acquired.

use std::time::Duration;

use thiserror::Error;

use super::report::Reports;
use super::{BadRequest, HeldBy, InstanceReport, told};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a lock was not acquired. After any of these no key stays behind: what may have been set is
/// released in the background, within one instance timeout where the instance can be reached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds a resource: a quorum of instances names one client, or an instance names one that has not let go
    /// since the round before (rule P31).
    #[error("{0}")]
    Contended(Box<HeldBy>),
    /// Undecided: several clients asked at the same moment again and again, and nobody is known to hold the lock. Try again.
    #[error("undecided, others asked for it at the same moment and nobody is known to hold it; try again: {}", Reports(.reports))]
    SplitVote {
        /// What each instance answered in the last round.
        reports: Vec<InstanceReport>,
    },
    /// Too few instances answered. This is a failure of the instances, not contention.
    #[error("no quorum, {needed} of {} instances must answer: {}", .reports.len(), Reports(.reports))]
    NoQuorum {
        /// The votes needed.
        needed: usize,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// Too many instances may have forgotten locks and sit out their quarantine.
    #[error("too few instances may vote{}: {}", wait(*.remaining), Reports(.reports))]
    InQuarantine {
        /// How long until enough of them may vote, as far as it is known.
        remaining: Option<Duration>,
        /// What each instance answered.
        reports: Vec<InstanceReport>,
    },
    /// The grants came so late that too little of the ttl would have been left.
    #[error("too slow, too little of the ttl was left when all was granted; use a longer ttl, nearer instances or fewer names{}", told(.reports))]
    TooSlow {
        /// What each instance answered; empty where the first of several locks had aged by the time of the last.
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
    /// The client was shut down; what was sent before is released.
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

    /// Its class for who counts failures, the same for every instance and lock.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Contended(_) => "contended",
            Self::SplitVote { .. } => "split_vote",
            Self::NoQuorum { .. } => "no_quorum",
            Self::InQuarantine { .. } => "in_quarantine",
            Self::TooSlow { .. } => "too_slow",
            Self::StaleToken => "stale_token",
            Self::QueueTimeout => "queue_timeout",
            Self::NotPolled => "not_polled",
            Self::ClocksApart { .. } => "clocks_apart",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::BadRequest(_) => "bad_request",
            Self::ShutDown => "shut_down",
            Self::RuntimeEnded => "runtime_ended",
            Self::Forked => "forked",
            Self::NoRandomness(_) => "no_randomness",
        }
    }

    /// Who holds it: as the only try found, or the last one before the wait was over. `None` if nobody is known to, and the
    /// instances, the request or other tries at the same moment were the reason.
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

    /// Whether somebody holds it, and nothing else was the reason: what is to be done once is being done.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.held_by().is_some()
    }
}

fn wait(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |wait| format!(" for another {wait:.1?}"))
}
