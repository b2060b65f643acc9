//! The rounds of one attempt: one, repeated only where that is known to help, or where no client has a quorum (P31).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::uncollected::UncollectedLease;
use super::{AcquireFailure, AcquireParams};
use crate::instance::{Claim, Request};
use crate::protocol::{
    Access, Contest, FencingToken, Lease, ProposingClock, Round, RoundFailure, Value, Verdict, WriterMark,
};
use crate::random;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::in_flight::{OnDrop, RoundInFlight};
use crate::runtime::shared::Shared;

/// The part of an instance timeout after which a rival that still refuses has not lost (P31).
const PATIENCE_DIVISOR: u32 = 8;

/// An attempt whose round is in flight. Dropped at any time it leaves nothing behind (P5).
pub(super) struct Attempt {
    pub(super) shared: Arc<Shared>,
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
    let_go: Vec<Value>,
    in_flight: RoundInFlight,
}

/// The result of the rounds under one value.
pub(super) enum Outcome {
    /// The lease, not renewed yet.
    Won(UncollectedLease),
    /// No holder is known: its votes are released, and [`Attempt::ask_again`] is worth trying after this pause (P31).
    Undecided(AcquireFailure, Duration),
    /// There is none, and its releases are queued.
    Lost(AcquireFailure),
}

impl Attempt {
    /// Sends the first round. Boxed: it is moved from the caller to its task.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        seen: Option<FencingToken>,
        mark: Option<Arc<WriterMark>>,
    ) -> Result<Box<Self>, AcquireFailure> {
        let by = shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
        let token = shared.tokens.propose(by, seen); // P12
        let value = draw_value(shared, params, token)?;
        let is_first = seen.is_none();
        let in_flight = send(shared, params, value, (token, by), (&mark, is_first, false), |round| round);
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        let (contest, let_go) = (Contest::default(), Vec::new());
        let (repeats, rounds, undecided) = (0, 1, None);
        Ok(Box::new(Self { shared, params, by, seen, mark, repeats, rounds, contest, undecided, let_go, in_flight }))
    }

    /// The lease, not renewed yet, or why there is none; then the releases of the attempt are queued. Sends another round where
    /// no client has a quorum.
    pub(super) async fn outcome(&mut self) -> Result<UncollectedLease, AcquireFailure> {
        loop {
            match self.next_outcome().await {
                Outcome::Won(lease) => return Ok(lease),
                Outcome::Lost(failure) => return Err(failure),
                Outcome::Undecided(_, pause) => {
                    tokio::select! {
                        biased; // a run that is repeated under a seed takes the same branches
                        () = self.shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
                        () = sleep(pause) => {}
                    }
                    self.ask_again()?;
                }
            }
        }
    }

    /// The outcome of the rounds under the present value.
    pub(super) async fn next_outcome(&mut self) -> Outcome {
        loop {
            let verdict = self.in_flight.verdict().await;
            let round = &self.in_flight.round;
            tracing::debug!(?verdict, granted = ?self.shared.addresses(round.granted()), rounds = self.rounds, "acquire round");
            self.seen = self.seen.max(round.highest_seen());
            if verdict == Verdict::Won
                && let Some(lease) = self.won()
            {
                return Outcome::Won(lease);
            }
            let worth_repeating = self.in_flight.round.stale_token().is_some() || self.in_flight.lacks_only_scripts();
            // Each repeat goes above a larger token of another instance, so that there are never more.
            if self.repeats >= self.shared.instances.len() || !worth_repeating {
                return self.lost();
            }
            let repeated = if self.params.names_token() { self.begin_anew() } else { self.repeat() };
            if let Err(failure) = repeated {
                return Outcome::Lost(failure);
            }
        }
    }

    /// Lets go of a round that was lost.
    fn lost(&mut self) -> Outcome {
        let round = self.in_flight.round.clone();
        self.shared.slots.note_lost(&round);
        // Other clients that try at this moment take votes, or raise tokens.
        let is_undecided = matches!(RoundFailure::of(&round), RoundFailure::SplitVote(_) | RoundFailure::StaleToken);
        let pause = if is_undecided && self.params.is_fought_out() {
            self.contest.pause(&round, self.shared.clock.now(), self.shared.instance_timeout, random::spread())
        } else {
            None
        };
        let Some(pause) = pause else {
            self.in_flight.release();
            return Outcome::Lost(AcquireFailure::RoundLost(Box::new(round)));
        };
        self.in_flight.release_before_repeat();
        self.undecided = Some(round.clone());
        Outcome::Undecided(AcquireFailure::RoundLost(Box::new(round)), pause)
    }

    /// P31: another round, under a new value (P1) and a larger token.
    pub(super) fn ask_again(&mut self) -> Result<(), AcquireFailure> {
        let token = self.propose()?;
        let value = draw_value(&self.shared, &self.params, token)?;
        self.let_go.push(self.in_flight.claim().value.clone());
        self.repeats = 0;
        self.send(value, token, false);
        Ok(())
    }

    /// P36: a value that contains its token is released where a larger one is needed.
    fn begin_anew(&mut self) -> Result<(), AcquireFailure> {
        let repeats = self.repeats + 1;
        self.undecided = Some(self.in_flight.round.clone());
        self.in_flight.release_before_repeat();
        self.ask_again()?;
        self.repeats = repeats;
        Ok(())
    }

    fn won(&mut self) -> Option<UncollectedLease> {
        let claim = Arc::clone(self.in_flight.claim());
        let now = self.shared.clock.now();
        let lease = Lease::from_won(&mut self.in_flight.round, self.params.terms, now)?;
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        let lease = lease.add_release_targets(self.in_flight.sent_before);
        let token = claim.token;
        let held = self.shared.hold(lease, (claim, token), &self.params.holder);
        if self.params.names_token() {
            held.never_hand_over();
        }
        Some(UncollectedLease::new(Arc::clone(&self.shared), held))
    }

    /// How many rounds it took so far.
    pub(super) const fn rounds(&self) -> usize {
        self.rounds
    }

    /// P12: the same value again; the round's own keys count as free.
    fn repeat(&mut self) -> Result<(), AcquireFailure> {
        let token = self.propose()?;
        self.repeats += 1;
        let sent_before = self.in_flight.sent_before.union(self.in_flight.round.must_release());
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        self.send(self.in_flight.claim().value.clone(), token, true);
        self.in_flight.sent_before = sent_before;
        Ok(())
    }

    /// P12: another token, by the clock of the first, so that clients which try at once do not raise tokens by the time that passes; or by the
    /// instances' if none of them was known then.
    fn propose(&mut self) -> Result<FencingToken, AcquireFailure> {
        if !self.by.is_of_instances {
            let by = self.shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
            self.by = if by.is_of_instances { by } else { self.by };
        }
        Ok(self.shared.tokens.propose(self.by, self.seen))
    }

    fn send(&mut self, value: Value, token: FencingToken, resent: bool) {
        self.rounds += 1;
        let patience = self.shared.instance_timeout / PATIENCE_DIVISOR;
        let after_undecided = |round: Round| match &self.undecided {
            Some(undecided) => round.repeating(undecided, &self.let_go, patience),
            None => round,
        };
        let (proposal, sent) = ((token, self.by), (&self.mark, self.seen.is_none(), resent));
        self.in_flight = send(&self.shared, &self.params, value, proposal, sent, after_undecided);
    }

    /// Takes in the replies that are still outstanding (P6). They count for `held`, the lease that was won
    /// (P20).
    pub(super) async fn finish(&mut self, held: Option<Arc<HeldLease>>) {
        let on_replies = |round: &Round| {
            if let Some(held) = &held {
                held.note_replies(round);
            }
        };
        self.in_flight.finish(on_replies).await;
    }
}

fn send(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    value: Value,
    (token, by): (FencingToken, ProposingClock),
    (mark, is_first, resent): (&Option<Arc<WriterMark>>, bool, bool),
    prepare: impl FnOnce(Round) -> Round,
) -> RoundInFlight {
    shared.counters.rounds.add(1);
    let claim = Claim::new(params.resource.clone(), value, token, params.terms.ttl());
    let is_wanted = || shared.order.as_ref().is_some_and(|order| order.is_wanted(&params.resource));
    let claim = Arc::new(Claim {
        access: params.access,
        mark: mark.clone(),
        resent,
        is_first: params.access == Access::Write && is_first && !is_wanted(),
        is_by_own_clock: !by.is_of_instances,
        ..claim
    });
    let started_at = shared.clock.now(); // P2: before anything is sent
    let round = Round::acquire(shared.quorum, params.terms, started_at);
    let round = round.proposing(token, by);
    RoundInFlight::send(shared, prepare(round), Request::Acquire(claim))
}

fn draw_value(shared: &Shared, params: &AcquireParams, token: FencingToken) -> Result<Value, AcquireFailure> {
    let value = shared.tokens.draw_value(&params.holder, params.label(token).as_deref()); // P1
    value.map_err(|error| AcquireFailure::NoRandomness(Arc::new(error)))
}
