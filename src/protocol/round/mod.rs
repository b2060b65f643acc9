//! One try on all instances, decided at the quorum-th reply (P2, P4, P5, P9).

pub(super) mod cause;
pub(super) mod failure;
pub(super) mod reply;

use std::time::Duration;

use crate::protocol::fencing::FencingToken;
use crate::protocol::instance_set::{InstanceId, InstanceSet};
use crate::protocol::quorum::{Quorum, Verdict};
use crate::protocol::round::cause::Cause;
use crate::protocol::round::reply::Reply;
use crate::protocol::terms::LeaseTerms;
use crate::protocol::time::Instant;

/// What a round asks of the instances, with the instant after which its victory is worthless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Acquire(LeaseTerms),
    /// The lease's validity before this round: continuity needs the verdict before it (P9).
    Extend(LeaseTerms, Instant),
    Release,
}

/// A reply and how long after the start of the round it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedReply {
    /// The reply.
    pub reply: Reply,
    /// The time since the round was begun.
    pub after: Duration,
}

/// The state of a round: feed it replies as they come and ask for the verdict.
///
/// A verdict, once given, does not change. Replies that come later are still recorded, because
/// they say what must be released.
#[derive(Clone, Debug)]
pub struct Round {
    kind: RequestKind,
    quorum: Quorum,
    started_at: Instant,
    replies: Vec<Option<TimedReply>>,
    verdict: Verdict,
    too_slow: bool,
    /// The token that an acquire proposes, and the largest that it believes to be stored anywhere.
    tokens: Option<(FencingToken, FencingToken)>,
}

impl Round {
    /// Begins an acquire round. `started_at` is read before anything is sent (P2).
    #[must_use]
    pub fn acquire(quorum: Quorum, terms: LeaseTerms, started_at: Instant) -> Self {
        Self::new(RequestKind::Acquire(terms), quorum, started_at)
    }

    /// Begins an extend round for a lease that is valid until `valid_until` (P9).
    #[must_use]
    pub fn extend(quorum: Quorum, terms: LeaseTerms, valid_until: Instant, started_at: Instant) -> Self {
        Self::new(RequestKind::Extend(terms, valid_until), quorum, started_at)
    }

    /// Begins a release round: `Granted` means deleted, `Refused` gone or foreign (P7).
    #[must_use]
    pub fn release(quorum: Quorum, started_at: Instant) -> Self {
        Self::new(RequestKind::Release, quorum, started_at)
    }

    fn new(kind: RequestKind, quorum: Quorum, started_at: Instant) -> Self {
        let replies = vec![None; quorum.instances()];
        Self { kind, quorum, started_at, replies, verdict: Verdict::Pending, too_slow: false, tokens: None }
    }

    /// P12: what is proposed. An instance that reports a larger token than `most_believed` is not
    /// believed, and its vote is lost.
    #[must_use]
    pub fn proposing(mut self, token: FencingToken, most_believed: FencingToken) -> Self {
        self.tokens = Some((token, most_believed));
        self
    }

    /// Records a reply and returns the verdict as of `now`.
    ///
    /// An instance has one vote: a second definite reply of the same instance is a duplicate and
    /// changes nothing; a definite reply replaces an unknown one.
    pub fn on_reply(&mut self, id: InstanceId, reply: Reply, now: Instant) -> Verdict {
        let after = now.saturating_since(self.started_at);
        let reply = self.believed(reply);
        if let Some(slot) = self.replies.get_mut(id.index()) {
            let open = match slot {
                None => true,
                Some(TimedReply { reply: Reply::NotSent(_), .. }) => true,
                // P5: that a later request was not sent says nothing about the one that was.
                Some(TimedReply { reply: Reply::Unknown(_), .. }) => !matches!(reply, Reply::NotSent(_)),
                Some(_) => false,
            };
            if open {
                *slot = Some(TimedReply { reply, after });
            }
        }
        self.verdict(now)
    }

    fn believed(&self, reply: Reply) -> Reply {
        let is_odd = |token: &FencingToken| self.tokens.is_some_and(|(_, most)| *token > most);
        match reply {
            Reply::Stale { stored } if is_odd(&stored) => {
                let told =
                    format!("a fencing token from a clock that reads {} s since 1970", stored.clock_us() / 1_000_000);
                Reply::Unknown(Cause::OddReply(told))
            }
            Reply::Refused(mut refusal) => {
                refusal.token.take_if(|token| is_odd(token));
                Reply::Refused(refusal)
            }
            reply => reply,
        }
    }

    /// The verdict as of `now`: a round that is too late to be of use is lost without more replies.
    pub fn verdict(&mut self, now: Instant) -> Verdict {
        if self.verdict != Verdict::Pending {
            return self.verdict;
        }
        let granted = self.granted().len();
        let outstanding = self.replies.iter().filter(|answer| answer.is_none()).count();
        self.verdict = match self.quorum.tally(granted, outstanding) {
            // P2, P9: counted only if the clock says so when the deciding reply is processed.
            Verdict::Won | Verdict::Pending if self.is_late(now) => {
                self.too_slow = true;
                Verdict::Lost
            }
            verdict => verdict,
        };
        self.verdict
    }

    fn is_late(&self, now: Instant) -> bool {
        self.win_deadline().is_some_and(|end| now >= end)
    }

    /// From when on a victory would come too late; `None` if it never does.
    #[must_use]
    pub fn win_deadline(&self) -> Option<Instant> {
        match self.kind {
            // P2: with less than the least validity left the lease is given back as too slow.
            RequestKind::Acquire(terms) => {
                Some(terms.valid_until(self.started_at).saturating_sub(terms.min_remaining()))
            }
            // P9: continuity, the former validity must not have passed.
            RequestKind::Extend(terms, valid_until) => Some(valid_until.min(terms.valid_until(self.started_at))),
            RequestKind::Release => None,
        }
    }

    /// Until when a lease won by this round is valid.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        match self.kind {
            RequestKind::Acquire(terms) | RequestKind::Extend(terms, _) => terms.valid_until(self.started_at),
            RequestKind::Release => Instant::ZERO,
        }
    }

    /// When it was begun, before anything was sent.
    #[must_use]
    pub const fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Whether the clock, not the votes, lost the round.
    #[must_use]
    pub const fn is_too_slow(&self) -> bool {
        self.too_slow
    }

    /// The votes needed and the number of instances.
    #[must_use]
    pub const fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// The answers so far, one place for each configured instance.
    #[must_use]
    pub fn replies(&self) -> &[Option<TimedReply>] {
        &self.replies
    }

    /// The instances that were asked and did not tell, so far.
    #[must_use]
    pub fn in_doubt(&self) -> InstanceSet {
        self.which(|reply| matches!(reply, None | Some(Reply::Unknown(_))))
    }

    /// The instances that granted.
    #[must_use]
    pub fn granted(&self) -> InstanceSet {
        self.which(|reply| matches!(reply, Some(Reply::Granted | Reply::Repaired)))
    }

    /// The instances that may hold the round's key, now or later: all that were asked except
    /// those to which nothing was sent (P5).
    #[must_use]
    pub fn must_release(&self) -> InstanceSet {
        self.which(|reply| reply.is_none_or(Reply::may_hold_key))
    }

    /// As [`must_release`](Self::must_release), of requests of which each instance was sent one copy, over one
    /// connection: a refusal is the answer to that copy, so it set no key, and there is none that comes later (P5).
    #[must_use]
    pub fn must_release_one_copy(&self) -> InstanceSet {
        self.which(|reply| reply.is_none_or(|reply| reply.may_hold_key() && !matches!(reply, Reply::Refused(_))))
    }

    /// The instances whose reply fits; `None` stands for no reply so far.
    fn which(&self, fits: impl Fn(Option<&Reply>) -> bool) -> InstanceSet {
        let replies = self.replies.iter().map(|answer| answer.as_ref().map(|answer| &answer.reply));
        InstanceId::all(self.replies.len()).zip(replies).filter(|(_, reply)| fits(*reply)).map(|(id, _)| id).collect()
    }

    /// The largest stored token if stale proposals alone kept the round from its quorum (P12): the
    /// round is then worth repeating with a larger token.
    #[must_use]
    pub fn stale_token(&self) -> Option<FencingToken> {
        let stored = |answer: &Option<TimedReply>| match answer.as_ref().map(|answer| &answer.reply) {
            Some(Reply::Stale { stored }) => Some(*stored),
            _ => None,
        };
        let highest = self.replies.iter().filter_map(stored).max()?;
        let could_grant =
            self.which(|reply| matches!(reply, None | Some(Reply::Granted | Reply::Repaired | Reply::Stale { .. })));
        (self.verdict == Verdict::Lost && !self.too_slow && could_grant.len() >= self.quorum.votes()).then_some(highest)
    }

    /// The largest token that any instance has stored, as far as replies show, or will have as the tombstone
    /// of this round's own release; the next proposal goes above it. None if a quorum refused this proposal as ahead of
    /// its clocks: whatever led there is not followed again (P12).
    #[must_use]
    pub fn highest_seen(&self) -> Option<FencingToken> {
        let behind = self.which(|reply| matches!(reply, Some(Reply::Unknown(Cause::ClockBehind { .. }))));
        if self.quorum.is_out_of_reach(behind.len()) {
            return None;
        }
        let seen = |answer: &TimedReply| match &answer.reply {
            Reply::Stale { stored } => Some(*stored),
            Reply::Refused(refusal) => refusal.token,
            _ => None,
        };
        let proposed = self.tokens.map(|(proposed, _)| proposed);
        self.replies.iter().flatten().filter_map(seen).chain(proposed).max()
    }
}
