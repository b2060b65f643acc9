//! Which caller of this client has a lock, and which wait for it, first come first served (P24).
//!
//! Each lock has a slot with a fair mutex. The waiter that has the mutex is the next: it waits until the lease of this
//! client is offered for it, released or lost, and sends an attempt if there is none. With a lease it leaves the
//! mutex to the waiter behind it. So one waiter of a client tries to get a lock at a time, and one watches its lease. Readers that wait
//! one behind the other have the mutex together, each until it reads (P34).
//!
//! Waiting acquires are counted: a lease that was offered belongs to them, and the last that leaves releases it. Everything but
//! the mutex is decided under the slot's state, and nothing foreign runs there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::sync::futures::Notified;
use tokio::sync::{
    Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock as FairMutex, Semaphore, watch,
};
use tokio::time::{sleep, timeout};

use super::{AcquireFailure, AcquireParams, Purpose};
use crate::clock::Clock;
use crate::protocol::{
    Access, FencingToken, InstanceId, Instant, LeaseTerms, Reply, RetryDelay, Round, RoundFailure, Value, WriterMark,
};
use crate::random;
use crate::resource::{ByResource, Resource};
use crate::runtime::held_lease::HeldLease;
use crate::runtime::order::Wait;
use crate::runtime::wait_events::{AskReason, TARGET};

/// So many attempts of a client are under way at once: as many as the commands that may be on their way to an instance can
/// carry. Thousands that are sent together wait in front of the connections for longer than the instance timeout;
/// they are all given up, released and sent again, and hardly any is won.
const MAX_ASKS: usize = 256;

/// So many of them may be repeated because a pause is over. The waiters of thousands of locks that other clients have poll
/// now and then: first attempts, and those of waiters that were woken, are not to queue behind them.
const MAX_REPEATS: usize = 192;

/// So often in a row a lock is handed over while others are known to wait for it, or cannot be known.
const MOST_IN_A_ROW: u32 = 16;

/// For how long a lock is handed over at most: clients that only poll are not known.
const LONGEST_ROW: Duration = Duration::from_secs(1);

/// The longest pause of a writer that has left a mark, which ends after three seconds.
pub(super) const LONGEST_MARKED_PAUSE: Duration = Duration::from_secs(1);

/// The slots of a client, by what they are for.
pub(crate) struct Slots {
    asks: Arc<Semaphore>,
    repeats: Arc<Semaphore>,
    /// The last round, for any lock, to which too few instances answered.
    no_quorum: watch::Sender<Option<Box<Round>>>,
    /// A slot is in it while a caller has a place in it, or the lock.
    slots: Mutex<ByResource<Arc<Slot>>>,
}

pub(super) struct Slot {
    resource: Resource,
    queue: Arc<FairMutex<Asking>>,
    state: Mutex<SlotState>,
    /// Notifies the next waiter that a lease was offered, released or won.
    changed: Notify,
    /// Notifies single tries, and waiters whose wait is over, that a lease was won, or the reason why not is known.
    news: Notify,
    /// Notifies waiters of holders that another of the same holder has won (P23).
    holder_won: Notify,
}

/// This client has ended a lease, and releases its keys.
#[derive(Debug)]
pub(crate) struct Released;

/// The right to send an attempt.
#[expect(dead_code, reason = "its parts are given back with it")]
pub(super) struct AskPermit(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// A waiter that has this is the next.
pub(super) enum Turn {
    Writer(OwnedRwLockWriteGuard<Asking>),
    /// One of several perhaps.
    Reader(OwnedRwLockReadGuard<Asking>),
}

#[derive(Debug, Default)]
struct SlotState {
    /// How many have a place.
    places: usize,
    /// How many of them wait; the others try once.
    waiting: usize,
    /// How many of those are readers, and how many of the readers are next.
    readers: usize,
    readers_next: usize,
    /// How many of those are counted in another line, where one of several locks is enough (P35).
    counted_elsewhere: usize,
    /// How many of those that have a place have the same holder, for each.
    of_holder: BTreeMap<Arc<str>, usize>,
    /// What the next waiter wants, if it is a writer that waits.
    next: Option<Arc<AcquireParams>>,
    /// The lease that this client has, as far as it is known; also while it is offered.
    held: Option<Arc<HeldLease>>,
    /// A lease without a guard, for the next waiter.
    offered: Option<Arc<HeldLease>>,
    turns: Turns,
    /// Whether an attempt was sent for the present waiters.
    is_asked: bool,
    /// Why the last attempt for them failed.
    last_failure: Option<AcquireFailure>,
    /// How many rounds of single tries have begun, and the number, the terms and the failure of the last that was lost.
    tries: u64,
    lost_try: Option<(u64, LeaseTerms, AcquireFailure)>,
}

/// What the next does.
pub(super) enum Step {
    /// It has this lease.
    Take(Arc<HeldLease>),
    /// It waits for the end of this one.
    Watch(Arc<HeldLease>),
    /// It waits for a release that is about to be queued.
    AwaitRelease,
    /// It leaves the lock to others for a moment.
    Pause,
    /// It sends an attempt.
    Ask,
}

impl Default for Slots {
    fn default() -> Self {
        let [asks, repeats] = [MAX_ASKS, MAX_REPEATS].map(|most| Arc::new(Semaphore::new(most)));
        Self { asks, repeats, no_quorum: watch::Sender::default(), slots: Mutex::default() }
    }
}

impl Slots {
    /// One more place in the slot for a lock.
    pub(super) fn enter(&self, params: &AcquireParams, waits: bool) -> Arc<Slot> {
        self.with_slot(&params.resource, |state| state.count(params, waits, |places| *places += 1))
    }

    /// Whether no caller of this client has the lock or tries to get it. A guard may still be there whose lease was lost.
    pub(super) fn is_idle(&self, resource: &Resource, clock: &dyn Clock) -> bool {
        let Some(slot) = self.find(resource) else { return true };
        let state = slot.lock();
        // One that is given up is about to be released.
        let is_lost = |held: &Arc<HeldLease>| held.remaining(clock).is_zero() && !held.is_given_up();
        state.places == 0 && state.held.as_ref().is_none_or(is_lost)
    }

    /// Whether this client has the lock.
    pub(super) fn is_held(&self, resource: &Resource, clock: &dyn Clock) -> bool {
        self.find(resource).is_some_and(|slot| slot.lock().held_here(clock).is_some())
    }

    /// A permit for a first attempt, if there is one now.
    pub(super) fn ask_now(&self) -> Option<AskPermit> {
        Arc::clone(&self.asks).try_acquire_owned().ok().map(|ask| AskPermit(ask, None))
    }

    /// A permit for an attempt, as soon as there is one. Given back with the attempt's outcome.
    pub(super) async fn ask(&self, is_repeat: bool) -> Result<AskPermit, AcquireFailure> {
        let permit = async |of: &Arc<Semaphore>| {
            Arc::clone(of).acquire_owned().await.map_err(|_| AcquireFailure::ShutDown) // it is never closed
        };
        let repeat = if is_repeat { Some(permit(&self.repeats).await?) } else { None };
        Ok(AskPermit(permit(&self.asks).await?, repeat))
    }

    /// An attempt was lost. If too few instances have answered, that says the same of all other locks, as far as it is not about this one.
    pub(super) fn note_lost(&self, round: &Round) {
        let is_for_all = |reply: &Reply| match reply {
            Reply::NotSent(cause) | Reply::Unknown(cause) => !cause.may_be_of_one_request(),
            _ => false,
        };
        let silent = round.which(|reply| reply.is_some_and(is_for_all));
        let no_quorum = RoundFailure::of(round) == RoundFailure::NoQuorum;
        if !no_quorum || !round.quorum().is_out_of_reach(silent.len()) {
            return;
        }
        let mut of_others = Round::release(round.quorum(), round.started_at());
        for (id, answer) in InstanceId::all(round.replies().len()).zip(round.replies()) {
            // The rest were not waited for.
            if let Some(reply) = answer.as_ref().map(|answer| &answer.reply).filter(|reply| is_for_all(reply)) {
                of_others.record(id, reply.clone(), round.started_at());
            }
        }
        self.no_quorum.send_replace(Some(Box::new(of_others)));
    }

    /// Returns once too few instances have answered to a round that began after this.
    pub(super) async fn no_quorum_since(&self, begun: Instant) -> AcquireFailure {
        let mut last = self.no_quorum.subscribe();
        let round = last.wait_for(|last| last.as_ref().is_some_and(|round| round.started_at() > begun)).await;
        match round.ok().and_then(|round| round.clone()) {
            Some(round) => AcquireFailure::RoundLost(round),
            None => std::future::pending().await, // it is never closed
        }
    }

    /// From now on this client has this lease, which was just won.
    pub(crate) fn put_held(&self, held: &Arc<HeldLease>) {
        let (mut former, mut is_awaited) = (None, false);
        let slot = self.with_slot(&held.claim().resource, |state| {
            is_awaited = state.of_holder.get(held.holder()).is_some_and(|places| *places > 1);
            state.turns.won();
            (state.last_failure, state.is_asked) = (None, false);
            former = state.held.replace(Arc::clone(held));
        });
        drop(former);
        slot.changed.notify_one();
        slot.news.notify_waiters();
        if is_awaited {
            slot.holder_won.notify_waiters();
        }
    }

    /// One more guard, which no caller has collected yet, of the lease that the same holder has; `None` if it has none.
    pub(super) fn share(&self, params: &AcquireParams) -> Option<Arc<HeldLease>> {
        if params.holder.is_empty() || params.access == Access::Read {
            return None; // each reader has a lease of its own (P33)
        }
        self.find(&params.resource)?.share(|held| *held.holder() == params.holder)
    }

    /// One more guard, which no caller has collected yet, of the lease with this value; `None` if this client does not have
    /// it. An error if it has released the lease, or is about to.
    pub(crate) fn share_value(&self, resource: &Resource, value: &Value) -> Result<Option<Arc<HeldLease>>, Released> {
        let Some(slot) = self.find(resource) else { return Ok(None) };
        let state = slot.lock();
        match state.held.as_ref().filter(|held| held.claim().value == *value) {
            Some(held) if held.add_guard() => Ok(Some(Arc::clone(held))),
            Some(held) if held.is_released() => Err(Released),
            _ => Ok(None),
        }
    }

    /// Why a single try is not sent: another caller of this client has the lock or waits for it; readers do not wait for readers.
    pub(super) fn refusal(&self, params: &AcquireParams, clock: &dyn Clock) -> Option<AcquireFailure> {
        self.find(&params.resource)?.refusal(params, u64::MAX, clock)
    }

    /// Whether this holder has the lock, in this client.
    pub(crate) fn is_held_by(&self, resource: &Resource, holder: &str, clock: &dyn Clock) -> bool {
        let is_it = |held: &Arc<HeldLease>| **held.holder() == *holder && !held.remaining(clock).is_zero();
        self.find(resource).is_some_and(|slot| slot.lock().held.as_ref().is_some_and(is_it))
    }

    /// How many of this client wait for the lock.
    pub(crate) fn waiting(&self, resource: &Resource) -> usize {
        self.find(resource).map_or(0, |slot| slot.lock().waiting)
    }

    /// Whether writers of this client wait for the lock.
    pub(crate) fn is_waited_for_to_write(&self, resource: &Resource) -> bool {
        self.find(resource).is_some_and(|slot| slot.lock().writers() > 0)
    }

    /// How many of this client wait, for any lock.
    pub(crate) fn all_waiting(&self) -> usize {
        let counted = |state: &SlotState| state.waiting.saturating_sub(state.counted_elsewhere);
        self.lock().values().map(|slot| counted(&slot.lock())).sum()
    }

    /// Offers a lease that its guard gives up to the next waiter; `false` if it is to be released. `others` returns how many are
    /// known to wait in other clients, if that can be known.
    pub(crate) fn hand_over(
        &self,
        held: &Arc<HeldLease>,
        others: impl FnOnce() -> Option<usize>,
        clock: &dyn Clock,
    ) -> bool {
        self.find(&held.claim().resource).is_some_and(|slot| slot.hand_over(held, others, clock))
    }

    /// A lease was given up. Its release is queued by now, so that the next attempt is sent behind it.
    pub(crate) fn let_go(&self, held: &Arc<HeldLease>) {
        let Some(slot) = self.find(&held.claim().resource) else { return };
        let known = slot.lock().held.take_if(|known| Arc::ptr_eq(known, held));
        if known.is_some() {
            slot.changed.notify_one();
            slot.news.notify_waiters();
            self.tidy(&slot);
        }
    }

    /// Removes what is not needed any more.
    pub(super) fn tidy(&self, slot: &Arc<Slot>) {
        drop(slot.forget_wait());
        let mut slots = self.lock();
        let is_idle = {
            let state = slot.lock();
            state.places == 0 && state.held.is_none()
        };
        let is_known = slots.get(&slot.resource).is_some_and(|known| Arc::ptr_eq(known, slot));
        let removed = if is_idle && is_known { slots.remove(&slot.resource) } else { None };
        drop(slots);
        drop(removed);
    }

    /// How many there are.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Changes the slot under the mutex of all of them, so that it is not removed meanwhile.
    fn with_slot(&self, resource: &Resource, change: impl FnOnce(&mut SlotState)) -> Arc<Slot> {
        let mut slots = self.lock();
        let slot = slots.entry(resource.clone()).or_insert_with(|| Arc::new(Slot::new(resource.clone())));
        change(&mut slot.lock());
        Arc::clone(slot)
    }

    fn find(&self, resource: &Resource) -> Option<Arc<Slot>> {
        self.lock().get(resource).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, ByResource<Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn new(resource: Resource) -> Self {
        let (queue, state) = (Arc::default(), Mutex::default());
        Self { resource, queue, state, changed: Notify::new(), news: Notify::new(), holder_won: Notify::new() }
    }

    pub(super) const fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Why a single try is not sent that came after so many rounds of others had begun.
    pub(super) fn refusal(&self, params: &AcquireParams, came_after: u64, clock: &dyn Clock) -> Option<AcquireFailure> {
        let state = self.lock();
        let before = if params.access == Access::Read { state.writers() } else { state.waiting };
        let waited_for = || state.last_failure.clone().unwrap_or(AcquireFailure::WAITED_FOR);
        let lost = state.lost_try.as_ref().filter(|(number, terms, failure)| {
            *number > came_after && (*terms == params.terms || !failure.is_of_its_terms())
        });
        let refusal = state.held_here(clock).or_else(|| (before > 0).then(waited_for));
        refusal.or_else(|| lost.map(|(.., failure)| failure.clone()))
    }

    /// How many rounds of single tries have begun.
    pub(super) fn tries(&self) -> u64 {
        self.lock().tries
    }

    /// A single try begins a round, which counts for all that have come by now; its number.
    pub(super) fn begin_try(&self) -> u64 {
        let mut state = self.lock();
        state.tries += 1;
        state.tries
    }

    /// The round of a single try is lost.
    pub(super) fn note_lost_try(&self, number: u64, terms: LeaseTerms, failure: AcquireFailure) {
        let former = self.lock().lost_try.replace((number, terms, failure));
        drop(former);
        self.news.notify_waiters();
    }

    /// The turn, as soon as all those before have had theirs.
    pub(super) fn turn(&self, access: Access) -> impl Future<Output = Turn> + use<> {
        let queue = Arc::clone(&self.queue);
        match access {
            Access::Write => Either::Left(queue.write_owned().map(Turn::Writer)),
            Access::Read => Either::Right(queue.read_owned().map(Turn::Reader)),
        }
    }

    /// The turn, if no other caller has it, or waits for it.
    pub(super) fn turn_now(&self, access: Access) -> Option<Turn> {
        let queue = Arc::clone(&self.queue);
        match access {
            Access::Write => queue.try_write_owned().ok().map(Turn::Writer),
            Access::Read => queue.try_read_owned().ok().map(Turn::Reader),
        }
    }

    /// It is the turn of one that waits for this.
    pub(super) fn begin_turn(&self, params: &Arc<AcquireParams>) {
        let mut state = self.lock();
        match params.access {
            Access::Write => state.next = Some(Arc::clone(params)),
            Access::Read => state.readers_next += 1,
        }
    }

    /// It is not any more.
    pub(super) fn end_turn(&self, access: Access) {
        let mut state = self.lock();
        let mut former = None;
        match access {
            Access::Write => former = state.next.take(),
            Access::Read => state.readers_next -= 1,
        }
        drop(state);
        drop(former);
    }

    /// One place less. The last that waits has to release the lease that was offered.
    pub(super) fn leave(&self, params: &AcquireParams, waits: bool) -> Option<Arc<HeldLease>> {
        let mut state = self.lock();
        state.count(params, waits, |places| *places -= 1);
        let (mut offered, mut last_failure) = (None, None);
        if state.waiting == 0 {
            (offered, last_failure, state.is_asked) = (state.offered.take(), state.last_failure.take(), false);
        }
        drop(state);
        drop(last_failure);
        offered
    }

    /// Waits for a change that concerns the next.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// News for those whose wait is over, and for readers that are next.
    pub(super) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// News for those of whose holder another has won.
    pub(super) fn holder_won(&self) -> Notified<'_> {
        self.holder_won.notified()
    }

    /// Whether a caller that comes now may send an attempt.
    pub(super) fn is_free(&self) -> bool {
        let state = self.lock();
        state.held.is_none() && state.offered.is_none() && !state.turns.is_pause_due()
    }

    /// What the next does.
    pub(super) fn next_step(&self, clock: &dyn Clock) -> Step {
        let mut state = self.lock();
        if let Some(held) = state.offered.take() {
            return Step::Take(held);
        }
        if let Some(held) = &state.held {
            if !held.remaining(clock).is_zero() {
                return Step::Watch(Arc::clone(held));
            }
            if held.is_given_up() {
                return Step::AwaitRelease;
            }
            state.held = None;
        }
        if state.turns.take_pause() { Step::Pause } else { Step::Ask }
    }

    /// An attempt for the waiters is sent.
    pub(super) fn note_ask(&self) {
        self.lock().is_asked = true;
    }

    /// Whether an attempt for the present waiters is under way, or has ended.
    pub(super) fn is_asked(&self) -> bool {
        self.lock().is_asked
    }

    /// Notes why an attempt, or a round of it, has failed; whether this client has the lock. What `note` gives back is dropped without the
    /// mutex.
    pub(super) fn note_failure(
        &self,
        note: impl FnOnce(&mut Option<AcquireFailure>) -> Option<AcquireFailure>,
        clock: &dyn Clock,
    ) -> bool {
        let mut state = self.lock();
        let unused = note(&mut state.last_failure);
        let is_held_here = state.held_here(clock).is_some();
        drop(state);
        drop(unused);
        self.news.notify_waiters();
        is_held_here
    }

    /// Why the waiters do not have the lock, as far as it is known.
    pub(super) fn why_not_yet(&self, clock: &dyn Clock) -> Option<AcquireFailure> {
        let state = self.lock();
        state.held_here(clock).or_else(|| state.last_failure.clone())
    }

    fn share(&self, is_meant: impl FnOnce(&HeldLease) -> bool) -> Option<Arc<HeldLease>> {
        let state = self.lock();
        // Counted under the lease's mutex, so that it is not given up meanwhile.
        state.held.as_ref().filter(|held| is_meant(held) && held.add_guard()).cloned()
    }

    fn hand_over(&self, held: &Arc<HeldLease>, others: impl FnOnce() -> Option<usize>, clock: &dyn Clock) -> bool {
        let mut state = self.lock();
        let is_known = state.held.as_ref().is_some_and(|known| Arc::ptr_eq(known, held));
        if !is_known || state.waiting == 0 || state.offered.is_some() || state.turns.is_over(others, clock.now()) {
            return false;
        }
        // The next waiter looks at it then.
        let is_wanted = state.next.as_ref().is_none_or(|next| next.may_take(held, clock));
        if !is_wanted || state.readers_next > 0 || !held.end_tenure(clock) {
            return false;
        }
        state.offered = Some(Arc::clone(held));
        let (in_a_row, waiting_here) = (state.turns.handed_over(), state.waiting);
        drop(state);
        held.note_tenure_end(); // the former guard has ended before the next one begins
        self.changed.notify_one();
        tracing::debug!(target: TARGET, resource = self.resource.display(), in_a_row, waiting_here, "handed over");
        true
    }

    /// The wait among other clients, and how it went so far, if no caller waits any more.
    fn forget_wait(&self) -> Option<Asking> {
        if self.lock().waiting > 0 {
            return None;
        }
        // The caller that has the turn tidies up after it.
        self.queue.try_write().ok().map(|mut asking| std::mem::take(&mut *asking))
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    /// Counts a place that is taken or left in each count that it belongs to.
    fn count(&mut self, params: &AcquireParams, waits: bool, change: impl Fn(&mut usize)) {
        change(&mut self.places);
        if waits {
            change(&mut self.waiting);
        }
        if waits && params.access == Access::Read {
            change(&mut self.readers);
        }
        if waits && params.purpose == Purpose::Permit {
            change(&mut self.counted_elsewhere);
        }
        if !params.holder.is_empty() {
            let places = self.of_holder.entry(Arc::clone(&params.holder)).or_default();
            change(places);
            if *places == 0 {
                self.of_holder.remove(&params.holder);
            }
        }
    }

    /// How many writers wait.
    const fn writers(&self) -> usize {
        self.waiting.saturating_sub(self.readers)
    }

    /// Who of this client has the lock.
    fn held_here(&self, clock: &dyn Clock) -> Option<AcquireFailure> {
        let held = self.held.as_ref()?;
        let expires_in = held.remaining(clock);
        let held_here = || AcquireFailure::HeldHere { by: Some(held.claim()), expires_in: Some(expires_in) };
        (!expires_in.is_zero()).then(held_here)
    }
}

/// How often a lock was handed over, and whether it is the turn of another client.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How often the lease was handed over since it was won, and since when.
    in_a_row: u32,
    since: Option<Instant>,
    /// Whether other clients get their turn before this one tries again.
    pause_due: bool,
}

impl Turns {
    /// How often it was handed over by now.
    pub(super) const fn handed_over(&mut self) -> u32 {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.in_a_row
    }

    /// A lease was won.
    pub(super) fn won(&mut self) {
        *self = Self::default();
    }

    /// Whether the lock is to be given up for other clients, after so many hand-offs in a row, or a second of them. `others` returns
    /// how many are known to wait elsewhere, if that can be known.
    pub(super) fn is_over(&mut self, others: impl FnOnce() -> Option<usize>, now: Instant) -> bool {
        let is_long = now.saturating_since(*self.since.get_or_insert(now)) >= LONGEST_ROW;
        if self.in_a_row < MOST_IN_A_ROW && !is_long {
            return false;
        }
        match others() {
            Some(0) if !is_long => return false,
            Some(1..) => {} // the first of them is woken, and this client backs off for it (P26)
            _ => self.pause_due = true,
        }
        true
    }

    pub(super) const fn is_pause_due(&self) -> bool {
        self.pause_due
    }

    /// Whether to pause now.
    pub(super) fn take_pause(&mut self) -> bool {
        std::mem::take(&mut self.pause_due)
    }
}

/// What one waiter of a lock passes on to the next, until the lock is won.
#[derive(Default)]
pub(super) struct Asking {
    /// The largest token that the last attempt has seen (P12).
    pub(super) seen: Option<FencingToken>,
    /// How many attempts were sent, in how many rounds.
    pub(super) asks: u32,
    pub(super) rounds: usize,
    /// Why the next attempt is sent.
    pub(super) why: AskReason,
    /// How many attempts have failed.
    failures: u32,
    /// The wait in order with other clients, if this one keeps that (P25).
    /// Begun with the first failure. Each lock that is held has a slot, and hardly any of them a wait.
    /// In a mutex, as the mark, because several readers may be next.
    wait: Mutex<Option<Option<Box<Wait>>>>,
    /// The mark that refuses new readers, once readers have refused this client (P34).
    mark: Mutex<Option<LeftMark>>,
}

impl Asking {
    /// The mark that an attempt leaves where readers refuse it.
    pub(super) fn mark(&self) -> Option<Arc<WriterMark>> {
        self.left_mark().as_ref().map(|left| Arc::clone(&left.mark))
    }

    fn left_mark(&self) -> MutexGuard<'_, Option<LeftMark>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a lost round shows for the first time that readers have the lock: from now on this mark is left.
    pub(super) fn note_readers(&mut self, round: &Round, mark: impl FnOnce() -> Option<LeftMark>) -> bool {
        if !round.shows_readers() || self.left_mark().is_some() {
            return false;
        }
        let mark = mark();
        let leaves_mark = mark.is_some();
        *self.left_mark() = mark;
        leaves_mark
    }

    /// The next waiter does not write: what wakes a writer would wake none, and its mark would keep the reader out.
    pub(super) fn give_up_writing(&self) {
        let (wait, mark) = (self.wait.lock().unwrap_or_else(PoisonError::into_inner).take(), self.left_mark().take());
        drop((wait, mark)); // which tell others
    }

    /// Waits until another attempt is worth sending after `lost`; why it is. The first time `begin_wait` begins the wait among other clients.
    pub(super) async fn pause(
        &mut self,
        retry: RetryDelay,
        begin_wait: impl FnOnce() -> Option<Wait>,
        lost: &Round,
    ) -> AskReason {
        let (failures, is_marked) = (self.failures, self.left_mark().is_some());
        self.failures = failures.saturating_add(1);
        let wait = self.wait.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(wait) = wait.get_or_insert_with(|| begin_wait().map(Box::new)) else {
            let pause = retry.after(failures, random::spread());
            sleep(if is_marked { pause.min(LONGEST_MARKED_PAUSE) } else { pause }).await;
            return AskReason::Pause;
        };
        let pause = wait.pause(lost, failures, retry);
        let why = match is_marked {
            // It is to be renewed before it ends.
            true => timeout(LONGEST_MARKED_PAUSE, pause).await.unwrap_or(AskReason::Pause),
            false => pause.await,
        };
        if why == AskReason::Expired {
            self.failures = 0; // several may try now, and clients that split the votes must not pause for long
        }
        why
    }

    /// The lock was won; the next waiter begins anew.
    pub(super) fn won(&mut self) {
        let Self { wait, mark, .. } = std::mem::take(self);
        let wait = wait.into_inner().unwrap_or_else(PoisonError::into_inner);
        wait.flatten().into_iter().for_each(|wait| wait.won());
        mark.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().for_each(LeftMark::won);
    }
}

/// A mark that each attempt of this client's writers leaves from now on, until one of them has the lock (P34): it lets in no more
/// readers. Dropped, it is removed.
pub(super) struct LeftMark {
    mark: Arc<WriterMark>,
    has_won: bool,
    /// Removes it from the instances, for a writer that has won, or because all have given up.
    remove: Box<dyn Fn(bool) + Send + Sync>,
}

impl LeftMark {
    pub(super) fn new(mark: Arc<WriterMark>, remove: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { mark, has_won: false, remove: Box::new(remove) }
    }

    /// Its writer has the lock. What was left on instances that did not grant it goes.
    fn won(mut self) {
        self.has_won = true;
    }
}

impl Drop for LeftMark {
    fn drop(&mut self) {
        (self.remove)(self.has_won);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::runtime::held_lease::tests::won;

    const TTL: Duration = Duration::from_secs(10);

    /// On another thread, which the end of the lease wakes, and which looks before the release is queued.
    #[tokio::test]
    async fn a_waiter_for_a_release_is_woken_once_it_is_queued() {
        let (slots, held) = (Slots::default(), won(3, TTL));
        let slot = slots.with_slot(&held.claim().resource, |state| state.places = 1);
        slots.put_held(&held);
        slot.changed().await; // that
        assert!(held.drop_guard(None).0.is_some());
        assert!(matches!(slot.next_step(&SystemClock), Step::AwaitRelease));
        slots.let_go(&held);
        let woken = tokio::time::timeout(TTL, slot.changed()).await;
        assert!(woken.is_ok() && matches!(slot.next_step(&SystemClock), Step::Ask));
    }

    const BEGIN: Instant = Instant::from_millis(10_000);

    fn after(seconds: u64) -> Instant {
        BEGIN.saturating_add(Duration::from_secs(seconds))
    }

    /// Whether the turn of a client is over, and whether it pauses then.
    fn next(turns: &mut Turns, others: Option<usize>, now: Instant) -> (bool, bool) {
        let is_over = turns.is_over(|| others, now);
        (is_over, turns.take_pause())
    }

    fn after_as_many_as_are_allowed() -> Turns {
        let mut turns = Turns::default();
        for _ in 0..MOST_IN_A_ROW {
            assert_eq!(next(&mut turns, Some(9), BEGIN), (false, false), "not yet");
            turns.handed_over();
        }
        turns
    }

    #[test]
    fn those_who_are_known_to_wait_get_their_turn() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (true, false));
        turns.won();
        assert_eq!(next(&mut turns, Some(1), BEGIN), (false, false));
        assert_eq!(next(&mut turns, Some(1), after(1)), (true, false), "however few had it");
    }

    #[test]
    fn a_lock_that_nobody_elsewhere_is_known_to_wait_for_is_let_go_once_a_second() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, Some(0), BEGIN), (false, false));
        assert_eq!(next(&mut turns, Some(0), after(1)), (true, true));
        turns.won();
        assert_eq!(next(&mut turns, Some(0), after(1)), (false, false), "it counts anew");
        assert_eq!(next(&mut turns, Some(0), after(2)), (true, true));
    }

    #[test]
    fn where_nobody_can_be_known_to_wait_it_is_always_assumed() {
        let mut turns = after_as_many_as_are_allowed();
        assert_eq!(next(&mut turns, None, BEGIN), (true, true));
    }
}
