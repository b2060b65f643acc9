//! A lease that is held: shared by its guards (P23), handed over within the client (P24), watched by tasks that wait for its
//! loss, and ended in one place. Wakers, logs and metrics are foreign code, and run under no mutex.

mod end;
#[cfg(test)]
pub(super) mod tests;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{
    FencingToken, InstanceId, InstanceSet, Instant, Lease, LeaseTerms, RenewalSchedule, Reply, Round, Verdict,
};
use crate::runtime::counters::Counters;
pub(crate) use end::LeaseEnd;
pub(super) use end::who_did_not_grant;
use end::{LossLog, ObservedKeys};

/// A lease that is held for as many of its ttls is long held.
const LONG_IN_TTLS: u32 = 100;

/// A lease that is held or was.
#[derive(Debug)]
pub(crate) struct HeldLease {
    state: Mutex<HeldLeaseState>,
    /// Its holder; empty if it may not be shared (P23).
    holder: Arc<str>,
    /// Releases what is left of it when it is lost.
    client: Weak<dyn AfterLoss>,
    counters: Arc<Counters>,
    /// Notified when the lease ends, when it is handed over (P24), and when one of several guards is dropped.
    changed: Notify,
}

/// What handles a lease that was lost: the client that has it.
pub(crate) trait AfterLoss: Send + Sync {
    /// The addresses of instances, for the log.
    fn addresses(&self, instances: InstanceSet) -> Vec<String>;

    /// Releases what is left of the lease, behind all that is in flight for it.
    fn release_after_loss(&self, held: &HeldLease);
}

/// What changes while a lease is held.
#[derive(Debug)]
pub(crate) struct HeldLeaseState {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
    /// The token of the present tenure (P24).
    token: FencingToken,
    guards: usize,
    /// Those of them that callers have. Once the lease has ended they stay.
    entries: Vec<GuardEntry>,
    last_number: GuardNumber,
    /// The longest terms of a guard.
    longest: LeaseTerms,
    /// Whether it is not handed over: it ever had a second guard (P23), or its value contains its token (P36).
    is_bound: bool,
    was_handed_over: bool,
    /// Whether it was handed over since a caller had it, so that the next gets a larger token (P24).
    needs_token: bool,
    /// Since when its guards have it.
    since: Instant,
    /// Whether the log says that it is held for long.
    is_long_logged: bool,
    /// Whether the keys are left to expire.
    keeps_keys: bool,
    /// Whether it was lost, and what was left of it was released.
    is_swept: bool,
    end: Option<LeaseEnd>,
    /// Its loss, which is none until a caller has it.
    untold: Option<Box<LossLog>>,
    /// The renewal whose replies are outstanding.
    pub(crate) renewal: Option<Box<Round>>,
    pub(crate) renewal_started_at: Instant,
    observed: ObservedKeys,
    /// The last round that did not extend it.
    failed: Option<Arc<Round>>,
    pub(crate) schedule_key: Option<ScheduleKey>,
    /// Its place among the leases that guards have.
    pub(crate) adoption: Option<u64>,
    /// Whether its keys are in the table of watched keys.
    pub(crate) is_watched: bool,
}

/// The place of a lease in the renewal schedule, which is ordered by `due`, then by `entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScheduleKey {
    pub(crate) due: Instant,
    /// Counts up with everything that is scheduled, so that no two keys are the same.
    pub(crate) entry: u64,
}

/// Identifies a guard of a lease.
pub(crate) type GuardNumber = u32;

/// What one guard wants of its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) terms: LeaseTerms,
    /// Until when it is renewed: [`NEVER_RENEWED`], or [`RENEWED_FOR_EVER`].
    pub(crate) renewed_until: Instant,
    /// When it ends, even if the lease lives on: one ttl after it may be renewed for the last time (P23).
    pub(crate) ends_at: Option<Instant>,
}

pub(crate) const NEVER_RENEWED: Instant = Instant::ZERO;
pub(crate) const RENEWED_FOR_EVER: Instant = Instant::from_nanos(u64::MAX);

/// A guard that a caller has.
#[derive(Clone, Copy, Debug)]
struct GuardEntry {
    number: GuardNumber,
    wish: Wish,
}

/// The end of a lease, for waiting tasks and the log: both are notified when no mutex is held.
#[derive(Debug, Default)]
#[must_use = "waiting tasks are to be notified"]
pub(crate) struct EndNotice<'a>(Option<(&'a HeldLease, Option<LossLog>)>);

impl EndNotice<'_> {
    /// Notifies them, if the lease has just ended.
    pub(crate) fn notify(self) {
        let Some((held, log)) = self.0 else { return };
        let (is_lost, client) = (held.state().is_lost(), held.client.upgrade());
        if let Some(client) = client.as_ref().filter(|_| is_lost) {
            client.release_after_loss(held); // before the next attempt
        }
        held.changed.notify_waiters();
        if let Some(log) = log {
            held.counters.lost(log.kind);
            let times = if log.is_expected() { None } else { held.counters.loss_warnings.note(log.at) };
            let addresses = |instances| client.as_ref().map_or_else(Vec::new, |client| client.addresses(instances));
            log.write(&held.claim(), times, addresses);
        }
    }
}

impl HeldLease {
    /// A lease that was won, with one guard, which no caller has collected yet. Its loss is counted in `counters`.
    pub(crate) fn new(
        lease: Lease,
        (claim, token): (Arc<Claim>, FencingToken),
        holder: Arc<str>,
        client: Weak<dyn AfterLoss>,
        counters: Arc<Counters>,
    ) -> Self {
        let state = Mutex::new(HeldLeaseState::new(lease, claim, token));
        Self { state, holder, client, counters, changed: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HeldLeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its holder; empty if it may not be shared (P23).
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

    /// How long it may still be relied on; zero once it has ended. Does not end it if its validity has just passed.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        let state = self.state();
        state.remaining(clock.now())
    }

    /// Whether it has a guard.
    pub(crate) fn has_guards(&self) -> bool {
        self.state().guards > 0
    }

    /// One more guard for the same holder (P23), which no caller has collected yet; false if it has ended.
    pub(crate) fn add_guard(&self) -> bool {
        let mut state = self.state();
        state.guards += usize::from(!state.has_ended());
        state.is_bound |= !state.has_ended();
        !state.has_ended()
    }

    /// One guard less; `None` for one that no caller has collected. Gives where the lease is to be released, if it was the
    /// last and the keys are not to stay. P7: it is not relied on any more before a release is sent.
    pub(crate) fn drop_guard(&self, number: Option<GuardNumber>) -> (Option<InstanceSet>, EndNotice<'_>) {
        let mut state = self.state();
        state.guards = state.guards.saturating_sub(1);
        if !state.has_ended() {
            state.entries.retain(|entry| Some(entry.number) != number); // else views show its end
        }
        if state.guards > 0 {
            drop(state);
            self.note_tenure_end(); // of this guard
            return (None, EndNotice::default());
        }
        let targets = (!state.keeps_keys).then(|| state.lease.release_targets());
        (targets, self.end(state, LeaseEnd::GivenUp, Instant::ZERO))
    }

    /// Where a lease that has ended is to be released for guards that were not dropped: they release nothing any more.
    /// `None` if they were, or the keys are to stay.
    pub(crate) fn release_for_guards(&self) -> Option<InstanceSet> {
        let mut state = self.state();
        let is_due = state.guards > 0 && !std::mem::replace(&mut state.keeps_keys, true);
        is_due.then(|| state.lease.release_targets())
    }

    /// From now on it ends with its guard, even if callers of the client wait.
    pub(crate) fn never_hand_over(&self) {
        self.state().is_bound = true;
    }

    /// From now on the last guard releases the keys, even if an earlier one was to keep them.
    pub(crate) fn release_keys(&self) {
        self.state().keeps_keys = false;
    }

    /// From now on the last guard leaves the keys alone.
    pub(crate) fn keep_keys(&self) {
        self.state().keeps_keys = true;
    }

    /// The same, so that another client continues the lease; false if it has ended, and is released (P32).
    pub(crate) fn keep_keys_for_others(&self) -> bool {
        let mut state = self.state();
        state.keeps_keys |= !state.has_ended();
        !state.has_ended()
    }

    /// Ends the tenure of its only guard, for another caller of the client; `false` if the lease is to be released instead: that
    /// of a holder, and one that may have other guards (P23). `note_tenure_end` notifies the tasks that wait for the
    /// end.
    pub(crate) fn end_tenure(&self, clock: &dyn Clock) -> bool {
        let mut state = self.state();
        let is_collected = state.last_number > 0;
        let has_token = !is_collected || state.token.next_in_lease().is_some();
        let is_for_others = self.holder.is_empty() && !state.is_bound && !state.keeps_keys && has_token;
        if !is_for_others || state.guards != 1 || state.remaining(clock.now()) < state.lease.terms().min_remaining() {
            return false;
        }
        state.was_handed_over = true;
        state.needs_token = is_collected;
        state.entries.clear();
        true
    }

    /// Notifies tasks that wait for the end of a tenure that one was ended.
    pub(crate) fn note_tenure_end(&self) {
        self.changed.notify_waiters();
    }

    /// Begins the tenure of a guard that is counted already; `None` if the lease has ended, or too little of it is left.
    pub(crate) fn begin_tenure(self: &Arc<Self>, wish: Wish, clock: &dyn Clock) -> Option<Tenure> {
        let mut state = self.state();
        let now = clock.now(); // by the time at which it is relied on
        let least = wish.terms.min_remaining(); // P2
        if state.remaining(now) < least {
            return None;
        }
        if state.needs_token {
            state.token = state.token.next_in_lease()?;
            state.needs_token = false;
        }
        if state.entries.is_empty() {
            (state.since, state.is_long_logged) = (now, false);
        }
        let (guard, is_handed_over, token) = (state.add_entry(wish), state.was_handed_over, state.token);
        drop(state);
        Some(Tenure { held: Arc::clone(self), guard, is_handed_over, token })
    }

    /// Takes in the end of a round: how long the lease may be relied on now, if the round moved that. P9: by
    /// the clock as it is now, for the caller may have learnt meanwhile that the lease is over.
    /// The guard that extends it, if one does, has it for as long.
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
            entry.wish.ends_at = entry.wish.ends_at.map(|end| if is_over(&end) { end } else { end.max(valid_until) });
        }
        Some(remaining)
    }

    /// Logs that it is held for long.
    pub(crate) fn tell_long_held(&self, now: Instant, times: u64) {
        let (claim, held_for) = (self.claim(), self.state().held_for(now));
        let (resource, token) = (claim.resource.display(), claim.token.get());
        tracing::warn!(
            resource,
            token,
            ?held_for,
            times,
            "held for long, and renewed without a limit: if its task is stuck, no other client gets the lock; see max_hold"
        );
    }
}

/// What instances say of it, and its end.
impl HeldLease {
    /// Records what instances have answered so far to a round for it (P20), past its verdict too.
    pub(crate) fn note_replies(&self, round: &Round) {
        let mut state = self.state();
        for (id, answer) in round.answers() {
            state.note_reply(id, &answer.reply, round.started_at(), round.answered_at(answer));
        }
        self.end_if_gone(state, round.started_at()).notify();
    }

    /// Records what one instance has just answered to an extend that was sent at `sent` (P20).
    pub(crate) fn note_reply(&self, id: InstanceId, reply: &Reply, sent: Instant, clock: &dyn Clock) -> EndNotice<'_> {
        let mut state = self.state();
        state.note_reply(id, reply, sent, clock.now());
        self.end_if_gone(state, sent)
    }

    /// Records that an instance that got a request at `sent` had another value in its place (P20).
    pub(crate) fn note_missing(&self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        let mut state = self.state();
        state.observe(id, value, sent);
        state.lease.note_missing(id, sent);
        state.claim.votes.lock().forget(id, sent);
        self.end_if_gone(state, sent).notify();
    }

    fn end_if_gone(&self, mut state: MutexGuard<'_, HeldLeaseState>, asked_at: Instant) -> EndNotice<'_> {
        if state.has_ended() || !state.lease.no_quorum_has_key() {
            return EndNotice::default();
        }
        let absent = state.lease.absent();
        let keys = state.observed.take(absent);
        self.end(state, LeaseEnd::Gone(keys), asked_at)
    }

    /// Ends it because the client is shut down. Its keys stay until its guards are dropped, or it is released without
    /// them.
    pub(crate) fn shut_down(&self) -> EndNotice<'_> {
        self.end(self.state(), LeaseEnd::ShutDown, Instant::ZERO)
    }

    /// Ends it, unless it has ended already; a loss showed `at` that time.
    fn end(&self, mut state: MutexGuard<'_, HeldLeaseState>, end: LeaseEnd, at: Instant) -> EndNotice<'_> {
        if state.has_ended() {
            return EndNotice::default();
        }
        let log = end.loss().map(|kind| LossLog {
            kind,
            end: end.clone(),
            was_renewed: state.is_renewed(),
            held_for: state.held_for(at),
            at,
        });
        state.end = Some(end);
        state.renewal = None;
        if state.is_collected() {
            return EndNotice(Some((self, log)));
        }
        state.untold = log.map(Box::new); // without a guard there is no loss
        EndNotice(Some((self, None)))
    }

    /// Reports a loss that came just before its caller had it.
    pub(crate) fn take_untold(&self) -> EndNotice<'_> {
        EndNotice(self.state().untold.take().map(|log| (self, Some(*log))))
    }

    /// Where what is left of it once it is lost is to be released: its keys on some instances, perhaps put there by an extend
    /// that was in flight when the others were deleted. Beside them no client gets the lock for a whole ttl. `None` if that was
    /// requested before.
    pub(crate) fn release_after_loss(&self) -> Option<InstanceSet> {
        let mut state = self.state();
        let is_lost = state.is_lost();
        if !is_lost || state.keeps_keys || std::mem::replace(&mut state.is_swept, true) {
            return None;
        }
        Some(state.lease.release_targets())
    }

    /// Whether it was found that no quorum has kept it. Its keys may be there again: repaired (P10),
    /// which does not undo that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state().end, Some(LeaseEnd::Gone(_)))
    }

    /// Whether its last guard gave it up.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.state().end, Some(LeaseEnd::GivenUp))
    }

    /// Whether it has ended, and its keys are released.
    pub(crate) fn is_released(&self) -> bool {
        let state = self.state();
        state.has_ended() && !state.keeps_keys
    }

    /// How it ended, if it has. Validity that has passed by now ends it here.
    pub(crate) fn ended(&self, clock: &dyn Clock) -> Option<LeaseEnd> {
        let mut state = self.state();
        let now = clock.now(); // P9: what is over for one is over for all who look later
        if state.has_ended() || state.lease.is_valid(now) {
            return state.end.clone();
        }
        let late = state.renewal.take_if(|round| round.verdict(now) == Verdict::Lost);
        let is_open = state.renewal.as_mut().is_some_and(|round| round.verdict(now) != Verdict::Won);
        let end = match late.map(Arc::from).or_else(|| state.failed.take()) {
            None if state.is_renewed() && !state.is_renewed_at(now) && !is_open => LeaseEnd::MaxHold,
            last => LeaseEnd::Expired(last),
        };
        self.end(state, end.clone(), now).notify();
        Some(end)
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> LeaseEnd {
        self.wait_on(|| self.remaining(clock), || self.ended(clock)).await
    }

    async fn wait_on(&self, remaining: impl Fn() -> Duration, ended: impl Fn() -> Option<LeaseEnd>) -> LeaseEnd {
        loop {
            let mut notified = std::pin::pin!(self.changed.notified());
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
}

impl HeldLeaseState {
    fn new(lease: Lease, claim: Arc<Claim>, token: FencingToken) -> Self {
        let terms = lease.terms();
        let since = lease.valid_until().saturating_sub(terms.ttl().saturating_sub(terms.drift()));
        Self {
            since,
            is_long_logged: false,
            token,
            lease,
            claim,
            guards: 1,
            entries: Vec::with_capacity(1), // there are many leases, and few have a second guard
            last_number: 0,
            longest: terms,
            is_bound: false,
            was_handed_over: false,
            needs_token: false,
            keeps_keys: false,
            is_swept: false,
            end: None,
            untold: None,
            renewal: None,
            renewal_started_at: Instant::ZERO,
            observed: ObservedKeys::default(),
            failed: None,
            schedule_key: None,
            adoption: None,
            is_watched: false,
        }
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn is_lost(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.loss().is_some())
    }

    /// Whether a caller has a guard of it. Else it is not renewed (P22).
    pub(crate) const fn is_collected(&self) -> bool {
        !self.entries.is_empty()
    }

    /// A caller has one of its guards from now on. The settings of other callers do not count (P22).
    fn add_entry(&mut self, wish: Wish) -> GuardNumber {
        self.last_number += 1;
        self.longest = self.longest.longer(wish.terms);
        self.entries.push(GuardEntry { number: self.last_number, wish });
        self.last_number
    }

    fn entry(&mut self, number: GuardNumber) -> Option<&mut GuardEntry> {
        self.entries.iter_mut().find(|entry| entry.number == number)
    }

    /// Until when it is renewed: while one of its guards wants that (P23).
    pub(crate) fn renewed_until(&self) -> Instant {
        self.entries.iter().map(|entry| entry.wish.renewed_until).max().unwrap_or(NEVER_RENEWED)
    }

    /// Whether it is renewed at all.
    pub(crate) fn is_renewed(&self) -> bool {
        self.renewed_until() > NEVER_RENEWED
    }

    /// Whether it is renewed at `now`.
    pub(crate) fn is_renewed_at(&self, now: Instant) -> bool {
        now < self.renewed_until()
    }

    /// The terms of its renewals: with the longest ttl of a guard (P23).
    pub(crate) fn renewal_terms(&self) -> LeaseTerms {
        self.lease.terms().longer(self.longest)
    }

    /// When it is renewed again after a renewal that was begun at `started_at` (P19), but not before `now`.
    pub(crate) fn retry_at(&self, started_at: Instant, now: Instant) -> Instant {
        let due = RenewalSchedule::new(self.lease.terms().ttl()).after_failure(started_at);
        due.max(now).min(self.lease.valid_until())
    }

    /// How long it may still be relied on; zero once it has ended.
    fn remaining(&self, now: Instant) -> Duration {
        if self.has_ended() { Duration::ZERO } else { self.lease.remaining(now) }
    }

    /// Records what one instance answered, at `answered`, to a request for the lease that was sent at `sent` (P20).
    fn note_reply(&mut self, id: InstanceId, reply: &Reply, sent: Instant, answered: Instant) {
        match reply {
            Reply::Repaired => self.observe(id, None, sent),
            Reply::Refused(refusal) => self.observe(id, refusal.value.clone(), sent),
            _ => {}
        }
        self.lease.note_reply(id, reply, sent, answered);
    }

    /// A key on an instance that had not granted the lease was there before it, and shows nothing of its end.
    fn observe(&mut self, id: InstanceId, value: Option<Vec<u8>>, sent: Instant) {
        if self.lease.had_key(id, sent) {
            self.observed.record(id, value);
        }
    }

    /// Takes in the end of a round at `now`, read after this was locked: the validity that is left, if
    /// the round moved it on.
    pub(crate) fn settle(&mut self, round: &mut Round, now: Instant) -> Option<Duration> {
        if self.has_ended() || !self.lease.settle(round, now) {
            return None;
        }
        self.observed.keep_only(self.lease.absent());
        self.failed = None;
        Some(self.lease.remaining(now))
    }

    /// Records a round that did not extend it; whether it is the first since one did.
    pub(crate) fn note_failure(&mut self, round: &Round) -> bool {
        self.failed.replace(Arc::new(round.clone())).is_none()
    }

    /// Whether it has been renewed for so long, without a bound, that a warning is due; true once.
    pub(crate) fn is_long_held(&mut self, now: Instant) -> bool {
        let longest = self.lease.terms().ttl().saturating_mul(LONG_IN_TTLS);
        let is_long = self.renewed_until() == RENEWED_FOR_EVER && self.held_for(now) >= longest;
        is_long && !std::mem::replace(&mut self.is_long_logged, true)
    }

    /// For how long its guards have had it.
    fn held_for(&self, now: Instant) -> Duration {
        now.saturating_since(self.since)
    }

    /// The claim of an extend with this ttl: a release must know of it, before it is sent (P6).
    pub(crate) fn claim_to_extend(&mut self, ttl: Duration) -> Arc<Claim> {
        if ttl != self.claim.ttl || !self.claim.resent {
            self.claim = Arc::new(self.claim.extended_to(ttl));
        }
        Arc::clone(&self.claim)
    }
}

/// The time during which a guard has a lease. It ends with the lease, or before: when the guard is dropped, when the
/// lease is handed over, and when the guard has had it for as long as it wanted, while other guards of its holder continue (P23).
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) held: Arc<HeldLease>,
    pub(crate) guard: GuardNumber,
    /// Whether another caller had the lease before.
    pub(crate) is_handed_over: bool,
    /// The token with which it began.
    pub(crate) token: FencingToken,
}

impl Tenure {
    /// How long the lease may still be relied on; zero once the tenure has ended.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        let mut state = self.held.state();
        let Some(entry) = state.entry(self.guard).copied() else { return Duration::ZERO };
        let now = clock.now();
        let remaining = state.remaining(now);
        entry.wish.ends_at.map_or(remaining, |end| remaining.min(end.saturating_since(now)))
    }

    pub(crate) fn claim(&self) -> Arc<Claim> {
        self.held.claim()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> LeaseEnd {
        self.held.wait_on(|| self.remaining(clock), || self.ended(clock)).await
    }

    /// How it ended, if it has.
    fn ended(&self, clock: &dyn Clock) -> Option<LeaseEnd> {
        let end = self.held.ended(clock);
        let entry = self.held.state().entry(self.guard).copied();
        match (end, entry) {
            (Some(LeaseEnd::ShutDown), _) => Some(LeaseEnd::ShutDown),
            // A guard that was dropped while others had the lease does not lose it with them.
            (_, None) => Some(LeaseEnd::GivenUp),
            (Some(end), Some(_)) => Some(end),
            (None, Some(entry)) => {
                entry.wish.ends_at.is_some_and(|end| clock.now() >= end).then_some(LeaseEnd::MaxHold)
            }
        }
    }
}
