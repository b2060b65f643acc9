//! A lease that is held: shared by its guards, those who watch it, and the task that renews it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::attempt::Acquired;
use crate::clock::Clock;
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, InstanceId, InstanceSet, Instant, Lease, Reply, Round, Verdict};

/// What an instance was found to have in the place of a lease; `None` if nothing.
pub(crate) type Found = (InstanceId, Option<Vec<u8>>);

/// How a lease ended. It never comes back.
#[derive(Clone, Debug)]
pub(crate) enum LeaseEnd {
    /// Its guards gave it up.
    GivenUp,
    /// Its validity has passed; the last round that did not extend it, if there was one.
    Expired(Option<Arc<Round>>),
    /// No quorum can have kept it (P20).
    Gone(Arc<[Found]>),
}

/// How long a lease is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalPolicy {
    /// Whether it is renewed by itself.
    pub(crate) renews: bool,
    /// From when on it is not renewed any more.
    pub(crate) not_after: Option<Instant>,
}

impl RenewalPolicy {
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
pub(crate) struct HeldLease {
    state: Mutex<HeldLeaseState>,
    ended: Notify,
}

/// What changes while a lease is held.
#[derive(Debug)]
pub(super) struct HeldLeaseState {
    pub(super) lease: Lease,
    pub(super) claim: Arc<Claim>,
    /// The latest token: it rises when the holder enters again (P23).
    token: FencingToken,
    guards: usize,
    /// Whether a caller ever had it.
    is_taken: bool,
    /// For the guard that needs it for longest.
    pub(super) policy: RenewalPolicy,
    /// Whether the keys are left to expire.
    keeps_keys: bool,
    end: Option<LeaseEnd>,
    /// The renewal under way.
    pub(super) round: Option<Box<Round>>,
    /// When the last renewal was begun.
    pub(super) renewal_started_at: Instant,
    /// When the instances are to be told to keep its token for longer (P13).
    token_due: Option<Instant>,
    /// What was found on instances that do not have it.
    found: Vec<Found>,
    /// The last round that did not extend it.
    failed: Option<Arc<Round>>,
    /// Its place in the lease table.
    pub(super) due: Option<(Instant, u64)>,
    pub(super) is_watched: bool,
}

/// What remains to be done when a guard lets go.
pub(crate) enum LettingGo {
    /// Nothing: other guards hold it, or the keys are to stay.
    Nothing,
    /// It was the last guard: this is to be asked of these instances.
    Release(Request, InstanceSet),
}

impl HeldLease {
    pub(super) fn new(won: Acquired, policy: RenewalPolicy) -> Self {
        let token = won.claim.token;
        let state = HeldLeaseState {
            lease: won.lease,
            claim: won.claim,
            token,
            guards: 1,
            is_taken: false,
            policy,
            keeps_keys: false,
            end: None,
            round: None,
            renewal_started_at: Instant::ZERO,
            token_due: None,
            found: Vec::new(),
            failed: None,
            due: None,
            is_watched: false,
        };
        Self { state: Mutex::new(state), ended: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HeldLeaseState> {
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

    /// The instances that it rests on, by what they have answered so far.
    pub(crate) fn rests_on(&self) -> InstanceSet {
        self.state().lease.rests_on()
    }

    /// One more guard for the same holder (P23); false if it has ended.
    pub(super) fn add_guard(&self) -> bool {
        let mut state = self.state();
        state.guards += usize::from(state.end.is_none());
        state.end.is_none()
    }

    /// Takes in the end of a round that asked for a larger token: whether it was won. Then the lease is
    /// kept as whoever entered needs it.
    pub(super) fn settle_entry(
        &self,
        round: &mut Round,
        token: FencingToken,
        policy: RenewalPolicy,
        clock: &dyn Clock,
    ) -> bool {
        let mut state = self.state();
        let won = state.settle(round, clock.now()).is_some();
        if won {
            state.token = state.token.max(token);
            state.policy = state.policy.and(policy);
        }
        won
    }

    /// A caller has it from now on.
    pub(super) fn take(&self) {
        self.state().is_taken = true;
    }

    /// One guard less. P7: it is not relied on any more before a release is sent.
    pub(super) fn drop_guard(&self) -> LettingGo {
        let mut state = self.state();
        state.guards = state.guards.saturating_sub(1);
        if state.guards > 0 {
            return LettingGo::Nothing;
        }
        let claim = Arc::clone(&state.claim);
        // P23: a lease that nobody ever had is a try that was not won.
        let release = if state.is_taken { Request::Release(claim) } else { Request::give_back(claim) };
        let released = LettingGo::Release(release, state.lease.asked());
        let keeps = state.keeps_keys;
        self.end(state, LeaseEnd::GivenUp);
        if keeps { LettingGo::Nothing } else { released }
    }

    /// From now on the last guard leaves the keys alone.
    pub(crate) fn keep_keys(&self) {
        self.state().keeps_keys = true;
    }

    /// Ends it, unless it has ended already.
    pub(super) fn end(&self, mut state: MutexGuard<'_, HeldLeaseState>, end: LeaseEnd) {
        if state.end.is_none() {
            state.end = Some(end);
            state.round = None;
            drop(state);
            self.ended.notify_waiters();
        }
    }

    /// Takes in what instances have answered so far to a round for it (P20), past its verdict too.
    pub(super) fn note_answers(&self, round: &Round) {
        let mut state = self.state();
        for (id, answer) in InstanceId::all(round.answers().len()).zip(round.answers()) {
            if let Some(answer) = answer {
                state.note_answer(id, &answer.reply, round.started_at());
            }
        }
        self.end_if_gone(state);
    }

    /// Takes in what one instance answered to an extend that was sent at `sent` (P20).
    pub(super) fn note_answer(&self, id: InstanceId, reply: &Reply, sent: Instant) {
        let mut state = self.state();
        state.note_answer(id, reply, sent);
        self.end_if_gone(state);
    }

    /// Takes in that an instance that was asked at `sent` had something else in its place (P20).
    pub(super) fn note_missing(&self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        let mut state = self.state();
        state.find(id, value);
        state.lease.note_missing(id, sent);
        self.end_if_gone(state);
    }

    /// Its holder has taken a part of it over in this client (P23): no instance tells a client of what
    /// it did itself.
    pub(super) fn end_for(&self, later: &Self) {
        let (value, instances) = {
            let later = later.state();
            (later.claim.value.as_bytes().to_vec(), later.lease.rests_on())
        };
        let found: Vec<Found> = instances.iter().map(|id| (id, Some(value.clone()))).collect();
        let state = self.state();
        if !state.has_ended() {
            let resources = state.claim.resources.display_all();
            tracing::warn!(resources, "lease lost: its holder has taken a part of it over");
        }
        self.end(state, LeaseEnd::Gone(found.into()));
    }

    fn end_if_gone(&self, mut state: MutexGuard<'_, HeldLeaseState>) {
        if !state.has_ended() && state.lease.is_gone() {
            let resources = state.claim.resources.display_all();
            tracing::warn!(resources, on = ?state.lease.absent(), "lease lost: no quorum can have kept it");
            let found = std::mem::take(&mut state.found);
            self.end(state, LeaseEnd::Gone(found.into()));
        }
    }

    /// Takes in the end of a round: how long the lease may be relied on now, if that has moved. P9: by the
    /// clock as it is now, for whoever asked meanwhile may have been told that it is over.
    pub(super) fn settle(&self, round: &mut Round, clock: &dyn Clock) -> Option<Duration> {
        self.state().settle(round, clock.now())
    }

    /// Whether it was found that no quorum has kept it. Its keys may be there again: repaired (P10),
    /// which does not undo that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state().end, Some(LeaseEnd::Gone(_)))
    }

    /// How it ended, if it has. Validity that has passed by now is found out here.
    pub(crate) fn ended(&self, clock: &dyn Clock) -> Option<LeaseEnd> {
        let mut state = self.state();
        let now = clock.now(); // P9: what is over for one is over for all who look later
        if state.end.is_none() && !state.lease.is_valid(now) {
            let late = state.round.take_if(|round| round.verdict(now) == Verdict::Lost);
            let last = late.map(Arc::from).or_else(|| state.failed.take());
            let resources = state.claim.resources.display_all();
            let cause = state.why_expired(last.as_deref(), now);
            tracing::warn!(resources, cause, "lease lost: its validity has passed");
            self.end(state, LeaseEnd::Expired(last));
            state = self.state();
        }
        state.end.clone()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> LeaseEnd {
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

impl HeldLeaseState {
    pub(super) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn find(&mut self, id: InstanceId, value: Option<Vec<u8>>) {
        self.found.retain(|(known, _)| *known != id);
        self.found.push((id, value));
    }

    fn note_answer(&mut self, id: InstanceId, reply: &Reply, sent: Instant) {
        match reply {
            Reply::Repaired => self.find(id, None),
            Reply::Refused(refusal) => self.find(id, refusal.value.clone()),
            _ => {}
        }
        self.lease.note_answer(id, reply, sent);
    }

    /// Takes in the end of a round at `now`, read after this was locked: the validity that is left, if
    /// that has moved.
    pub(super) fn settle(&mut self, round: &mut Round, now: Instant) -> Option<Duration> {
        if self.has_ended() || !self.lease.settle(round, now) {
            return None;
        }
        let absent = self.lease.absent();
        self.found.retain(|(id, _)| absent.contains(*id));
        self.failed = None;
        Some(self.lease.remaining(now))
    }

    /// Why nothing has moved the validity on in time.
    fn why_expired(&self, last: Option<&Round>, now: Instant) -> String {
        match last {
            Some(round) => format!("not renewed: {}", unwilling(round)),
            None if !self.policy.renews => "it is not renewed".to_owned(),
            None if !self.policy.renews_at(now) => "it was held for as long as it may be renewed".to_owned(),
            None => "no renewal was answered in time".to_owned(),
        }
    }

    pub(super) fn note_failure(&mut self, round: &Round) {
        self.failed = Some(Arc::new(round.clone()));
    }

    /// Whether a renewal at `now` is to keep the token for longer: after a quarter of the time for which
    /// it is kept, so that three more may fail (P13).
    pub(super) fn refreshes_token(&mut self, now: Instant) -> bool {
        let next = now.saturating_add(self.claim.fence_retention / 4);
        let is_due = self.token_due.is_some_and(|due| due <= now);
        if is_due || self.token_due.is_none() {
            self.token_due = Some(next);
        }
        is_due
    }

    /// The claim of a round that asks for this token: what is sent for the lease later, its release above
    /// all, must be about that one (P6).
    pub(super) fn claim_to_enter(&mut self, ttl: Duration, token: FencingToken) -> Arc<Claim> {
        self.claim = Arc::new(Claim { ttl, token, resent: true, ..Claim::clone(&self.claim) });
        Arc::clone(&self.claim)
    }

    /// The claim of an extend with this ttl: a release must know of it, before it is sent (P6).
    pub(super) fn claim_to_extend(&mut self, ttl: Duration) -> Arc<Claim> {
        if ttl != self.claim.ttl || !self.claim.resent {
            self.claim = Arc::new(Claim { ttl, resent: true, ..Claim::clone(&self.claim) });
        }
        Arc::clone(&self.claim)
    }
}

/// What the instances said that did not grant.
fn unwilling(round: &Round) -> String {
    let said = InstanceId::all(round.answers().len()).zip(round.answers()).filter_map(|(id, answer)| {
        let what = match answer.as_ref().map(|answer| &answer.reply) {
            None | Some(Reply::Granted | Reply::Repaired) => return None,
            Some(Reply::Refused(_)) => "has somebody else's key".to_owned(),
            Some(Reply::NotAdmitted { .. }) => "may not vote".to_owned(),
            Some(Reply::Stale { .. }) => "has a larger token".to_owned(),
            Some(Reply::NotSent(cause) | Reply::Unknown(cause)) => cause.to_string(),
        };
        Some(format!("{id} {what}"))
    });
    let said: Vec<_> = said.collect();
    if said.is_empty() { "too few answered in time".to_owned() } else { said.join(", ") }
}
