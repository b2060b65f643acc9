//! The keys of a client by name, and how they are driven.
//!
//! Each [`Key`] has a mutex. Who brings an event changes the state under it, and drives the key: the state says what is to be done,
//! in order, and that is done without the mutex, so that nothing foreign runs under it. One thread drives a key at a time: so what it sends
//! keeps its order, and an answer that comes while something is sent waits for its turn.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Context;
use std::time::Duration;

use futures_util::future::join_all;

use super::cx::{Announcement, CallerId, Cx, Deed, RoundNumber};
use super::key::{Found, Key, OnKey, Released};
use super::outage::Outage;
use super::permits::{Permits, WaitsForPermit};
use super::releases::Retry;
use super::retries::{MOST_AT_ONCE, MOST_KEPT, Retries};
use super::timer::{LEAST_PAUSE, Timer};
use super::{AcquireFailure, AcquireParams};
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, ReplyTo, Request, TakesReplies, Wake};
use crate::log_limit::LogLimit;
use crate::protocol::{Access, FencingToken, InstanceId, InstanceSet, Instant, Reply, Round, Value, WriterMark};
use crate::resource::{ByResource, Resource};
use crate::runtime::ballot::Ballot;
use crate::runtime::held_lease::{HeldLease, LeaseOwner};
use crate::runtime::order::WaitsToBeWoken;
use crate::runtime::parts::ClientParts;
use crate::runtime::tasks::ran_to_its_end;
use crate::runtime::wait_events::{self, KnownWaiters, TARGET};

/// After so long a writer's mark has ended by itself (`acquire.lua`).
const LONGEST_MARK: Duration = Duration::from_secs(3);

/// The keys of a client.
pub(crate) struct Keys {
    client: Arc<ClientParts>,
    leases: Weak<dyn LeaseOwner>,
    permits: Arc<Permits>,
    timer: Arc<Timer<KeyCell>>,
    retries: Retries<KeyCell>,
    /// Releases that were too many.
    drops: LogLimit,
    outage: Outage,
    /// A key is in it while a caller has a place, or the lock.
    cells: Mutex<ByResource<Arc<KeyCell>>>,
}

/// A key, and what is to be done for it.
pub(super) struct KeyCell {
    resource: Resource,
    keys: Weak<Keys>,
    state: Mutex<Driven>,
}

#[derive(Default)]
struct Driven {
    key: Key,
    deeds: Vec<Deed>,
    rounds: RoundNumber,
    is_driven: bool,
    /// Its client, while releases are left: it is to confirm them also when nobody else has it any more.
    client: Option<Arc<Keys>>,
    /// When the timer looks at it next.
    entered: Option<Instant>,
}

impl Keys {
    /// Must be called within a runtime, in which the keys look at the time.
    pub(crate) fn start(client: Arc<ClientParts>, leases: Weak<dyn LeaseOwner>) -> Arc<Self> {
        let (permits, timer) = (Permits::new(), Arc::default());
        let (retries, drops) = (Retries::new(client.instances.len()), LogLimit::default());
        let (outage, cells) = (Outage::default(), Mutex::default());
        let keys = Arc::new(Self { client, leases, permits, timer, retries, drops, outage, cells });
        tokio::spawn(run(Arc::downgrade(&keys)));
        keys
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
        self: &Arc<Self>,
        resource: &Resource,
        change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T,
    ) -> (Arc<KeyCell>, T) {
        let mut cells = self.lock();
        let cell = cells.entry(resource.clone()).or_insert_with(|| KeyCell::new(resource.clone(), self));
        let cell = Arc::clone(cell);
        let state = cell.lock();
        drop(cells);
        let changed = cell.change_locked(self, state, change);
        (cell, changed)
    }

    /// Changes a key, if there is one, and drives it.
    fn change_known(self: &Arc<Self>, resource: &Resource, change: impl FnOnce(&mut Key, &mut Cx<'_>)) {
        if let Some(cell) = self.find(resource) {
            cell.change_locked(self, cell.lock(), change);
        }
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
    pub(crate) fn put_held(self: &Arc<Self>, held: &Arc<HeldLease>) {
        drop(self.change(&held.claim().resource, |key, cx| key.put_held(held, cx.deeds)));
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
    pub(crate) fn hand_over(self: &Arc<Self>, held: &Arc<HeldLease>, others: impl FnOnce() -> Option<usize>) -> bool {
        let Some(cell) = self.find(&held.claim().resource) else { return false };
        let mut state = cell.lock();
        let now = self.client.clock.now();
        let handed_over = state.change(self, now, |key, cx| key.hand_over(held, others, cx));
        if handed_over {
            cell.drive(self, state, now);
        }
        handed_over
    }

    /// A lease was given up, without a release.
    pub(crate) fn let_go(self: &Arc<Self>, held: &Arc<HeldLease>) {
        self.change_known(&held.claim().resource, |key, cx| key.let_go(held, cx.deeds));
    }

    /// A lease has ended: it is released on `targets`, until these have confirmed it. The next attempt is sent behind that. The replies go
    /// to `ballot` too, if the caller waits for them.
    pub(crate) fn release(
        self: &Arc<Self>,
        held: &HeldLease,
        wakes: Option<Arc<[Wake]>>,
        targets: InstanceSet,
        ballot: Option<Arc<Ballot>>,
    ) {
        let claim = held.claim();
        self.change(&Arc::clone(&claim).resource, |key, cx| {
            key.left.releases.send((claim, wakes), targets, ballot, cx);
            key.let_go(held, cx.deeds);
        });
    }

    /// Sends a request to keep the key of a claim, behind what its lock has still to release; replies go to the ballot.
    pub(crate) fn keep(self: &Arc<Self>, claim: Arc<Claim>, ballot: Arc<Ballot>) {
        self.change(&Arc::clone(&claim).resource, |key, cx| {
            key.left.releases.send_ahead(&claim, cx);
            cx.deeds.push(Deed::Keep(claim, ballot));
        });
    }

    /// A lease was lost.
    pub(crate) fn lease_lost(self: &Arc<Self>, resource: &Resource) {
        self.change_known(resource, |key, _| key.held_has_ended());
    }

    /// No caller gets a lock any more, for this reason.
    pub(crate) fn close(self: &Arc<Self>, why: &AcquireFailure) {
        let cells: Vec<_> = self.lock().values().cloned().collect();
        for cell in cells {
            cell.change_locked(self, cell.lock(), |key, cx| key.close(why, cx));
        }
    }

    /// An attempt was lost.
    fn note_lost(&self, round: &Round) {
        if let Some(began) = self.outage.note_lost(round) {
            self.permits.take_waiting(began).into_iter().for_each(|key| key.called(false));
        }
    }

    /// The waiters for a lock, as far as this client knows.
    pub(crate) fn known_waiters(&self, resource: &Resource) -> KnownWaiters {
        let here = self.waiting(resource);
        let others = self.client.order.as_ref().map(|order| order.known_waiters(resource));
        let (elsewhere, first) = others.unwrap_or_default();
        let next = if here > 0 { Some(self.client.tokens.client()) } else { first };
        KnownWaiters { here, elsewhere, next }
    }

    /// Looks at the keys that are due; whether there were any, and when the next will be.
    fn look_at_due(self: &Arc<Self>) -> (bool, Option<Duration>) {
        let now = self.client.clock.now();
        let (due, next) = self.timer.take_due(now);
        due.iter().for_each(|key| key.look(self));
        InstanceId::all(self.client.instances.len()).for_each(|id| self.retry(id, now));
        let next = next.into_iter().chain(self.retries.due()).min();
        (!due.is_empty(), next.map(|next| next.saturating_since(now)))
    }

    /// A release of a key is to be sent again.
    fn retry_later(&self, id: InstanceId, expires_at: Instant, key: &Arc<KeyCell>) {
        let now = self.client.clock.now();
        let (due, oldest) = self.retries.put(id, (expires_at, Arc::downgrade(key)), now);
        due.into_iter().for_each(|due| self.timer.wake_by(due));
        let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) else { return };
        oldest.change(|key, cx| _ = key.left.releases.retry(id, Retry::GiveUp, cx));
        if let Some(times) = self.drops.note(now) {
            let instance = self.client.addresses(InstanceSet::only(id)).concat();
            tracing::warn!(
                instance,
                times,
                "more than {MOST_KEPT} releases wait for an instance: of the oldest, the keys stay there until they expire"
            );
        }
    }

    /// Sends releases to an instance again, if that is due.
    fn retry(self: &Arc<Self>, id: InstanceId, now: Instant) {
        if !self.retries.is_due(id, now) {
            return;
        }
        let is_reachable = self.client.instances.get(id.index()).is_some_and(|instance| instance.obstacle().is_none());
        let (retry, expired) = if is_reachable { (Retry::Send, None) } else { (Retry::Wait, Some(now)) };
        let mut count = 0;
        // What fails at once comes back, for the next time.
        for _ in 0..self.retries.len(id) {
            if count >= MOST_AT_ONCE {
                break;
            }
            let Some(key) = self.retries.take(id, expired) else { break };
            if let Some(key) = key.upgrade() {
                count += key.change_locked(self, key.lock(), |key, cx| key.left.releases.retry(id, retry, cx));
            }
        }
        self.retries.looked(id, now);
    }

    fn cx<'a>(&'a self, now: Instant, deeds: &'a mut Vec<Deed>, rounds: &'a mut RoundNumber) -> Cx<'a> {
        let Self { client, leases, permits, outage, .. } = self;
        Cx { client, leases, permits, outage, now, deeds, rounds }
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

/// Looks at the keys of a client when they are due. Ends with the client.
async fn run(keys: Weak<Keys>) {
    let _ended = EndOfRuntime(Weak::clone(&keys));
    while !ran_to_its_end("ends waits for locks", serve(&keys)).await {}
}

/// Dropped with the runtime: whoever waits must learn of that.
struct EndOfRuntime(Weak<Keys>);

impl Drop for EndOfRuntime {
    fn drop(&mut self) {
        if let Some(keys) = self.0.upgrade() {
            keys.client.has_ended.store(true, Ordering::Release);
            keys.close(&AcquireFailure::RuntimeEnded);
        }
    }
}

async fn serve(keys: &Weak<Keys>) {
    loop {
        let Some(keys) = keys.upgrade() else { return };
        let (has_looked, next) = keys.look_at_due();
        if has_looked {
            continue; // they may be due again
        }
        let timer = Arc::clone(&keys.timer);
        drop(keys);
        timer.wait(next).await; // timers only wake, the clock decides (P3)
    }
}

impl Driven {
    /// Changes the state, under its mutex; it is to be driven then.
    fn change<T>(&mut self, keys: &Keys, now: Instant, change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T) -> T {
        let Self { key, deeds, rounds, .. } = self;
        change(key, &mut keys.cx(now, deeds, rounds))
    }
}

impl KeyCell {
    fn new(resource: Resource, keys: &Arc<Keys>) -> Arc<Self> {
        Arc::new(Self { resource, keys: Arc::downgrade(keys), state: Mutex::default() })
    }

    /// Changes the state, and does what is to be done then, if the client is still there.
    pub(super) fn change(self: &Arc<Self>, change: impl FnOnce(&mut Key, &mut Cx<'_>)) {
        if let Some(keys) = self.keys.upgrade() {
            self.change_locked(&keys, self.lock(), change);
        }
    }

    fn change_locked<T>(
        self: &Arc<Self>,
        keys: &Arc<Keys>,
        mut state: MutexGuard<'_, Driven>,
        change: impl FnOnce(&mut Key, &mut Cx<'_>) -> T,
    ) -> T {
        let now = keys.client.clock.now();
        let changed = state.change(keys, now, change);
        self.drive(keys, state, now);
        changed
    }

    /// Time has passed.
    fn look(self: &Arc<Self>, keys: &Arc<Keys>) {
        let mut state = self.lock();
        state.entered = None;
        self.change_locked(keys, state, |key, cx| key.look(cx));
    }

    /// Does what is to be done by `now`, unless another thread does that.
    fn drive(self: &Arc<Self>, keys: &Arc<Keys>, state: MutexGuard<'_, Driven>, mut now: Instant) {
        if state.is_driven {
            return;
        }
        let undriven = Undriven(self);
        let mut state = state; // in a panic it is unlocked first
        state.is_driven = true;
        loop {
            let waiter = || Arc::downgrade(self) as Weak<_>;
            let on = OnKey { resource: &self.resource, waiter: &waiter };
            state.change(keys, now, |key, cx| key.advance(&on, cx));
            if state.deeds.is_empty() {
                break;
            }
            let mut deeds = std::mem::take(&mut state.deeds);
            drop(state);
            for deed in deeds.drain(..) {
                // What listens to events, and wakers, are foreign code. Nothing else of this is given up for a panic of theirs.
                let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(keys, deed)));
                if done.is_err() {
                    let _ =
                        catch_unwind(|| tracing::error!("what is called for a lock has panicked; the wait goes on"));
                }
            }
            (now, state) = (keys.client.clock.now(), self.lock());
            if state.deeds.capacity() == 0 {
                state.deeds = deeds; // it keeps its room
            }
        }
        state.is_driven = false;
        // Timers count whole milliseconds.
        let due = state.change(keys, now, |key, cx| key.due(cx));
        let due = due.map(|due| due.max(now.saturating_add(LEAST_PAUSE)));
        let enters = due.filter(|due| state.entered.is_none_or(|entered| *due < entered));
        state.entered = enters.or(state.entered);
        std::mem::forget(undriven);
        self.leave(keys, state);
        if let Some(due) = enters {
            keys.timer.enter(self, due);
        }
    }

    /// Nothing is to be done any more. Without releases it needs its client no longer; and nobody needs it with nothing under way.
    fn leave(self: &Arc<Self>, keys: &Arc<Keys>, mut state: MutexGuard<'_, Driven>) {
        let is_forgettable = state.key.is_forgettable();
        let stays = !state.key.left.releases.is_empty() && !keys.client.has_ended();
        let former = if stays { None } else { state.client.take() };
        if stays {
            state.client.get_or_insert_with(|| Arc::clone(keys));
        }
        drop(state);
        drop(former);
        if is_forgettable {
            keys.tidy(self);
        }
    }

    fn carry_out(self: &Arc<Self>, keys: &Keys, deed: Deed) {
        let (resource, client) = (&self.resource, &keys.client);
        match deed {
            Deed::Acquire(claim, number) => self.send(client, &claim, number),
            Deed::Keep(claim, ballot) => RedisInstance::call_each(&client.instances, client.all_instances(), |id| {
                (Request::Keep(Arc::clone(&claim)), ReplyTo::new(Arc::clone(&ballot) as Arc<_>, id))
            }),
            Deed::Release(claim, targets, number, wakes) => {
                RedisInstance::call_each(&client.instances, targets, |id| {
                    let reply_to = ReplyTo::numbered(Arc::clone(self) as Arc<_>, id, number);
                    (Request::Release(Arc::clone(&claim), wakes.clone()), reply_to)
                });
            }
            Deed::RetryLater(id, expires_at) => keys.retry_later(id, expires_at, self),
            Deed::Wake(waker) => waker.wake(),
            Deed::LetGo(held) => keys.leases.upgrade().iter().for_each(|client| client.let_go_uncollected(&held)),
            Deed::HandedOver(held, in_a_row, waiting_here) => {
                held.note_tenure_end(); // the former guard has ended before the next one begins
                tracing::debug!(target: TARGET, resource = resource.display(), in_a_row, waiting_here, "handed over");
            }
            Deed::NoteReply(held, id, reply, sent) => held.note_reply(id, &reply, sent, &*client.clock).notify(),
            Deed::NoteLost(round) => keys.note_lost(&round),
            Deed::Announce(of, pause, messages) => self.announce(client, (of, pause), messages),
            Deed::EndWait(wait, has_won) => {
                if has_won { wait.won() } else { drop(wait) } // which tells others
            }
            Deed::RemoveMark(mark, has_won) => self.remove_mark(keys, &mark, has_won),
            Deed::TryRefused => client.order.iter().for_each(|order| order.refused(resource)),
            Deed::Free(permit) => drop(permit),
            Deed::WaitForPermit(is_repeat) => {
                keys.permits.wait(Arc::downgrade(self) as Weak<_>, is_repeat, client.clock.now());
                keys.permits.call_next(); // one may have come free meanwhile
            }
            Deed::CallNext => keys.permits.call_next(),
            Deed::Forget(tracked, waker) => drop((tracked, waker)),
            Deed::ForgetLease(held) => drop(held),
            Deed::LogAsks(asks, why) => {
                if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
                    let waiting_here = keys.known_waiters(resource).here;
                    tracing::debug!(target: TARGET, resource = resource.display(), asks, ?why, waiting_here, "asks");
                }
            }
            Deed::LogRound(verdict, granted, rounds) => {
                tracing::debug!(?verdict, granted = ?client.addresses(granted), rounds, "acquire round");
            }
            Deed::LogRefused(round, asks) => {
                wait_events::refused(resource, &round, asks, || keys.known_waiters(resource));
            }
            Deed::LogWon(asks, rounds) => {
                tracing::debug!(target: TARGET, resource = resource.display(), asks, rounds, "won");
            }
        }
    }

    /// Queues the request on all instances.
    fn send(self: &Arc<Self>, client: &ClientParts, claim: &Arc<Claim>, number: RoundNumber) {
        let all = client.all_instances();
        client.counters.rounds.add(1);
        RedisInstance::call_each(&client.instances, all, |id| {
            let reply_to = ReplyTo::numbered(Arc::clone(self) as Arc<_>, id, number);
            (Request::Acquire(Arc::clone(claim)), reply_to)
        });
    }

    /// P34: a mark leaves as a reader does. Unless its writer `has_won`, readers that have announced themselves to this client are woken.
    fn remove_mark(&self, keys: &Keys, mark: &WriterMark, has_won: bool) {
        let (value, token) = (Value::from_wire(mark.as_bytes()), FencingToken::propose(0, None));
        let claim = Claim::new(self.resource.clone(), value, token, LONGEST_MARK);
        let claim = Arc::new(Claim { access: Access::Read, ..claim });
        let wakes = if has_won { None } else { keys.client.next_to_wake(&self.resource) };
        let targets = keys.client.all_instances();
        let now = keys.client.clock.now();
        self.lock().change(keys, now, |key, cx| key.left.releases.send((claim, wakes), targets, None, cx));
    }

    /// Sends messages to other clients. Whether one has heard them decides how long the pause is.
    fn announce(self: &Arc<Self>, client: &ClientParts, (of, pause): (Option<CallerId>, u64), messages: Announcement) {
        let published =
            messages.into_iter().filter_map(|(id, wake)| Some(client.instances.get(id.index())?.publish(wake)));
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
        let Some(keys) = self.keys.upgrade() else { return };
        let mut state = self.lock();
        let now = keys.client.clock.now();
        let may_decide = state.change(&keys, now, |key, cx| key.take(number, id, reply, cx));
        if may_decide || !state.deeds.is_empty() {
            self.drive(&keys, state, now);
        } else if !state.is_driven {
            self.leave(&keys, state);
        }
    }
}

impl WaitsForPermit for KeyCell {
    /// The timer drives it: one key that loses its attempt may call the next, and that another, and so on.
    fn called(self: Arc<Self>, is_its_turn: bool) {
        if let Some(keys) = self.keys.upgrade() {
            self.lock().key.called(is_its_turn);
            keys.timer.call(self, keys.client.clock.now());
        }
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
