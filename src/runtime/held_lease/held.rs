//! The lease and its guards, and how it ends.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::end::{LeaseEnd, LossCause, LossLog, why_expired};
use super::state::{Acquired, GuardNumber, HeldLeaseState};
use crate::clock::Clock;
use crate::foreign::contain;
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, InstanceId, InstanceSet, Instant, LeaseTerms, Reply, Round, Verdict};
use crate::runtime::counters::Counters;

/// A lease that is held or was.
#[derive(Debug)]
pub(crate) struct HeldLease {
    state: Mutex<HeldLeaseState>,
    /// Whose it is; empty if nobody else may share it (P23).
    holder: Arc<str>,
    /// Releases what is left of it when it is lost.
    client: Weak<dyn AfterLoss>,
    counters: Arc<Counters>,
    ended: Notify,
    /// Notified when the lease ends, when it is handed over (P24), and when one of several guards is dropped.
    tenure_ended: Notify,
}

/// What sees to a lease that was lost: the client that has it.
pub(crate) trait AfterLoss: std::fmt::Debug + Send + Sync {
    /// Releases what is left of the lease, behind whatever is in flight for it.
    fn release_after_loss(&self, held: &HeldLease);
}

/// What is to be sent once the last guard of a lease is dropped.
pub(crate) struct LeaseRelease {
    pub(crate) request: Request,
    pub(crate) targets: InstanceSet,
}

/// The end of a lease, for those who wait for it and for the log. Wakers and whoever listens to the log are foreign
/// code: they are told when no mutex is held.
#[derive(Debug, Default)]
#[must_use = "those who wait are to be told"]
pub(crate) struct EndNotice<'a>(Option<(&'a HeldLease, Option<LossLog>)>);

impl<'a> EndNotice<'a> {
    const fn of(held: &'a HeldLease, log: Option<LossLog>) -> Self {
        Self(Some((held, log)))
    }

    /// Tells them, if the lease has just ended.
    pub(crate) fn tell(self) {
        if let Some((held, log)) = self.0 {
            held.tell_end(log);
        }
    }
}

/// Its guards and their validity.
impl HeldLease {
    pub(crate) fn new(acquired: Acquired, client: Weak<dyn AfterLoss>) -> Self {
        Self {
            counters: Arc::clone(&acquired.counters),
            holder: Arc::clone(&acquired.holder),
            client,
            state: Mutex::new(HeldLeaseState::new(acquired)),
            ended: Notify::new(),
            tenure_ended: Notify::new(),
        }
    }

    /// A lease that was detached, which had this token.
    pub(crate) fn attached(acquired: Acquired, client: Weak<dyn AfterLoss>, token: FencingToken) -> Self {
        let held = Self::new(acquired, client);
        held.state().token = token;
        held
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HeldLeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose it is; empty if nobody else may share it (P23).
    pub(crate) const fn holder(&self) -> &Arc<str> {
        &self.holder
    }

    /// The terms of the last round that was begun for it.
    pub(crate) fn terms(&self) -> LeaseTerms {
        self.state().lease.terms()
    }

    /// What is claimed.
    pub(crate) fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.state().claim)
    }

    /// How long it may still be relied on; zero once it has ended.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        self.state().remaining(clock)
    }

    /// The instances that it rests on, by what they have answered so far.
    pub(crate) fn rests_on(&self) -> InstanceSet {
        self.state().lease.rests_on()
    }

    /// One more guard for the same holder (P23), which no caller has collected yet; false if it has ended.
    pub(crate) fn add_guard(&self) -> bool {
        let mut state = self.state();
        state.guards += usize::from(!state.has_ended());
        state.uncollected += usize::from(!state.has_ended());
        state.was_shared |= !state.has_ended();
        !state.has_ended()
    }

    /// One guard less; `None` for one that no caller has collected. No release if others still hold the lease, or the
    /// keys are to stay. P7: it is not relied on any more before a release is sent.
    pub(crate) fn drop_guard(&self, number: Option<GuardNumber>) -> (Option<LeaseRelease>, EndNotice<'_>) {
        let mut state = self.state();
        state.guards = state.guards.saturating_sub(1);
        if number.is_none() {
            state.note_collected();
        }
        if !state.has_ended() {
            state.entries.retain(|entry| Some(entry.number) != number); // else its end is what views tell
        }
        if state.guards > 0 {
            drop(state);
            self.note_tenure_end(); // of this guard
            return (None, EndNotice::default());
        }
        let claim = Arc::clone(&state.claim);
        let release = LeaseRelease { request: Request::Release(claim, None), targets: state.lease.release_targets() };
        let keeps_keys = state.keeps_keys;
        let notice = self.end(state, LeaseEnd::GivenUp, None);
        ((!keeps_keys).then_some(release), notice)
    }

    /// Ends it because the client is shut down. Its keys stay until its guards are dropped, or it is released without
    /// them.
    pub(crate) fn shut_down(&self) -> EndNotice<'_> {
        self.end(self.state(), LeaseEnd::ShutDown, None)
    }

    /// The release of a lease that has ended, for guards that were not dropped: they release nothing any more. `None` if
    /// they were, or the keys are to stay.
    pub(crate) fn release_for_guards(&self) -> Option<LeaseRelease> {
        let mut state = self.state();
        if state.guards == 0 || std::mem::replace(&mut state.keeps_keys, true) {
            return None;
        }
        let request = Request::Release(Arc::clone(&state.claim), None);
        Some(LeaseRelease { request, targets: state.lease.release_targets() })
    }

    /// Tells the log that it is held for long.
    pub(crate) fn tell_long_held(&self, now: Instant, times: u64) {
        let (claim, held_for) = (self.claim(), self.state().held_for(now));
        let (resource, token) = (claim.resource.display(), claim.token.get());
        contain(|| {
            tracing::warn!(
                resource,
                token,
                ?held_for,
                times,
                "held for long, and renewed without a bound: if its task is stuck nobody else gets it; see max_hold"
            );
        });
    }

    /// Whether anybody has a guard of it.
    pub(crate) fn has_guards(&self) -> bool {
        self.state().guards > 0
    }

    /// From now on the last guard releases the keys, whatever an earlier one wanted.
    pub(crate) fn release_keys(&self) {
        self.state().keeps_keys = false;
    }

    /// From now on the last guard leaves the keys alone.
    pub(crate) fn keep_keys(&self) {
        self.state().keeps_keys = true;
    }

    /// Takes in the end of a round: how long the lease may be relied on now, if the round moved that. P9: by
    /// the clock as it is now, for whoever asked meanwhile may have learnt that the lease is over.
    /// The guard that asked for it, if one did, has it for as long.
    pub(crate) fn settle(
        &self,
        round: &mut Round,
        asked_by: Option<GuardNumber>,
        clock: &dyn Clock,
    ) -> Option<Duration> {
        let mut state = self.state();
        let now = clock.now();
        let remaining = state.settle(round, now)?;
        let valid_until = state.lease.valid_until();
        if let Some(entry) = asked_by.and_then(|number| state.entry(number)) {
            let is_over = |end: &Instant| *end <= now;
            entry.ends_at = entry.ends_at.map(|end| if is_over(&end) { end } else { end.max(valid_until) });
        }
        Some(remaining)
    }

    /// Tells a loss that came just before its caller had it.
    pub(crate) fn take_untold(&self) -> EndNotice<'_> {
        let untold = self.state().untold.take();
        untold.map_or_else(EndNotice::default, |log| EndNotice::of(self, Some(*log)))
    }
}

/// What instances say of it, and its end.
impl HeldLease {
    /// Records what instances have answered so far to a round for it (P20), past its verdict too.
    pub(crate) fn note_replies(&self, round: &Round) {
        let mut state = self.state();
        for (id, answer) in InstanceId::all(round.replies().len()).zip(round.replies()) {
            if let Some(answer) = answer {
                state.note_reply(id, &answer.reply, round.started_at(), round.answered_at(answer));
            }
        }
        self.end_if_gone(state, round.started_at()).tell();
    }

    /// Records what one instance has just answered to an extend that was sent at `sent` (P20).
    pub(crate) fn note_reply(&self, id: InstanceId, reply: &Reply, sent: Instant, clock: &dyn Clock) -> EndNotice<'_> {
        let mut state = self.state();
        state.note_reply(id, reply, sent, clock.now());
        self.end_if_gone(state, sent)
    }

    /// Records that an instance that was asked at `sent` had something else in its place (P20).
    pub(crate) fn note_missing(&self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        let mut state = self.state();
        state.note_missing(id, value, sent);
        self.end_if_gone(state, sent).tell();
    }

    fn end_if_gone(&self, mut state: MutexGuard<'_, HeldLeaseState>, asked_at: Instant) -> EndNotice<'_> {
        if state.has_ended() || !state.lease.no_quorum_has_key() {
            return EndNotice::default();
        }
        let absent = state.lease.absent();
        let keys = state.observed.take(absent);
        let cause = LossCause::Gone(Arc::clone(&keys));
        let log = LossLog { cause, held_for: state.held_for(asked_at), at: asked_at };
        self.end(state, LeaseEnd::Gone(keys), Some(log))
    }

    /// Ends it, unless it has ended already.
    fn end(&self, mut state: MutexGuard<'_, HeldLeaseState>, end: LeaseEnd, log: Option<LossLog>) -> EndNotice<'_> {
        if state.has_ended() {
            return EndNotice::default();
        }
        state.end = Some(end);
        state.renewal = None;
        if state.is_collected_now() {
            return EndNotice::of(self, log);
        }
        state.untold = log.map(Box::new); // what nobody has is no loss
        EndNotice::of(self, None)
    }

    fn is_lost(&self) -> bool {
        matches!(self.state().end, Some(LeaseEnd::Gone(_) | LeaseEnd::Expired(_)))
    }

    /// What is left of it once it is lost: its keys on some instances, perhaps put there by an extend that was in flight when
    /// the others were deleted. Nobody got in for a whole ttl beside them. `None` if that was asked for before.
    pub(crate) fn release_after_loss(&self) -> Option<LeaseRelease> {
        let is_lost = self.is_lost();
        let mut state = self.state();
        if !is_lost || state.keeps_keys || std::mem::replace(&mut state.is_swept, true) {
            return None;
        }
        let request = Request::Release(Arc::clone(&state.claim), None);
        Some(LeaseRelease { request, targets: state.lease.release_targets() })
    }

    /// Tells those who wait for its end, and the log, that it has ended.
    fn tell_end(&self, log: Option<LossLog>) {
        let client = if self.is_lost() { self.client.upgrade() } else { None };
        client.iter().for_each(|client| client.release_after_loss(self)); // before anybody asks again
        contain(|| self.ended.notify_waiters());
        contain(|| self.tenure_ended.notify_waiters());
        if let Some(log) = log {
            self.counters.lost(log.cause.kind());
            let times = self.counters.loss_warnings.note(log.at);
            contain(|| log.write(&self.claim(), times));
        }
    }

    /// Whether it was found that no quorum has kept it. Its keys may be there again: repaired (P10),
    /// which does not undo that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state().end, Some(LeaseEnd::Gone(_)))
    }

    /// How it ended, if it has. Validity that has passed by now ends it here.
    pub(crate) fn ended(&self, clock: &dyn Clock) -> Option<LeaseEnd> {
        let mut state = self.state();
        let now = clock.now(); // P9: what is over for one is over for all who look later
        if state.has_ended() || state.lease.is_valid(now) {
            return state.end.clone();
        }
        let late = state.renewal.take_if(|round| round.verdict(now) == Verdict::Lost);
        let last = late.map(Arc::from).or_else(|| state.failed.take());
        let cause = LossCause::Expired { cause: why_expired(state.policy(), last.as_deref(), now) };
        let log = LossLog { cause, held_for: state.held_for(now), at: now };
        let end = LeaseEnd::Expired(last);
        self.end(state, end.clone(), Some(log)).tell();
        Some(end)
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> LeaseEnd {
        self.wait_on(&self.ended, || self.remaining(clock), || self.ended(clock)).await
    }

    /// Waits until a tenure of it has ended, of which so much remains.
    pub(super) async fn wait_for_tenure_end(
        &self,
        remaining: impl Fn() -> Duration,
        ended: impl Fn() -> Option<LeaseEnd>,
    ) -> LeaseEnd {
        self.wait_on(&self.tenure_ended, remaining, ended).await
    }

    async fn wait_on(
        &self,
        notify: &Notify,
        remaining: impl Fn() -> Duration,
        ended: impl Fn() -> Option<LeaseEnd>,
    ) -> LeaseEnd {
        loop {
            let mut notified = std::pin::pin!(notify.notified());
            notified.as_mut().enable();
            if let Some(end) = ended() {
                return end;
            }
            // Timers only wake, the clock decides (P3): with each poll, or work beside this one could be polled once
            // more, in the moment before the timer is due (P21).
            let mut timer = std::pin::pin!(sleep(remaining()));
            poll_fn(|cx| {
                let is_due = notified.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
                if is_due || ended().is_some() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Tells those who wait for the end of a tenure that one was ended.
    pub(crate) fn note_tenure_end(&self) {
        contain(|| self.tenure_ended.notify_waiters());
    }
}
