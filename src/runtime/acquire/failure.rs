//! Why an attempt did not win a lease.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::instance::Claim;
use crate::protocol::{ClientId, ClocksApart, Round, RoundFailure};
use crate::runtime::client_task::RuntimeEnded;

/// Why there is no lease.
#[derive(Clone, Debug)]
pub(crate) enum AcquireFailure {
    /// The client was shut down.
    ShutDown,
    /// The runtime of the client has ended.
    RuntimeEnded,
    /// This is not the process in which the client was built.
    Forked,
    /// No value could be drawn.
    NoRandomness(Arc<io::Error>),
    /// The client's wall clock and the instances' are too far apart to propose a token (P12).
    ClocksApart(ClocksApart),
    /// The round was lost.
    RoundLost(Box<Round>),
    /// Another caller of this client has it, or waits for it (P24).
    HeldHere {
        /// What is held; `None` if it is only waited for.
        by: Option<Arc<Claim>>,
        /// When that ends, unless it is renewed or released.
        expires_in: Option<Duration>,
    },
    /// This client has just released it for this other one (P26).
    PassedOn(ClientId),
    /// It waited for other tries of this client for the same lock for as long as it could.
    QueueTimeout,
    /// It was won, but its caller did not poll until too little validity was left.
    NotPolled,
    /// The wait was over.
    DeadlinePassed {
        /// How long it waited.
        waited: Duration,
        /// Why the last whole try failed.
        last: Box<AcquireFailure>,
    },
}

impl From<RuntimeEnded> for AcquireFailure {
    fn from(RuntimeEnded: RuntimeEnded) -> Self {
        Self::RuntimeEnded
    }
}

impl AcquireFailure {
    /// Others of this client wait for it.
    pub(super) const WAITED_FOR: Self = Self::HeldHere { by: None, expires_in: None };

    /// Whether other clients have the lock or try to get it, as far as it is known.
    pub(super) fn is_of_others(&self) -> bool {
        let round_of_others = |round| {
            let failure = RoundFailure::of(round);
            matches!(failure, RoundFailure::Contended(_) | RoundFailure::SplitVote(_) | RoundFailure::StaleToken)
        };
        match self {
            Self::RoundLost(round) => round_of_others(round),
            Self::HeldHere { .. } | Self::PassedOn(_) | Self::QueueTimeout => true,
            _ => false,
        }
    }

    /// Whether a waiting acquire tries again.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::RoundLost(_) | Self::HeldHere { .. } | Self::QueueTimeout | Self::NotPolled)
    }
}
