//! Why a round was lost: what a caller must be able to distinguish.

use std::time::Duration;

use crate::protocol::instance_set::InstanceSet;
use crate::protocol::round::reply::{Refusal, Reply};
use crate::protocol::round::{Round, TimedReply};

/// The kind of a defeat. "Somebody holds it" and "the instances are down" are never the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundFailure {
    /// Somebody else holds a resource.
    Contended(Contention),
    /// Several clients hold minorities and nobody has a quorum.
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
    /// The earliest expiry that a refusal named: before it, trying again is of little use.
    pub earliest_expiry: Option<Duration>,
}

impl RoundFailure {
    /// Says why a round was lost. Of no use for a round that was won or is pending.
    #[must_use]
    pub fn of(round: &Round) -> Self {
        let votes = round.quorum().votes();
        // With more time these would have made a quorum. Without them time was not what mattered.
        let late =
            round.which(|reply| matches!(reply, None | Some(Reply::Granted | Reply::Repaired | Reply::Stale { .. })));
        if round.is_too_slow() && late.len() >= votes {
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
        let refusals: Vec<&Refusal> = round.replies().iter().flatten().filter_map(refusal).collect();
        let Some(contention) = contention(round, &refusals) else {
            return Self::StaleToken;
        };
        // Those that did not say what stands in the way may have the same holder's key.
        let silent = |reply: Option<&Reply>| {
            reply.is_none_or(|reply| matches!(reply, Reply::NotSent(_) | Reply::Unknown(_) | Reply::NotAdmitted { .. }))
        };
        let open = round.which(silent).len();
        let named = refusals.iter().filter(|refusal| same_obstacle(refusal, &contention.most_named)).count();
        if named + open >= votes { Self::Contended(contention) } else { split_or_contended(contention, round, named) }
    }
}

/// A split needs at least two parties: two values that refuse, or a value and our own grants.
fn split_or_contended(contention: Contention, round: &Round, named: usize) -> RoundFailure {
    let other_parties = contention.refused_by.len() > named || !round.granted().is_empty();
    if other_parties { RoundFailure::SplitVote(contention) } else { RoundFailure::Contended(contention) }
}

const fn refusal(answer: &TimedReply) -> Option<&Refusal> {
    match &answer.reply {
        Reply::Refused(refusal) => Some(refusal),
        _ => None,
    }
}

fn same_obstacle(a: &Refusal, b: &Refusal) -> bool {
    a.resource == b.resource && a.value == b.value
}

fn contention(round: &Round, refusals: &[&Refusal]) -> Option<Contention> {
    let agreeing = |named: &Refusal| refusals.iter().filter(|other| same_obstacle(other, named)).count();
    let most_named = refusals.iter().max_by_key(|named| agreeing(named))?;
    Some(Contention {
        refused_by: round.which(|reply| matches!(reply, Some(Reply::Refused(_)))),
        most_named: (*most_named).clone(),
        earliest_expiry: refusals.iter().filter_map(|refusal| refusal.expires_in).min(),
    })
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
