//! A lease that is held: shared by its guards, those who watch it, and the task that renews it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::acquire::Won;
use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{FencingToken, InstanceId, InstanceSet, Instant, Lease, Quorum, Reply, Round, Terms, Verdict};

/// What an instance was found to have in the place of a lease; `None` if nothing.
pub(crate) type Found = (InstanceId, Option<Vec<u8>>);

/// How a lease ended. It never comes back.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Its guards gave it up.
    GivenUp,
    /// Its validity has passed; the last round that did not extend it, if there was one.
    Expired(Option<Arc<Round>>),
    /// No quorum can have kept it (P20).
    Gone(Arc<[Found]>),
}

/// How long a lease is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// Whether it is renewed by itself.
    pub(crate) renews: bool,
    /// From when on it is not renewed any more.
    pub(crate) not_after: Option<Instant>,
}

impl Keeping {
    /// Whether it is renewed at `now`.
    pub(super) fn renews_at(self, now: Instant) -> bool {
        self.renews && self.not_after.is_none_or(|end| now < end)
    }

    /// What does for both.
    fn and(self, other: Self) -> Self {
        match (self.renews, other.renews) {
            (true, false) => self,
            (false, true) => other,
            _ => Self { not_after: self.not_after.zip(other.not_after).map(|(a, b)| a.max(b)), ..self },
        }
    }
}

/// A lease that is held or was.
#[derive(Debug)]
pub(crate) struct Hold {
    state: Mutex<State>,
    ended: Notify,
}

/// What changes while a lease is held.
#[derive(Debug)]
pub(super) struct State {
    pub(super) lease: Lease,
    pub(super) claim: Arc<Claim>,
    /// The latest token: it rises when the holder enters again (P23).
    token: FencingToken,
    guards: usize,
    /// For the guard that needs it for longest.
    pub(super) keeping: Keeping,
    /// Whether the keys are left to expire.
    keeps_keys: bool,
    end: Option<End>,
    /// The renewal under way.
    pub(super) round: Option<Box<Round>>,
    /// When the last renewal was begun.
    pub(super) renewed_at: Instant,
    /// What was found on instances that do not have it.
    found: Vec<Found>,
    /// The last round that did not extend it.
    failed: Option<Arc<Round>>,
    /// Its place in the keeper's book.
    pub(super) due: Option<(Instant, u64)>,
    pub(super) is_watched: bool,
}

/// What remains to be done when a guard lets go.
pub(crate) enum LettingGo {
    /// Nothing: other guards hold it, or the keys are to stay.
    Nothing,
    /// It was the last guard: the claim is to be released on these instances.
    Release(Arc<Claim>, InstanceSet),
}

impl Hold {
    pub(super) fn new(won: Won, keeping: Keeping) -> Self {
        let token = won.claim.token;
        let state = State {
            lease: won.lease,
            claim: won.claim,
            token,
            guards: 1,
            keeping,
            keeps_keys: false,
            end: None,
            round: None,
            renewed_at: Instant::ZERO,
            found: Vec::new(),
            failed: None,
            due: None,
            is_watched: false,
        };
        Self { state: Mutex::new(state), ended: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest token.
    pub(crate) fn token(&self) -> FencingToken {
        self.state().token
    }

    /// What is claimed.
    pub(crate) fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.state().claim)
    }

    /// How long it may still be relied on; zero once it has ended.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        let state = self.state();
        if state.end.is_some() { Duration::ZERO } else { state.lease.remaining(clock.now()) }
    }

    /// The terms of the last round that was begun for it.
    pub(crate) fn terms(&self) -> Terms {
        self.state().lease.terms()
    }

    /// One more guard for the same holder (P23), with a larger token; `None` if it is too late. Gives
    /// whether the lease is renewed from now on and was not before.
    ///
    /// When no token is left before that of the next grant, the last one stays: to take a larger one
    /// from the instances would be a new lease, and end this one for the guards that it has.
    pub(crate) fn enter(&self, keeping: Keeping, clock: &dyn Clock) -> Option<bool> {
        let now = clock.now();
        let mut state = self.state();
        let lives = state.end.is_none() && state.lease.is_valid(now);
        if !lives {
            return None;
        }
        state.token = state.token.hand_over().unwrap_or(state.token);
        state.guards += 1;
        let former = state.keeping;
        state.keeping = former.and(keeping);
        Some(state.keeping.renews_at(now) && !former.renews_at(now))
    }

    /// One guard less. P7: it is not relied on any more before a release is sent.
    pub(super) fn leave(&self) -> LettingGo {
        let mut state = self.state();
        state.guards = state.guards.saturating_sub(1);
        if state.guards > 0 {
            return LettingGo::Nothing;
        }
        let released = LettingGo::Release(Arc::clone(&state.claim), state.lease.asked());
        let keeps = state.keeps_keys;
        self.end(state, End::GivenUp);
        if keeps { LettingGo::Nothing } else { released }
    }

    /// From now on the last guard leaves the keys alone.
    pub(crate) fn keep_keys(&self) {
        self.state().keeps_keys = true;
    }

    /// Ends it, unless it has ended already.
    pub(super) fn end(&self, mut state: MutexGuard<'_, State>, end: End) {
        if state.end.is_none() {
            state.end = Some(end);
            state.round = None;
            drop(state);
            self.ended.notify_waiters();
        }
    }

    /// Takes in the answers to an extend so far; true if the lease has ended with them (P20).
    pub(super) fn note_answers(&self, round: &Round) -> bool {
        let mut state = self.state();
        for (id, answer) in InstanceId::all(round.answers().len()).zip(round.answers()) {
            match answer.as_ref().map(|answer| &answer.reply) {
                Some(Reply::Repaired) => state.find(id, None),
                Some(Reply::Refused(refusal)) => state.find(id, refusal.value.clone()),
                _ => {}
            }
        }
        let gone = state.lease.is_gone(round);
        if gone {
            self.end_gone(state);
        }
        gone
    }

    /// Takes in that an instance that was asked at `sent` had something else in its place; true if
    /// the lease has ended with it (P20).
    pub(super) fn note_missing(&self, id: InstanceId, value: Option<Vec<u8>>, quorum: Quorum, sent: Instant) -> bool {
        let mut state = self.state();
        state.find(id, value);
        let gone = state.lease.note_missing(id, quorum, sent);
        if gone {
            self.end_gone(state);
        }
        gone
    }

    fn end_gone(&self, mut state: MutexGuard<'_, State>) {
        let found = std::mem::take(&mut state.found);
        self.end(state, End::Gone(found.into()));
    }

    /// Whether it was found that no quorum has kept it. Its keys may be there again: repaired (P10),
    /// which does not undo that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state().end, Some(End::Gone(_)))
    }

    /// How it ended, if it has. Validity that has passed by now is found out here.
    pub(crate) fn ended(&self, clock: &dyn Clock) -> Option<End> {
        let now = clock.now();
        let mut state = self.state();
        if state.end.is_none() && !state.lease.is_valid(now) {
            let late = state.round.take_if(|round| round.verdict(now) == Verdict::Lost);
            let last = late.map(Arc::from).or_else(|| state.failed.take());
            self.end(state, End::Expired(last));
            state = self.state();
        }
        state.end.clone()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> End {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(end) = self.ended(clock) {
                return end;
            }
            // Timers only wake, the clock decides (P3).
            let left = self.remaining(clock);
            tokio::select! {
                () = ended => {}
                () = sleep(left) => {}
            }
        }
    }
}

impl State {
    pub(super) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn find(&mut self, id: InstanceId, value: Option<Vec<u8>>) {
        self.found.retain(|(known, _)| *known != id);
        self.found.push((id, value));
    }

    /// Takes in the end of a round: whether it moved the validity.
    pub(super) fn settle(&mut self, round: &mut Round, now: Instant) -> bool {
        let won = self.lease.settle(round, now);
        if won {
            self.found.clear();
            self.failed = None;
        }
        won
    }

    pub(super) fn note_failure(&mut self, round: &Round) {
        self.failed = Some(Arc::new(round.clone()));
    }

    /// The claim of an extend with this ttl: a release must know of it, before it is sent (P6).
    pub(super) fn claim_to_extend(&mut self, ttl: Duration) -> Arc<Claim> {
        if ttl != self.claim.ttl || !self.claim.resent {
            self.claim = Arc::new(Claim { ttl, resent: true, ..Claim::clone(&self.claim) });
        }
        Arc::clone(&self.claim)
    }
}
