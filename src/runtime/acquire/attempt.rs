//! The rounds of one attempt: one, repeated only where that is known to help, or where no client has a quorum (P31).
//!
//! Replies and time drive it: after each [`Attempt::outcome`] says what has become of it. It sends nothing itself; what is to be done
//! goes out as [`Deed`]s, in order.

use std::sync::{Arc, Weak};

use super::cx::{Cx, Deed, RoundNumber};
use super::permits::AskPermit;
use super::releases::Releases;
use super::{AcquireFailure, AcquireParams};
use crate::instance::Claim;
use crate::protocol::{
    Access, Cause, Contest, FencingToken, InstanceId, InstanceSet, Instant, Lease, ProposingClock, Reply, Round,
    RoundFailure, Value, Verdict, WriterMark,
};
use crate::random;
use crate::runtime::held_lease::HeldLease;

/// The part of an instance timeout after which a rival that still refuses has not lost (P31).
const PATIENCE_DIVISOR: u32 = 8;

/// An attempt. It has to be [let go](Self::let_go), unless it has ended (P5).
pub(super) struct Attempt {
    params: Arc<AcquireParams>,
    /// The clock by which tokens are proposed, and the largest that was seen (P12).
    by: ProposingClock,
    seen: Option<FencingToken>,
    /// What is left where readers refuse it (P34).
    mark: Option<Arc<WriterMark>>,
    /// How often the round was sent again under the same value.
    repeats: usize,
    rounds: usize,
    /// When it is repeated where no client has a quorum, the last round of that kind, and the values of all of them (P31).
    contest: Contest,
    undecided: Option<Round>,
    former_values: Vec<Value>,
    /// Until when it rests before the next round of that kind. Its last one is released by then.
    rests_until: Option<Instant>,
    sent: SentRound,
    permit: AskPermit,
}

/// The round that was sent last.
struct SentRound {
    number: RoundNumber,
    claim: Arc<Claim>,
    round: Round,
    /// The instances whose replies are still to come.
    outstanding: InstanceSet,
    /// Those that an earlier send of the same value reached: they are released with this one.
    sent_before: InstanceSet,
}

/// What has become of an attempt.
pub(super) enum Outcome {
    /// It has ended with a lease.
    Won(Arc<HeldLease>),
    /// No holder is known: its votes are released, and it rests before it tries again (P31).
    Undecided(AcquireFailure),
    /// It has ended without, and its releases are queued.
    Lost(AcquireFailure),
}

/// What is left of rounds that were decided: replies that are still to come, and releases.
#[derive(Default)]
pub(super) struct Left {
    settled: Vec<Settled>,
    pub(super) releases: Releases,
}

impl Left {
    pub(super) const fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.releases.is_empty()
    }

    /// Whether this reply is to one of them: then it is taken in.
    pub(super) fn take(&mut self, number: RoundNumber, id: InstanceId, reply: &Reply, cx: &mut Cx<'_>) -> bool {
        let awaits = |settled: &Settled| settled.number == number && settled.outstanding.contains(id);
        let Some(at) = self.settled.iter().position(awaits) else { return self.releases.take(number, id, reply, cx) };
        if let Some(settled) = self.settled.get_mut(at) {
            settled.take(id, reply.clone(), &mut self.releases, cx);
        }
        self.settled.retain(|settled| !settled.outstanding.is_empty());
        true
    }

    fn push(&mut self, settled: Settled) {
        if !settled.outstanding.is_empty() {
            self.settled.push(settled);
        }
    }
}

/// A round that was decided before each instance had answered.
struct Settled {
    number: RoundNumber,
    outstanding: InstanceSet,
    heir: Heir,
}

/// What the replies count for that are still to come (P6).
enum Heir {
    /// The lease that was won, by a round that was begun then (P20).
    Lease(Arc<HeldLease>, Instant),
    /// The release of what was lost.
    Release(RoundNumber),
}

impl Settled {
    /// Takes in a late reply to it.
    fn take(&mut self, id: InstanceId, reply: Reply, releases: &mut Releases, cx: &mut Cx<'_>) {
        self.outstanding.remove(id);
        match &self.heir {
            Heir::Lease(held, sent) => cx.deeds.push(Deed::NoteReply(Arc::clone(held), id, reply, *sent)),
            Heir::Release(lost) => releases.take_reply_to_try(*lost, id, &reply, cx),
        }
    }
}

impl Attempt {
    /// Sends the first round.
    pub(super) fn begin(
        params: &Arc<AcquireParams>,
        (seen, mark): (Option<FencingToken>, Option<Arc<WriterMark>>),
        permit: AskPermit,
        left: &mut Left,
        cx: &mut Cx<'_>,
    ) -> Result<Self, (AcquireFailure, AskPermit)> {
        let proposed = cx.client.proposing_clock().map_err(AcquireFailure::ClocksApart).and_then(|by| {
            let token = cx.client.tokens.propose(by, seen); // P12
            Ok((by, token, draw_value(params, token, cx)?))
        });
        let (by, token, value) = match proposed {
            Ok(proposed) => proposed,
            Err(failure) => return Err((failure, permit)),
        };
        let round = Round::acquire(cx.client.quorum, params.terms, cx.now); // P2: before anything is sent
        let sent = send(params, value, (token, by), (&mark, seen.is_none(), false), round, left, cx);
        Ok(Self {
            params: Arc::clone(params),
            by,
            seen,
            mark,
            repeats: 0,
            rounds: 1,
            contest: Contest::default(),
            undecided: None,
            former_values: Vec::new(),
            rests_until: None,
            sent,
            permit,
        })
    }

    /// Whether this reply is to the round that was sent last.
    pub(super) fn awaits(&self, number: RoundNumber, id: InstanceId) -> bool {
        self.sent.number == number && self.sent.outstanding.contains(id)
    }

    /// Takes in a reply to that round; whether that may decide it: not a grant before the quorum-th, as long as there are but grants.
    pub(super) fn take(&mut self, id: InstanceId, reply: Reply, now: Instant) -> bool {
        let SentRound { round, outstanding, .. } = &mut self.sent;
        outstanding.remove(id);
        round.record(id, reply, now);
        round.granted().len() >= round.quorum().votes() || round.answers().any(|(_, it)| it.reply != Reply::Granted)
    }

    /// How many rounds it took so far, and the largest token that was seen.
    pub(super) fn rounds(&self) -> (usize, Option<FencingToken>) {
        (self.rounds, self.sent.round.highest_seen())
    }

    /// When time may decide about it, whatever is answered.
    pub(super) fn due(&self, cx: &Cx<'_>) -> Option<Instant> {
        if self.rests_until.is_some() {
            return self.rests_until;
        }
        let round = &self.sent.round;
        // Each request is answered by the deadline of its connection; a timer is needed only if the round is of no use before that.
        let answered_by = round.started_at().saturating_add(cx.client.instance_timeout);
        // Once it has passed the round is lost, and waits at most for a holder to show.
        let too_late = round.win_deadline().filter(|end| cx.now < *end && *end < answered_by);
        too_late.into_iter().chain(self.hopeless_at(cx)).min()
    }

    /// P31: when silent instances are not waited for any more, since a rival is known.
    fn hopeless_at(&self, cx: &Cx<'_>) -> Option<Instant> {
        self.sent.round.hopeless_at(|id| cx.client.instances.get(id.index())?.round_trip())
    }

    /// What has become of it by now; `None` if that is not known yet. What is left of its last round once it has ended is put into `left`.
    pub(super) fn outcome(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Option<Outcome> {
        if let Some(until) = self.rests_until {
            if cx.now < until {
                return None;
            }
            self.rests_until = None;
            if let Err(failure) = self.ask_again(left, cx) {
                return Some(Outcome::Lost(failure));
            }
        }
        loop {
            let verdict = self.verdict(cx)?;
            cx.deeds.push(Deed::LogRound(verdict, self.sent.round.granted(), self.rounds));
            self.seen = self.seen.max(self.sent.round.highest_seen());
            if verdict == Verdict::Won
                && let Some(held) = self.won(left, cx)
            {
                return Some(Outcome::Won(held));
            }
            let worth_repeating = self.sent.round.stale_token().is_some() || self.lacks_only_scripts();
            // Each repeat goes above a larger token of another instance, so that there are never more.
            if self.repeats >= cx.client.instances.len() || !worth_repeating {
                return Some(self.lost(left, cx));
            }
            let repeated = if self.params.names_token() { self.begin_anew(left, cx) } else { self.repeat(left, cx) };
            if let Err(failure) = repeated {
                return Some(Outcome::Lost(failure));
            }
        }
    }

    /// The verdict, once it is known. P4: a silent instance is not waited for, unless a moment more shows a holder of the lock (P31).
    fn verdict(&mut self, cx: &Cx<'_>) -> Option<Verdict> {
        let verdict = self.sent.round.verdict(cx.now);
        if verdict != Verdict::Pending && !self.sent.round.may_show_a_holder() {
            return Some(verdict);
        }
        let is_hopeless = self.hopeless_at(cx).is_some_and(|at| cx.now >= at);
        if !is_hopeless {
            return None;
        }
        self.sent.round.give_up();
        Some(self.sent.round.verdict(cx.now))
    }

    /// Whether only instances that were not ready kept the round from its quorum, and nothing was done there: they had lost
    /// their scripts, which are being loaded by now, or their record, which is written by now. So it is worth repeating once.
    fn lacks_only_scripts(&self) -> bool {
        let round = &self.sent.round;
        let could_grant = round.which(|reply| match reply {
            None | Some(Reply::Granted | Reply::Repaired) => true,
            Some(reply) => {
                matches!(reply, Reply::NotSent(Cause::ScriptMissing | Cause::Unrecorded | Cause::JustConnected))
            }
        });
        could_grant.len() >= round.quorum().votes() && !round.is_too_slow()
    }

    fn won(&mut self, left: &mut Left, cx: &Cx<'_>) -> Option<Arc<HeldLease>> {
        let sent = &mut self.sent;
        let lease = Lease::from_won(&mut sent.round, self.params.terms, cx.now)?;
        let lease = lease.add_release_targets(sent.sent_before);
        let held = cx.client.hold(
            Weak::clone(cx.leases),
            lease,
            (Arc::clone(&sent.claim), sent.claim.token),
            &self.params.holder,
        );
        if self.params.names_token() {
            held.never_hand_over();
        }
        let heir = Heir::Lease(Arc::clone(&held), sent.round.started_at());
        left.push(Settled { number: sent.number, outstanding: sent.outstanding, heir });
        Some(held)
    }

    fn lost(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Outcome {
        let round = self.sent.round.clone();
        cx.deeds.push(Deed::NoteLost(Box::new(round.clone())));
        // Other clients that try at this moment take votes, or raise tokens.
        let is_undecided = matches!(RoundFailure::of(&round), RoundFailure::SplitVote(_) | RoundFailure::StaleToken);
        let failure = AcquireFailure::RoundLost(Box::new(round.clone()));
        let pause = if is_undecided && self.params.is_fought_out() {
            self.contest.pause(&round, cx.now, cx.client.instance_timeout, random::spread())
        } else {
            None
        };
        let Some(pause) = pause else {
            self.let_go(left, cx);
            return Outcome::Lost(failure);
        };
        self.release(left, cx);
        self.undecided = Some(round);
        self.rests_until = Some(cx.now.saturating_add(pause));
        Outcome::Undecided(failure)
    }

    /// P31: another round, under a new value (P1) and a larger token.
    fn ask_again(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Result<(), AcquireFailure> {
        let token = self.propose(cx)?;
        let value = draw_value(&self.params, token, cx)?;
        self.former_values.push(self.sent.claim.value.clone());
        self.repeats = 0;
        self.send(value, token, false, left, cx);
        Ok(())
    }

    /// P36: a value that contains its token is released where a larger one is needed.
    fn begin_anew(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Result<(), AcquireFailure> {
        let repeats = self.repeats + 1;
        self.undecided = Some(self.sent.round.clone());
        self.release(left, cx);
        self.ask_again(left, cx)?;
        self.repeats = repeats;
        Ok(())
    }

    /// P12: the same value again; the round's own keys count as free.
    fn repeat(&mut self, left: &mut Left, cx: &mut Cx<'_>) -> Result<(), AcquireFailure> {
        let token = match self.propose(cx) {
            Ok(token) => token,
            Err(failure) => {
                self.release(left, cx);
                return Err(failure);
            }
        };
        self.repeats += 1;
        let sent_before = self.sent.sent_before.union(self.sent.round.must_release());
        self.send(self.sent.claim.value.clone(), token, true, left, cx);
        self.sent.sent_before = sent_before;
        Ok(())
    }

    /// P12: another token, by the clock of the first, so that clients which try at once do not raise tokens by the time that passes; or by the
    /// instances' if none of them was known then.
    fn propose(&mut self, cx: &Cx<'_>) -> Result<FencingToken, AcquireFailure> {
        if !self.by.is_of_instances {
            let by = cx.client.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
            self.by = if by.is_of_instances { by } else { self.by };
        }
        Ok(cx.client.tokens.propose(self.by, self.seen))
    }

    fn send(&mut self, value: Value, token: FencingToken, resent: bool, left: &mut Left, cx: &mut Cx<'_>) {
        self.rounds += 1;
        let patience = cx.client.instance_timeout / PATIENCE_DIVISOR;
        let round = Round::acquire(cx.client.quorum, self.params.terms, cx.now);
        let round = match &self.undecided {
            Some(undecided) => round.repeating(undecided, &self.former_values, patience),
            None => round,
        };
        let how = (&self.mark, self.seen.is_none(), resent);
        self.sent = send(&self.params, value, (token, self.by), how, round, left, cx);
    }

    /// Ends it without a lease: what may have been set is released behind its requests (P6). Where a rival is known, the replies that are
    /// outstanding decide whether there is anything to release: most likely they refuse as well.
    pub(super) fn let_go(&mut self, left: &mut Left, cx: &mut Cx<'_>) {
        let sent = &self.sent;
        if self.rests_until.is_some() {
            return; // it was released before it rested
        }
        let is_refused = !sent.round.is_too_slow() && sent.round.refusals().next().is_some();
        let awaited = if is_refused { sent.outstanding.without(sent.sent_before) } else { InstanceSet::default() };
        if !awaited.is_empty() {
            let lost = left.releases.send_after_replies(Arc::clone(&sent.claim), awaited, cx);
            left.push(Settled { number: sent.number, outstanding: awaited, heir: Heir::Release(lost) });
        }
        self.release_on(self.must_release().without(awaited), left, cx);
    }

    /// Releases what may have been set at once everywhere: the next request for the same lock is sent behind it.
    fn release(&self, left: &mut Left, cx: &mut Cx<'_>) {
        self.release_on(self.must_release(), left, cx);
    }

    fn must_release(&self) -> InstanceSet {
        self.sent.round.must_release_one_copy().union(self.sent.sent_before)
    }

    fn release_on(&self, targets: InstanceSet, left: &mut Left, cx: &mut Cx<'_>) {
        left.releases.send((Arc::clone(&self.sent.claim), None), targets, None, cx);
    }

    /// Its permit, which is given back behind its releases.
    pub(super) fn into_permit(self) -> AskPermit {
        self.permit
    }
}

fn send(
    params: &AcquireParams,
    value: Value,
    (token, by): (FencingToken, ProposingClock),
    (mark, is_first, resent): (&Option<Arc<WriterMark>>, bool, bool),
    round: Round,
    left: &mut Left,
    cx: &mut Cx<'_>,
) -> SentRound {
    let claim = Claim::new(params.resource.clone(), value, token, params.terms.ttl());
    let is_wanted = || cx.client.order.as_ref().is_some_and(|order| order.is_wanted(&params.resource));
    let claim = Arc::new(Claim {
        access: params.access,
        mark: mark.clone(),
        resent,
        is_first: params.access == Access::Write && is_first && !is_wanted(),
        is_by_own_clock: !by.is_of_instances,
        ..claim
    });
    left.releases.send_ahead(&claim, cx);
    let number = cx.next_number();
    cx.deeds.push(Deed::Acquire(Arc::clone(&claim), number));
    let (outstanding, sent_before) = (cx.client.all_instances(), InstanceSet::default());
    SentRound { number, claim, round: round.proposing(token, by), outstanding, sent_before }
}

fn draw_value(params: &AcquireParams, token: FencingToken, cx: &Cx<'_>) -> Result<Value, AcquireFailure> {
    let value = cx.client.tokens.draw_value(&params.holder, params.label(token).as_deref()); // P1
    value.map_err(|error| AcquireFailure::NoRandomness(Arc::new(error)))
}
