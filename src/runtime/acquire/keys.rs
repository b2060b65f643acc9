//! The keys of a client by name, and how they are driven.
//!
//! Each [`Key`] has a mutex. Who brings an event changes the state under it, and drives the key: the state says what is to be done,
//! in order, and that is done without the mutex, so that nothing foreign runs under it. One thread drives a key at a time: so what it sends
//! keeps its order, and an answer that comes while something is sent waits for its turn.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};

use futures_util::future::join_all;

use super::asker::Announcement;
use super::attempt::RoundNumber;
use super::key::{CallerId, Found, Key, OnKey, Released};
use super::permits::{AskPermit, Permits};
use super::timer::{LEAST_PAUSE, Timer};
use super::{AcquireFailure, AcquireParams};
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, ReplyTo, Request, TakesReplies};
use crate::protocol::{
    Cause, InstanceId, InstanceSet, Instant, Reply, Round, RoundFailure, Value, Verdict, WriterMark,
};
use crate::resource::{ByResource, Resource};
use crate::runtime::background_release::LostTry;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::order::{Wait, WaitsToBeWoken};
use crate::runtime::shared::Shared;
use crate::runtime::tasks::TrackedAttempt;
use crate::runtime::wait_events::{self, AskReason, TARGET};

/// The keys of a client.
pub(crate) struct Keys {
    permits: Arc<Permits>,
    timer: Arc<Timer>,
    /// The last round, for any lock, to which too few instances answered.
    no_quorum: Mutex<Option<Box<Round>>>,
    /// A key is in it while a caller has a place, or the lock.
    cells: Mutex<ByResource<Arc<KeyCell>>>,
}

/// A key, and what is to be done for it.
pub(super) struct KeyCell {
    resource: Resource,
    client: Weak<Shared>,
    state: Mutex<Driven>,
}

#[derive(Default)]
struct Driven {
    key: Key,
    deeds: Vec<Deed>,
    rounds: RoundNumber,
    is_driven: bool,
    /// When the timer looks at it next.
    entered: Option<Instant>,
}

/// The client, the time, and what is to be done.
pub(super) struct Cx<'a> {
    pub(super) client: &'a Arc<Shared>,
    pub(super) now: Instant,
    pub(super) deeds: &'a mut Vec<Deed>,
    rounds: &'a mut RoundNumber,
}

impl Cx<'_> {
    pub(super) const fn next_number(&mut self) -> RoundNumber {
        *self.rounds += 1;
        *self.rounds
    }
}

/// What is to be done for a key. What is only to be dropped is here too: it is foreign, or takes other mutexes.
pub(super) enum Deed {
    /// Sends the acquire to all instances.
    Acquire(Arc<Claim>, RoundNumber),
    Release(Arc<Claim>, InstanceSet),
    Wake(Waker),
    /// Ends a guard that no caller has collected.
    LetGo(Arc<HeldLease>),
    /// The lease has another guard from now on; how often in a row that was, and how many waited.
    HandedOver(Arc<HeldLease>, u32, usize),
    NoteReply(Arc<HeldLease>, InstanceId, Reply, Instant),
    NoteLostReply(Arc<LostTry>, InstanceId, Reply),
    NoteLost(Box<Round>),
    Announce(Option<CallerId>, u64, Announcement),
    EndWait(Box<Wait>, bool),
    RemoveMark(Arc<WriterMark>, bool),
    TryRefused,
    Free(AskPermit),
    CallNext,
    Forget(Option<TrackedAttempt>, Option<Waker>),
    ForgetLease(Arc<HeldLease>),
    LogAsks(u32, AskReason),
    LogRound(Verdict, InstanceSet, usize),
    LogRefused(Box<Round>, u32),
    LogWon(u32, usize),
}

impl Default for Keys {
    fn default() -> Self {
        let (permits, timer) = (Permits::new(), Arc::default());
        Self { permits, timer, no_quorum: Mutex::default(), cells: Mutex::default() }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.timer.end();
    }
}

/// For callers.
impl Keys {
    /// Changes a key under the mutex of all of them, so that it is not removed meanwhile, and drives it.
    pub(super) fn change<T>(
        client: &Arc<Shared>,
        resource: &Resource,
        change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T,
    ) -> (Arc<KeyCell>, T) {
        let mut cells = client.slots.lock();
        let cell = cells.entry(resource.clone()).or_insert_with(|| KeyCell::new(resource.clone(), client));
        let cell = Arc::clone(cell);
        let changed = cell.change_undriven(client, change);
        drop(cells);
        cell.drive(client);
        (cell, changed)
    }

    /// Changes a key, if there is one, and drives it.
    fn change_known<T>(
        client: &Arc<Shared>,
        resource: &Resource,
        change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T,
    ) -> Option<T> {
        let cell = client.slots.find(resource)?;
        let changed = cell.change_undriven(client, change);
        cell.drive(client);
        Some(changed)
    }

    /// Looks at a key.
    fn read<T: Default>(&self, resource: &Resource, look: impl FnOnce(&Key) -> T) -> T {
        self.find(resource).map(|cell| look(&cell.lock().key)).unwrap_or_default()
    }

    /// Whether no caller of this client has the lock or tries to get it. A guard may still be there whose lease was lost.
    pub(super) fn is_idle(&self, resource: &Resource, clock: &dyn Clock) -> bool {
        self.find(resource).is_none_or(|cell| cell.lock().key.is_idle(clock))
    }

    /// Whether this client has the lock.
    pub(super) fn is_held(&self, resource: &Resource, clock: &dyn Clock) -> bool {
        self.read(resource, |key| key.held_here(clock).is_some())
    }

    /// From now on this client has this lease.
    pub(crate) fn put_held(client: &Arc<Shared>, held: &Arc<HeldLease>) {
        drop(Self::change(client, &held.claim().resource, |key, cx| key.put_held(held, cx.deeds)));
    }

    /// One more guard, which no caller has collected yet, of the lease that the same holder has; `None` if it has none.
    pub(super) fn share(&self, params: &AcquireParams) -> Option<Arc<HeldLease>> {
        if params.holder.is_empty() { None } else { self.read(&params.resource, |key| key.share(params)) }
    }

    /// One more guard, which no caller has collected yet, of the lease with this value; `None` if this client does not have
    /// it. An error if it has released the lease, or is about to.
    pub(crate) fn share_value(&self, resource: &Resource, value: &Value) -> Result<Option<Arc<HeldLease>>, Released> {
        self.find(resource).map_or(Ok(None), |cell| cell.lock().key.share_value(value))
    }

    /// Whether this holder has the lock, in this client.
    pub(crate) fn is_held_by(&self, resource: &Resource, holder: &str, clock: &dyn Clock) -> bool {
        let is_it = |held: &Arc<HeldLease>| **held.holder() == *holder && !held.remaining(clock).is_zero();
        self.read(resource, |key| key.held().is_some_and(is_it))
    }

    /// How many of this client wait for the lock.
    pub(crate) fn waiting(&self, resource: &Resource) -> usize {
        self.read(resource, |key| key.waiting().0)
    }

    /// Whether writers of this client wait for the lock.
    pub(crate) fn is_waited_for_to_write(&self, resource: &Resource) -> bool {
        self.read(resource, |key| key.writers() > 0)
    }

    /// How many of this client wait, for any lock.
    pub(crate) fn all_waiting(&self) -> usize {
        let counted = |(waiting, elsewhere): (usize, usize)| waiting.saturating_sub(elsewhere);
        self.lock().values().map(|cell| counted(cell.lock().key.waiting())).sum()
    }

    /// Gives a lease that its guard gives up to the next that waits; `false` if it is to be released. `others` returns how many
    /// are known to wait in other clients, if that can be known.
    pub(crate) fn hand_over(
        client: &Arc<Shared>,
        held: &Arc<HeldLease>,
        others: impl FnOnce() -> Option<usize>,
    ) -> bool {
        let handed_over =
            Self::change_known(client, &held.claim().resource, |key, cx| key.hand_over(held, others, cx));
        handed_over.unwrap_or(false)
    }

    /// A lease was given up. Its release is queued by now, so that the next attempt is sent behind it.
    pub(crate) fn let_go(client: &Arc<Shared>, held: &Arc<HeldLease>) {
        Self::change_known(client, &held.claim().resource, |key, cx| key.let_go(held, cx.deeds));
    }

    /// A lease was lost.
    pub(crate) fn lease_lost(client: &Arc<Shared>, resource: &Resource) {
        Self::change_known(client, resource, |key, _| key.held_has_ended());
    }

    /// No caller gets a lock any more, for this reason.
    pub(crate) fn close(client: &Arc<Shared>, why: &AcquireFailure) {
        let cells: Vec<_> = client.slots.lock().values().cloned().collect();
        for cell in cells {
            cell.change_undriven(client, |key, cx| key.close(why, cx));
            cell.drive(client);
        }
    }

    /// Why a round for any lock was lost that began after this: too few instances have answered.
    pub(super) fn no_quorum_since(&self, begun: Instant) -> Option<AcquireFailure> {
        let last = self.no_quorum.lock().unwrap_or_else(PoisonError::into_inner);
        let round = last.as_ref().filter(|round| round.started_at() > begun)?;
        Some(AcquireFailure::RoundLost(round.clone()))
    }

    /// An attempt was lost. If too few instances have answered, that says the same of all other locks, as far as it is not about this one.
    fn note_lost(&self, client: &Arc<Shared>, round: &Round) {
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
            let reply = match answer.as_ref().map(|answer| &answer.reply) {
                Some(reply) if is_for_all(reply) => reply.clone(),
                _ => Reply::NotSent(Cause::Overloaded), // as they were not asked
            };
            of_others.record(id, reply, round.started_at());
        }
        let began = of_others.started_at();
        *self.no_quorum.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(of_others));
        self.permits.take_waiting(began).iter().for_each(|cell| cell.called(client, false));
    }

    pub(super) fn timer(&self) -> Arc<Timer> {
        Arc::clone(&self.timer)
    }

    /// How many there are.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Removes a key that is not needed any more.
    fn tidy(&self, cell: &Arc<KeyCell>) {
        let mut cells = self.lock();
        let is_known = cells.get(&cell.resource).is_some_and(|known| Arc::ptr_eq(known, cell));
        let is_forgettable = is_known && cell.lock().key.is_forgettable();
        let removed = if is_forgettable { cells.remove(&cell.resource) } else { None };
        drop(cells);
        drop(removed);
    }

    fn find(&self, resource: &Resource) -> Option<Arc<KeyCell>> {
        self.lock().get(resource).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, ByResource<Arc<KeyCell>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyCell {
    fn new(resource: Resource, client: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { resource, client: Arc::downgrade(client), state: Mutex::default() })
    }

    /// Changes the state; it is to be driven then.
    pub(super) fn change_undriven<T>(
        &self,
        client: &Arc<Shared>,
        change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T,
    ) -> T {
        let mut state = self.lock();
        let Driven { key, deeds, rounds, .. } = &mut *state;
        change(key, &mut Cx { client, now: client.clock.now(), deeds, rounds })
    }

    /// Changes the state, and drives it, if the client is still there.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Key, &mut Cx<'_>)) {
        let Some(client) = self.client.upgrade() else { return };
        self.change_undriven(&client, change);
        self.drive(&client);
    }

    /// It is its turn to have a permit, or something was learnt while it waits for one. The timer drives it: one key that loses its attempt
    /// may call the next, and that another, and so on.
    fn called(self: &Arc<Self>, client: &Arc<Shared>, is_its_turn: bool) {
        let now = client.clock.now();
        self.change_undriven(client, |key, _| key.called(is_its_turn));
        client.slots.timer.enter(self, now);
    }

    /// It is its turn to have a permit.
    pub(super) fn called_for_permit(self: &Arc<Self>) {
        self.client.upgrade().iter().for_each(|client| self.called(client, true));
    }

    /// Time has passed.
    pub(super) fn look(self: &Arc<Self>, client: &Arc<Shared>) {
        self.lock().entered = None;
        self.change_undriven(client, |key, cx| key.look(cx));
        self.drive(client);
    }

    /// Does what is to be done, unless another thread does that.
    pub(super) fn drive(self: &Arc<Self>, client: &Arc<Shared>) {
        let undriven = Undriven(self);
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_driven, true) {
            drop(state);
            std::mem::forget(undriven);
            return;
        }
        loop {
            let Driven { key, deeds, rounds, .. } = &mut *state;
            let cx = &mut Cx { client, now: client.clock.now(), deeds, rounds };
            let keys = &client.slots;
            key.advance(&OnKey { resource: &self.resource, cell: self, keys, permits: &keys.permits }, cx);
            if cx.deeds.is_empty() {
                break;
            }
            let mut deeds = std::mem::take(&mut state.deeds);
            drop(state);
            for deed in deeds.drain(..) {
                // What listens to events, and wakers, are foreign code. Nothing else of this is given up for a panic of theirs.
                let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(client, deed)));
                if done.is_err() {
                    let _ = catch_unwind(|| tracing::error!("what is called for a lock has panicked; the wait goes on"));
                }
            }
            state = self.lock();
            if state.deeds.capacity() == 0 {
                state.deeds = deeds; // it keeps its room
            }
        }
        state.is_driven = false;
        let Driven { key, deeds, rounds, entered, .. } = &mut *state;
        let now = client.clock.now();
        // Timers count whole milliseconds.
        let due = key.due(&Cx { client, now, deeds, rounds }).map(|due| due.max(now.saturating_add(LEAST_PAUSE)));
        let enters = due.filter(|due| entered.is_none_or(|entered| *due < entered));
        *entered = enters.or(*entered);
        let is_forgettable = key.is_forgettable();
        drop(state);
        std::mem::forget(undriven);
        if let Some(due) = enters {
            client.slots.timer.enter(self, due);
        }
        if is_forgettable {
            client.slots.tidy(self);
        }
    }

    fn carry_out(self: &Arc<Self>, client: &Arc<Shared>, deed: Deed) {
        let resource = &self.resource;
        match deed {
            Deed::Acquire(claim, number) => self.send(client, &claim, number),
            Deed::Release(claim, targets) => client.releaser.release((claim, None), targets, None),
            Deed::Wake(waker) => waker.wake(),
            Deed::LetGo(held) => client.let_go(&held, None),
            Deed::HandedOver(held, in_a_row, waiting_here) => {
                held.note_tenure_end(); // the former guard has ended before the next one begins
                tracing::debug!(target: TARGET, resource = resource.display(), in_a_row, waiting_here, "handed over");
            }
            Deed::NoteReply(held, id, reply, sent) => held.note_reply(id, &reply, sent, &*client.clock).notify(),
            Deed::NoteLostReply(lost, id, reply) => lost.take(id, 0, reply),
            Deed::NoteLost(round) => client.slots.note_lost(client, &round),
            Deed::Announce(of, pause, messages) => self.announce(client, (of, pause), messages),
            Deed::EndWait(wait, has_won) => {
                if has_won { wait.won() } else { drop(wait) } // which tells others
            }
            Deed::RemoveMark(mark, has_won) => client.remove_mark(resource, &mark, has_won),
            Deed::TryRefused => client.order.iter().for_each(|order| order.refused(resource)),
            Deed::Free(permit) => drop(permit),
            Deed::CallNext => client.slots.permits.call_next(),
            Deed::Forget(tracked, waker) => drop((tracked, waker)),
            Deed::ForgetLease(held) => drop(held),
            Deed::LogAsks(asks, why) => {
                if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
                    let waiting_here = client.known_waiters(resource).here;
                    tracing::debug!(target: TARGET, resource = resource.display(), asks, ?why, waiting_here, "asks");
                }
            }
            Deed::LogRound(verdict, granted, rounds) => {
                tracing::debug!(?verdict, granted = ?client.addresses(granted), rounds, "acquire round");
            }
            Deed::LogRefused(round, asks) => {
                wait_events::refused(resource, &round, asks, || client.known_waiters(resource));
            }
            Deed::LogWon(asks, rounds) => {
                tracing::debug!(target: TARGET, resource = resource.display(), asks, rounds, "won");
            }
        }
    }

    /// Queues the request on all instances.
    fn send(self: &Arc<Self>, client: &Arc<Shared>, claim: &Arc<Claim>, number: RoundNumber) {
        let all = client.all_instances();
        client.counters.rounds.add(1);
        client.releaser.release_ahead(&claim.resource, all);
        RedisInstance::call_each(&client.instances, all, |id| {
            let reply_to = ReplyTo::numbered(Arc::clone(self) as Arc<_>, id, number);
            (Request::Acquire(Arc::clone(claim)), reply_to)
        });
    }

    /// Sends messages to other clients. Whether one has heard them decides how long the pause is.
    fn announce(
        self: &Arc<Self>,
        client: &Arc<Shared>,
        (of, pause): (Option<CallerId>, u64),
        messages: Announcement,
    ) {
        let published = messages.into_iter().filter_map(|(id, wake)| Some(client.instances.get(id.index())?.publish(wake)));
        let published: Vec<_> = published.collect();
        let key = Arc::clone(self);
        client.runtime.spawn(async move {
            let is_heard = join_all(published).await.contains(&true);
            tracing::debug!(target: TARGET, key = key.resource.display(), heard = is_heard, "announced");
            key.change(|key, _| key.note_heard(of, pause, is_heard));
        });
    }

    /// What a caller finds; `None` if it has to wait, and is woken.
    pub(super) fn poll(&self, id: CallerId, context: &Context<'_>) -> Option<Found> {
        let mut forgotten = Vec::new();
        let found = self.lock().key.poll(id, context, &mut forgotten);
        drop(forgotten); // without the mutex
        found
    }

    fn lock(&self) -> MutexGuard<'_, Driven> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever drives a key and panics, at a clock perhaps, drives it no more.
struct Undriven<'a>(&'a KeyCell);

impl Drop for Undriven<'_> {
    fn drop(&mut self) {
        self.0.lock().is_driven = false;
    }
}

impl TakesReplies for KeyCell {
    fn take(self: Arc<Self>, id: InstanceId, number: usize, reply: Reply) {
        self.change(|key, cx| key.take(number, id, reply, cx));
    }
}

impl WaitsToBeWoken for KeyCell {
    fn woken(self: Arc<Self>, of: Option<CallerId>) {
        self.change(|key, _| key.woken(of));
    }
}

impl fmt::Debug for KeyCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCell").field("resource", &self.resource).finish_non_exhaustive()
    }
}
