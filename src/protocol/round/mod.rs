//! One try on all instances, decided at the quorum-th reply (P2, P4, P5, P9).

pub(super) mod cause;
pub(super) mod contest;
pub(super) mod failure;
pub(super) mod reply;

use std::time::Duration;

use crate::protocol::client_id::ClientId;
use crate::protocol::fencing::{FencingToken, ProposingClock};
use crate::protocol::instance_set::{InstanceId, InstanceSet};
use crate::protocol::quorum::{Quorum, Verdict};
use crate::protocol::readers::READERS;
use crate::protocol::round::cause::Cause;
use crate::protocol::round::reply::{Refusal, Reply};
use crate::protocol::terms::LeaseTerms;
use crate::protocol::time::Instant;
use crate::protocol::value::Value;

/// Timers count whole milliseconds.
const LEAST_SILENCE: Duration = Duration::from_millis(1);

/// A reply and how long after the start of the round it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedReply {
    /// The reply.
    pub reply: Reply,
    /// The time since the round was begun.
    pub after: Duration,
}

/// What an acquire proposes, and by which clock, which bounds the stored tokens that it believes (P12).
#[derive(Clone, Copy, Debug)]
struct Proposal {
    token: FencingToken,
    clock: ProposingClock,
}

/// The state of a round: feed it replies as they come and read the verdict.
///
/// A verdict, once given, does not change. Replies that come later are still recorded, because
/// they say what must be released.
#[derive(Clone, Debug)]
pub struct Round {
    is_acquire: bool,
    quorum: Quorum,
    started_at: Instant,
    /// Until when a lease won by it is valid.
    valid_until: Instant,
    /// From when on a victory would come too late; `None` if it never does.
    win_deadline: Option<Instant>,
    replies: Vec<Option<TimedReply>>,
    verdict: Verdict,
    too_slow: bool,
    tokens: Option<Proposal>,
    /// The token of an instance alone that was not followed (P12).
    refused_token: Option<FencingToken>,
    /// The rivals of the round before, if this one repeats it under a new value (P31).
    rivals: Vec<Rival>,
    /// A rival that has not released its votes after this holds the lock; `None` if this repeats no other round.
    patience: Option<Duration>,
}

/// A value that refused a round.
#[derive(Clone, Debug)]
struct Rival {
    /// `None` if that is no string, or gone by now.
    value: Option<Vec<u8>>,
    /// When the first round was begun that it refused.
    since: Instant,
}

impl Round {
    /// Begins an acquire round. `started_at` is read before anything is sent (P2).
    pub fn acquire(quorum: Quorum, terms: LeaseTerms, started_at: Instant) -> Self {
        let valid_until = terms.valid_until(started_at);
        // P2: with less than the least validity left the lease is released as too slow.
        let in_time = valid_until.saturating_sub(terms.min_remaining());
        Self { is_acquire: true, ..Self::new(quorum, started_at, valid_until, Some(in_time)) }
    }

    /// Begins an extend round for a lease that is valid until `former` (P9).
    pub fn extend(quorum: Quorum, terms: LeaseTerms, former: Instant, started_at: Instant) -> Self {
        let valid_until = terms.valid_until(started_at);
        // P9: continuity, the former validity must not have passed.
        Self::new(quorum, started_at, valid_until, Some(former.min(valid_until)))
    }

    /// Begins a release round: `Granted` means deleted, `Refused` gone or foreign (P7).
    pub fn release(quorum: Quorum, started_at: Instant) -> Self {
        Self::new(quorum, started_at, Instant::ZERO, None)
    }

    fn new(quorum: Quorum, started_at: Instant, valid_until: Instant, win_deadline: Option<Instant>) -> Self {
        Self {
            is_acquire: false,
            quorum,
            started_at,
            valid_until,
            win_deadline,
            replies: vec![None; quorum.instances()],
            verdict: Verdict::Pending,
            too_slow: false,
            tokens: None,
            refused_token: None,
            rivals: Vec::new(),
            patience: None,
        }
    }

    /// P12: what is proposed, and by which clock. That bounds which tokens of instances are believed.
    #[must_use]
    pub fn proposing(mut self, token: FencingToken, clock: ProposingClock) -> Self {
        self.tokens = Some(Proposal { token, clock });
        self
    }

    /// P31: this round repeats `former`, which was not won. A rival that refuses for longer than `patience`
    /// has not lost. `own` are the values of earlier rounds of the same attempt.
    #[must_use]
    pub fn repeating(mut self, former: &Self, own: &[Value], patience: Duration) -> Self {
        let is_own = |refusal: &Refusal| own.iter().any(|own| refusal.value.as_deref() == Some(own.as_bytes()));
        let rival = |refusal: &Refusal| {
            let since = former.seen_since(refusal).unwrap_or(former.started_at);
            Rival { value: refusal.value.clone(), since }
        };
        self.rivals = former.refusals().filter(|refusal| !is_own(refusal)).map(rival).collect();
        self.patience = Some(patience);
        self
    }

    /// Since when the rival in this refusal has refused each round.
    fn seen_since(&self, refusal: &Refusal) -> Option<Instant> {
        self.rivals.iter().find(|rival| rival.value == refusal.value).map(|rival| rival.since)
    }

    /// P31: whether the rival in this refusal has not released its votes in the time that a losing rival takes for that.
    pub(super) fn has_stayed(&self, refusal: &Refusal) -> bool {
        let since = self.seen_since(refusal).filter(|_| self.may_be_held_by(refusal));
        since.is_some_and(|since| self.started_at >= since.saturating_add(self.patience()))
    }

    /// P31: whether the rival in this refusal can be on so many instances that no other client has a quorum. The key of a
    /// client that has crashed stays on a few, and does not prevent that.
    fn may_be_held_by(&self, refusal: &Refusal) -> bool {
        let is_without = |reply: &Reply| match reply {
            Reply::Granted | Reply::Repaired | Reply::Stale { .. } => true,
            Reply::Refused(other) => other.value != refusal.value,
            Reply::Kept { .. } | Reply::NotAdmitted { .. } | Reply::NotSent(_) | Reply::Unknown(_) => false,
        };
        let may_have_it = self.which(|reply| !reply.is_some_and(is_without));
        self.quorum.is_out_of_reach(may_have_it.len())
    }

    /// P31: how long until it shows whether a rival of this round and of the one before stays.
    pub(super) fn shows_in(&self, now: Instant) -> Option<Duration> {
        let rivals = self.refusals().filter(|refusal| self.may_be_held_by(refusal));
        let since = rivals.filter_map(|refusal| self.seen_since(refusal)).min()?;
        Some(since.saturating_add(self.patience()).saturating_since(now))
    }

    fn patience(&self) -> Duration {
        self.patience.unwrap_or(Duration::MAX)
    }

    /// Whether it repeats another round under a new value (P31).
    pub(super) const fn is_repeat(&self) -> bool {
        self.patience.is_some()
    }

    /// P31: from when on silent instances are not waited for any more, neither for a quorum with a minority of votes
    /// in hand, nor to learn whether a quorum names one rival. `None` if no rival is known, or if fewer than a
    /// quorum have answered (then no other round is won either). `usual` is how long an instance usually takes.
    pub fn hopeless_at(&self, usual: impl Fn(InstanceId) -> Option<Duration>) -> Option<Instant> {
        if !self.is_acquire || self.refusals().next().is_none() {
            return None;
        }
        let answered = self.definite().count();
        if self.verdict == Verdict::Pending && answered < self.quorum.votes() {
            return None;
        }
        let usual = self.outstanding().iter().filter_map(usual).max().unwrap_or_default();
        let slowest = self.definite().map(|answer| answer.after).max().unwrap_or_default();
        // Two round trips of silence after the last answer; an instance that is farther away gets as many of its own.
        let patience = slowest.max(usual).saturating_mul(2).max(LEAST_SILENCE);
        Some(self.started_at.saturating_add(slowest).saturating_add(patience))
    }

    /// P31: whether a lost round is worth waiting for outstanding answers: they may show a holder.
    pub fn may_show_a_holder(&self) -> bool {
        if self.verdict != Verdict::Lost || self.too_slow || !self.is_acquire {
            return false;
        }
        let outstanding = self.outstanding().len();
        let named = self.most_named().map_or(0, |(_, times)| times);
        (1..self.quorum.votes()).contains(&named) && named + outstanding >= self.quorum.votes()
    }

    /// P31: lost, since rivals have votes and the rest is silent.
    pub fn give_up(&mut self) {
        if self.verdict == Verdict::Pending {
            self.verdict = Verdict::Lost;
        }
    }

    /// The answers that say what the instance did.
    fn definite(&self) -> impl Iterator<Item = &TimedReply> {
        let is_definite = |answer: &&TimedReply| !matches!(answer.reply, Reply::NotSent(_) | Reply::Unknown(_));
        self.replies.iter().flatten().filter(is_definite)
    }

    /// The refusal that most instances agree on, and how many they are.
    pub(super) fn most_named(&self) -> Option<(&Refusal, usize)> {
        let same = |a: &Refusal, b: &Refusal| a.value == b.value;
        let agreeing = |named: &Refusal| self.refusals().filter(|other| same(other, named)).count();
        self.refusals().map(|refusal| (refusal, agreeing(refusal))).max_by_key(|(_, times)| *times)
    }

    /// Whether readers, or a writer that waits until they have gone, refused this (P34).
    pub fn shows_readers(&self) -> bool {
        let shows = |value: &[u8]| value == READERS || ClientId::of_mark(value).is_some();
        self.refusals().any(|refusal| refusal.value.as_deref().is_some_and(shows))
    }

    /// What refused it.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.replies.iter().flatten().filter_map(|answer| match &answer.reply {
            Reply::Refused(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Records a reply and returns the verdict as of `now`.
    ///
    /// An instance has one vote: a second definite reply of the same instance is a duplicate and
    /// changes nothing; a definite reply replaces an unknown one.
    pub fn on_reply(&mut self, id: InstanceId, reply: Reply, now: Instant) -> Verdict {
        self.record(id, reply, now);
        self.verdict(now)
    }

    /// Records a reply that was received at `received`, without a verdict.
    pub fn record(&mut self, id: InstanceId, reply: Reply, received: Instant) {
        let after = received.saturating_since(self.started_at);
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
    }

    fn believed(&self, reply: Reply) -> Reply {
        let most = self.tokens.map(|proposal| FencingToken::most_believed(proposal.clock.us));
        let is_odd = |token: &FencingToken| most.is_some_and(|most| *token > most);
        match reply {
            Reply::Stale { stored } if is_odd(&stored) => {
                let problem =
                    format!("a fencing token from a clock that reads {} s since 1970", stored.clock_us() / 1_000_000);
                Reply::Unknown(Cause::OddReply(problem))
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
        let outstanding = self.outstanding().len();
        self.verdict = match self.quorum.tally(granted, outstanding) {
            // P2, P9: counted only if the clock says so when the deciding reply is processed.
            Verdict::Won | Verdict::Pending if self.is_late(now) => {
                self.too_slow = true;
                Verdict::Lost
            }
            // P12: those that are still to answer may have a token like it, and then it is followed.
            Verdict::Lost if outstanding > 0 && self.alone_ahead().is_some() && self.may_be_repeated() => {
                Verdict::Pending
            }
            verdict => verdict,
        };
        if self.verdict == Verdict::Lost {
            self.refuse_token_ahead();
        }
        self.verdict
    }

    /// Whether a quorum might grant a larger token, as far as replies show.
    fn may_be_repeated(&self) -> bool {
        self.could_grant().len() >= self.quorum.votes()
    }

    /// The instances that might grant a larger token, or have granted this one.
    pub(super) fn could_grant(&self) -> InstanceSet {
        self.which(|reply| matches!(reply, None | Some(Reply::Granted | Reply::Repaired | Reply::Stale { .. })))
    }

    /// The instances that have not answered.
    fn outstanding(&self) -> InstanceSet {
        self.which(|reply| reply.is_none())
    }

    /// The stored tokens that instances have reported.
    fn reported(&self) -> impl Iterator<Item = FencingToken> {
        let reported = self.replies.iter().flatten().filter_map(|answer| match &answer.reply {
            Reply::Stale { stored } => Some(*stored),
            Reply::Refused(refusal) => refusal.token,
            _ => None,
        });
        reported.chain(self.refused_token)
    }

    /// P12: the token of an instance that is ahead of the clock, of the proposal and of what every other instance
    /// reports. A token that was granted is on a quorum, so mostly another instance has one like it; where none shows one, nothing
    /// is granted without this instance's vote, but the client does not go above it.
    ///
    /// One or two instances cannot be outvoted: each is believed. Without admission a client knows its own clock alone.
    fn alone_ahead(&self) -> Option<FencingToken> {
        let may_tell = |proposal: &Proposal| self.quorum.instances() > 2 && proposal.clock.is_of_instances;
        let proposal = self.tokens.filter(may_tell)?;
        let largest = self.reported().max()?;
        let is_like_it = |token: &FencingToken| token.proposed_us() >= largest.proposed_us();
        let others = self.reported().filter(is_like_it).count().saturating_sub(1);
        let may_be = [proposal.token, FencingToken::most_believed_alone(proposal.clock.us)];
        (others == 0 && !may_be.iter().any(is_like_it)).then_some(largest)
    }

    /// The vote of such an instance is lost, and the round says why.
    fn refuse_token_ahead(&mut self) {
        let (Some(ahead), Some(proposal)) = (self.alone_ahead(), self.tokens) else { return };
        let next = self.reported().filter(|token| *token != ahead).chain([proposal.token]).max();
        let ahead_s = |token: FencingToken| token.clock_us().saturating_sub(proposal.clock.us) / 1_000_000;
        let problem = format!(
            "a fencing token {} s ahead of the clock, where the next largest is {} s ahead: one instance alone is not followed",
            ahead_s(ahead),
            next.map_or(0, ahead_s),
        );
        let is_it = |answer: &&mut TimedReply| matches!(answer.reply, Reply::Stale { stored } if stored == ahead);
        if let Some(answer) = self.replies.iter_mut().flatten().find(is_it) {
            answer.reply = Reply::Unknown(Cause::OddReply(problem));
            self.refused_token = Some(ahead);
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.win_deadline().is_some_and(|end| now >= end)
    }

    /// From when on a victory would come too late; `None` if it never does.
    pub const fn win_deadline(&self) -> Option<Instant> {
        self.win_deadline
    }

    /// Until when a lease won by this round is valid.
    pub const fn valid_until(&self) -> Instant {
        self.valid_until
    }

    /// When it was begun, before anything was sent.
    pub const fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Whether the clock, not the votes, lost the round.
    pub const fn is_too_slow(&self) -> bool {
        self.too_slow
    }

    /// When this answer of it came.
    pub fn answered_at(&self, answer: &TimedReply) -> Instant {
        self.started_at.saturating_add(answer.after)
    }

    /// The votes needed and the number of instances.
    pub const fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// The answers so far, one place for each configured instance.
    pub fn replies(&self) -> &[Option<TimedReply>] {
        &self.replies
    }

    /// The answers so far, with the instances that gave them.
    pub fn answers(&self) -> impl Iterator<Item = (InstanceId, &TimedReply)> {
        let answers = InstanceId::all(self.replies.len()).zip(&self.replies);
        answers.filter_map(|(id, answer)| Some((id, answer.as_ref()?)))
    }

    /// The instances that got the request and have not answered so far.
    pub fn in_doubt(&self) -> InstanceSet {
        self.which(|reply| matches!(reply, None | Some(Reply::Unknown(_))))
    }

    /// The instances that granted.
    pub fn granted(&self) -> InstanceSet {
        self.which(|reply| matches!(reply, Some(Reply::Granted | Reply::Repaired)))
    }

    /// The instances that may hold the round's key, now or later: all that got the request except
    /// those to which nothing was sent (P5).
    pub fn must_release(&self) -> InstanceSet {
        self.which(|reply| reply.is_none_or(Reply::may_hold_key))
    }

    /// As [`must_release`](Self::must_release), of requests of which each instance was sent one copy, over one
    /// connection: a refusal is the answer to that copy, so it set no key, and there is none that comes later (P5).
    pub fn must_release_one_copy(&self) -> InstanceSet {
        self.which(|reply| reply.is_none_or(|reply| reply.may_hold_key() && !matches!(reply, Reply::Refused(_))))
    }

    /// The instances whose reply fits; `None` means no reply so far.
    pub fn which(&self, fits: impl Fn(Option<&Reply>) -> bool) -> InstanceSet {
        let replies = self.replies.iter().map(|answer| answer.as_ref().map(|answer| &answer.reply));
        InstanceId::all(self.replies.len()).zip(replies).filter(|(_, reply)| fits(*reply)).map(|(id, _)| id).collect()
    }

    /// The largest stored token if stale proposals alone kept the round from its quorum (P12): the
    /// round is then worth repeating with a larger token.
    pub fn stale_token(&self) -> Option<FencingToken> {
        let alone_ahead = self.alone_ahead();
        let stored = self.replies.iter().flatten().filter_map(|answer| match answer.reply {
            Reply::Stale { stored } => Some(stored),
            _ => None,
        });
        let highest = stored.filter(|stored| Some(*stored) != alone_ahead).max()?;
        (self.verdict == Verdict::Lost && !self.too_slow && self.may_be_repeated()).then_some(highest)
    }

    /// The largest token that instances have stored, as far as replies show and are followed, or will have with
    /// this round's own release, which has none where no clock was known; the next proposal goes above it. None if a quorum refused this proposal as ahead of
    /// its clocks: the token that led there is not followed again (P12).
    pub fn highest_seen(&self) -> Option<FencingToken> {
        let behind = self.which(|reply| matches!(reply, Some(Reply::Unknown(Cause::ClockBehind { .. }))));
        if self.quorum.is_out_of_reach(behind.len()) {
            return None;
        }
        let alone_ahead = self.alone_ahead();
        let followed = self.reported().filter(|token| Some(*token) != alone_ahead);
        let own = self.tokens.filter(|proposal| proposal.clock.is_of_instances);
        followed.chain(own.map(|proposal| proposal.token)).max()
    }
}
