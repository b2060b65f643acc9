//! Why a round was lost: what a caller must be able to distinguish.

use std::time::Duration;

use crate::protocol::instance_set::InstanceSet;
use crate::protocol::round::reply::{Refusal, Reply};
use crate::protocol::round::{Round, TimedReply};

/// The kind of a defeat. "Another client holds it" and "the instances are down" are never the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundFailure {
    /// Another client holds a resource (P31).
    Contended(Contention),
    /// Other clients have votes, and no holder is known: several try at the same moment, and none has a quorum yet.
    SplitVote(Contention),
    /// Too few instances answered.
    NoQuorum,
    /// Too few instances may vote; the longest wait until a quorum may, as far as it is known.
    InQuarantine(Option<Duration>),
    /// The grants came so late that too little validity would have been left.
    TooSlow,
    /// Token proposals were too low, again and again.
    StaleToken,
}

/// The refusals of a round, summed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The instances that refused.
    pub refused_by: InstanceSet,
    /// The refusal that most instances agree on.
    pub most_named: Refusal,
    /// The earliest expiry that a refusal named: before it, trying again is of little use. [`Duration::MAX`] for never.
    pub earliest_expiry: Option<Duration>,
}

impl RoundFailure {
    /// Says why a round was lost. Of no use for a round that was won or is pending.
    pub fn of(round: &Round) -> Self {
        let votes = round.quorum().votes();
        // With more time these would have made a quorum. Without them time was not what mattered.
        if round.is_too_slow() && round.could_grant().len() >= votes {
            return Self::TooSlow;
        }
        let can_answer = round.which(|reply| !matches!(reply, Some(Reply::NotSent(_) | Reply::Unknown(_))));
        if can_answer.len() < votes {
            return Self::NoQuorum;
        }
        let may_vote = round
            .which(|reply| !matches!(reply, Some(Reply::NotSent(_) | Reply::Unknown(_) | Reply::NotAdmitted { .. })));
        if may_vote.len() < votes {
            return Self::InQuarantine(quarantine(round, votes.saturating_sub(may_vote.len())));
        }
        match contention(round) {
            None => Self::StaleToken,
            Some((contention, true)) => Self::Contended(contention),
            Some((contention, false)) => Self::SplitVote(contention),
        }
    }
}

/// What refused a round, and whether that shows a holder of the lock (P31): a quorum names one value, or the rival
/// of the rounds before has not released its votes since.
fn contention(round: &Round) -> Option<(Contention, bool)> {
    let (most_named, times) = round.most_named()?;
    // A plain acquire that finds no value cannot distinguish a key of another type from one that has just gone.
    let tells = most_named.value.is_some() || round.is_repeat();
    let by_quorum = tells && times >= round.quorum().votes();
    let again = round.refusals().find(|refusal| round.has_stayed(refusal)).filter(|_| !by_quorum);
    let contention = Contention {
        refused_by: round.which(|reply| matches!(reply, Some(Reply::Refused(_)))),
        most_named: again.unwrap_or(most_named).clone(),
        earliest_expiry: round.refusals().filter_map(|refusal| refusal.expires_in).min(),
    };
    Some((contention, by_quorum || again.is_some()))
}

/// When the `missing`-th instance in quarantine may vote again; `None` if that is not known.
fn quarantine(round: &Round, missing: usize) -> Option<Duration> {
    let remaining = |answer: &TimedReply| match answer.reply {
        Reply::NotAdmitted { remaining } => Some(remaining),
        _ => None,
    };
    let mut known: Vec<Duration> = round.replies().iter().flatten().filter_map(remaining).flatten().collect();
    known.sort_unstable();
    known.get(missing.saturating_sub(1)).copied()
}
