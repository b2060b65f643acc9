//! Acquires a lease: what is asked for, and why it was not won. Each wait is a task of the client, and so is each single try; those
//! for one lock share a slot.

mod attempt;
pub(crate) mod several;
pub(crate) mod slot;
pub(crate) mod try_acquire;
pub(super) mod uncollected;
pub(crate) mod waiter;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{Access, ClocksApart, FencingToken, Instant, LeaseTerms, Round, RoundFailure, leader_label};
use crate::resource::Resource;
use crate::runtime::held_lease::{HeldLease, NEVER_RENEWED, RENEWED_FOR_EVER, Wish};
use crate::runtime::tasks::RuntimeEnded;

/// What a lock is acquired for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For itself.
    #[default]
    Lock,
    /// As one of several, of which one is enough: its waiters are counted in the queue of all of them (P35).
    Permit,
    /// Beside others, of which all are wanted: where the votes are split it ends, so that they are not kept meanwhile.
    Together,
    /// To lead: its value shows its token and this info to other clients (P36).
    Leadership(Arc<str>),
}

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct AcquireParams {
    pub(crate) resource: Resource,
    pub(crate) access: Access,
    pub(crate) terms: LeaseTerms,
    /// The holder's identity; empty if it has none (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) purpose: Purpose,
}

impl AcquireParams {
    /// What a guard wants that is there at `now`.
    pub(super) fn wish(&self, now: Instant) -> Wish {
        let not_after = self.max_hold.map(|longest| now.saturating_add(longest));
        let renewed_until = if self.renews { not_after.unwrap_or(RENEWED_FOR_EVER) } else { NEVER_RENEWED };
        let ends_at = not_after.map(|not_after| self.terms.valid_until(not_after));
        Wish { terms: self.terms, renewed_until, ends_at }
    }

    /// The label of its value, if that is not the client's (P36).
    pub(super) fn label(&self, token: FencingToken) -> Option<String> {
        match &self.purpose {
            Purpose::Leadership(info) => Some(leader_label(token, info)),
            Purpose::Lock | Purpose::Permit | Purpose::Together => None,
        }
    }

    /// Whether it is repeated until it is known who has the lock (P31).
    pub(super) fn is_fought_out(&self) -> bool {
        self.purpose != Purpose::Together
    }

    /// Whether its value contains its token: then a larger token needs another value, and its lease is not handed over (P36).
    pub(super) const fn names_token(&self) -> bool {
        matches!(self.purpose, Purpose::Leadership(_))
    }

    /// Whether this may take over a lease that another caller of this client gives up (P24). Not a holder, whose own value is
    /// under the keys of its lease, nor a leader, nor a reader.
    pub(super) fn may_take(&self, held: &HeldLease, clock: &dyn Clock) -> bool {
        // Renewed, it will last. Otherwise the next has what the former left of it.
        let terms = self.terms;
        let least = if self.renews { terms.min_remaining() } else { terms.ttl().saturating_sub(terms.ttl() / 10) };
        let may = self.access == Access::Write && self.holder.is_empty() && !self.names_token();
        may && held.terms() == terms && held.remaining(clock) >= least
    }
}

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
    /// It waited for other attempts of this client for as long as it could.
    QueueTimeout,
    /// It was won, but its caller did not poll until too little validity was left.
    NotPolled,
    /// The runtime of the client did not run meanwhile.
    Stalled,
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

    /// Notes that a round was undecided, which tells less than a whole attempt before it that has found a holder; gives what is not
    /// noted any more.
    pub(super) fn note_undecided_in(self, last: &mut Option<Self>) -> Option<Self> {
        let is_known = matches!(last, Some(Self::RoundLost(round)) if matches!(RoundFailure::of(round), RoundFailure::Contended(_)));
        if is_known { Some(self) } else { last.replace(self) }
    }

    /// Whether other clients have the lock or try to get it, as far as it is known.
    pub(super) fn is_of_others(&self) -> bool {
        let round_of_others = |round| {
            let failure = RoundFailure::of(round);
            matches!(failure, RoundFailure::Contended(_) | RoundFailure::SplitVote(_) | RoundFailure::StaleToken)
        };
        match self {
            Self::RoundLost(round) => round_of_others(round),
            Self::HeldHere { .. } | Self::QueueTimeout => true,
            _ => false,
        }
    }

    /// Whether one with a longer ttl might have been won.
    pub(super) fn is_of_its_terms(&self) -> bool {
        matches!(self, Self::RoundLost(round) if RoundFailure::of(round) == RoundFailure::TooSlow)
    }

    /// Whether a waiting acquire tries again.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::RoundLost(_) | Self::HeldHere { .. } | Self::QueueTimeout | Self::NotPolled | Self::Stalled
        )
    }
}
