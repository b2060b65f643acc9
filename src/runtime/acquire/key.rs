//! One lock in one client: who has it, who waits for it, what is asked, and what is due (P24).
//!
//! The life of a lock reads from top to bottom: a caller takes a place in the line; the first of the line asks all instances;
//! the quorum-th grant makes a lease, which the caller collects as a guard; the guard's end passes the lease on to the next, or lets
//! it go. Readers have leases of their own (P33): each asks for itself, and stands in the line only while a writer of this
//! client is before it.
//!
//! Replies and time drive it, so a caller that does not poll delays nobody for longer than an answer may take. Whoever brings an event
//! changes the state under the mutex of the key, and [drives](super::keys) it. Nothing is sent from here, and nothing foreign is called: what
//! is to be done is put into [`Cx::deeds`], in order.

mod readers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use super::asker::Asker;
use super::attempt::{Left, Outcome};
use super::cx::{CallerId, Cx, Deed, RoundNumber};
use super::turns::Turns;
use super::{AcquireFailure, AcquireParams, Purpose};
use crate::clock::Clock;
use crate::protocol::{Access, InstanceId, Instant, LeaseTerms, Reply, Round, Value};
use crate::resource::Resource;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::order::WaitsToBeWoken;
use crate::runtime::tasks::TrackedAttempt;
use crate::runtime::wait_events::AskReason;

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The lock, however long that takes.
    Lock,
    /// The lock, if it can be had now.
    Try,
    /// Its turn, without the lock; it keeps that until it goes. It may be counted as one that waits for a lock.
    Turn { counts: bool },
}

/// When a wait is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(super) begun: Instant,
    pub(super) limit: Option<Duration>,
}

impl Deadline {
    /// When it is over; `None` for never.
    pub(super) fn at(self) -> Option<Instant> {
        self.limit.map(|limit| self.begun.saturating_add(limit))
    }

    pub(super) fn has_passed(self, now: Instant) -> bool {
        self.at().is_some_and(|at| now >= at)
    }

    pub(super) fn failure(self, last: AcquireFailure, now: Instant) -> AcquireFailure {
        AcquireFailure::DeadlinePassed { waited: now.saturating_since(self.begun), last: Box::new(last) }
    }
}

/// What a caller finds.
pub(super) enum Found {
    /// A lease, with a guard that it has not collected yet.
    Lease(Arc<HeldLease>),
    /// It is its turn.
    Turn,
    Failed(AcquireFailure),
    /// What it had won was passed on, since it did not poll.
    Missed,
}

/// A caller with a place.
struct Caller {
    id: CallerId,
    /// Its place in the line: the line is in this order. A reader that was beside it has come into it later than it came.
    place: u64,
    want: Want,
    params: Arc<AcquireParams>,
    deadline: Deadline,
    /// Until its outcome is known, and its releases are queued.
    tracked: Option<TrackedAttempt>,
    waker: Option<Waker>,
    /// Of a single try: how many rounds of others had begun when it came.
    came_after: u64,
    /// Of a reader: what it asks, and why the last attempt failed.
    reader: Option<Box<(Asker, Option<AcquireFailure>)>>,
}

impl Caller {
    fn is_reader(&self) -> bool {
        self.params.access == Access::Read
    }

    fn is_writer_that_waits(&self) -> bool {
        self.want == Want::Lock && !self.is_reader()
    }

    const fn waits(&self) -> bool {
        !matches!(self.want, Want::Try | Want::Turn { counts: false })
    }
}

/// A caller whose wait has ended.
struct Ended {
    caller: Box<Caller>,
    found: Found,
    /// Until when it may collect a lease; then that is passed on.
    until: Option<Instant>,
}

/// The state of one lock.
#[derive(Default)]
pub(super) struct Key {
    /// Those that have a place, first come first served.
    line: VecDeque<Box<Caller>>,
    /// Readers that have none, as no writer of this client was before them.
    beside: BTreeMap<CallerId, Box<Caller>>,
    ended: Vec<Ended>,
    /// How many of the line wait, and how many of them are readers; how many are counted in another line, where one of several locks is
    /// enough (P35).
    waiting: usize,
    readers: usize,
    counted_elsewhere: usize,
    /// What the writers of the line ask, one after the other.
    writing: Asker,
    pub(super) left: Left,
    /// The lease that this client has, as far as it is known; also while nobody has collected it.
    held: Option<Arc<HeldLease>>,
    turns: Turns,
    /// Whether an attempt was sent for those that wait now, and why the last one failed.
    is_asked: bool,
    last_failure: Option<AcquireFailure>,
    /// How many rounds of single tries have begun, and the number, the terms and the failure of the last that was lost.
    tries: u64,
    lost_try: Option<(u64, LeaseTerms, AcquireFailure)>,
    last_caller: CallerId,
    /// The places of those whose number does not show it.
    places: BTreeMap<CallerId, u64>,
    /// Whether callers that are not the first may learn something.
    has_news: bool,
    /// Whether each reader is to be looked at, and those that are in any case.
    readers_have_news: bool,
    looked_for: Vec<CallerId>,
    /// The readers for which the key waits for permits.
    wait_for_permit: VecDeque<CallerId>,
    /// Not after the first end of a wait.
    next_end: Option<Instant>,
    /// Whether it is its turn to have a permit.
    is_called: bool,
    is_closed: bool,
}

/// This client has ended a lease, and releases its keys.
#[derive(Debug)]
pub(crate) struct Released;

/// What callers do.
impl Key {
    /// One more place. A single try gets none while another caller of this client has the lock or waits for it.
    pub(super) fn join(
        &mut self,
        want: Want,
        params: &Arc<AcquireParams>,
        deadline: Deadline,
        tracked: Option<TrackedAttempt>,
        cx: &Cx<'_>,
    ) -> Result<CallerId, AcquireFailure> {
        let is_reader = params.access == Access::Read && !matches!(want, Want::Turn { .. });
        let is_careful = is_reader || want == Want::Try;
        let refusal = if is_careful { self.refusal(params, u64::MAX, cx) } else { None };
        if self.is_closed {
            return Err(AcquireFailure::ShutDown);
        }
        let refusal = match refusal {
            Some(refusal) if want == Want::Try => return Err(refusal),
            refusal => refusal,
        };
        self.last_caller += 1;
        let is_beside = is_reader && refusal.is_none();
        let reader = is_reader.then(|| Box::new((Asker::default(), refusal)));
        let caller = Box::new(Caller {
            id: self.last_caller,
            place: self.last_caller,
            want,
            params: Arc::clone(params),
            deadline,
            tracked,
            waker: None,
            came_after: self.tries,
            reader,
        });
        if let Some(at) = deadline.at() {
            self.next_end = Some(self.next_end.map_or(at, |first| first.min(at)));
        }
        self.looked_for.extend(is_reader.then_some(caller.id));
        if is_beside {
            drop(self.beside.insert(caller.id, caller))
        } else {
            self.push_back(caller)
        }
        Ok(self.last_caller)
    }

    fn push_back(&mut self, caller: Box<Caller>) {
        self.count(&caller, |number| *number += 1);
        self.line.push_back(caller);
    }

    /// Counts a place that is taken or left in each count that it belongs to.
    fn count(&mut self, caller: &Caller, change: impl Fn(&mut usize)) {
        if !caller.waits() {
            return;
        }
        change(&mut self.waiting);
        if caller.is_reader() {
            change(&mut self.readers);
        }
        if caller.params.purpose == Purpose::Permit {
            change(&mut self.counted_elsewhere);
        }
    }

    /// What the caller finds; `None` if it has to wait, and is woken.
    pub(super) fn poll(&mut self, id: CallerId, context: &Context<'_>, deeds: &mut Vec<Deed>) -> Option<Found> {
        if let Some(at) = self.ended.iter().position(|ended| ended.caller.id == id) {
            let ended = self.ended.swap_remove(at);
            deeds.push(Deed::Forget(ended.caller.tracked, ended.caller.waker));
            return Some(ended.found);
        }
        let is_first = self.line.front().is_some_and(|first| first.id == id);
        let Some(caller) = self.caller(id) else { return Some(Found::Missed) };
        if is_first && matches!(caller.want, Want::Turn { .. }) {
            return Some(Found::Turn); // it keeps its place
        }
        let known = caller.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if !known {
            let former = caller.waker.replace(context.waker().clone());
            deeds.extend(former.map(|waker| Deed::Forget(None, Some(waker))));
        }
        None
    }

    fn caller(&mut self, id: CallerId) -> Option<&mut Box<Caller>> {
        match self.place_of(id) {
            Some(at) => self.line.get_mut(at),
            None => self.beside.get_mut(&id),
        }
    }

    /// Where it stands in the line.
    fn place_of(&self, id: CallerId) -> Option<usize> {
        let place = self.places.get(&id).copied().unwrap_or(id);
        let at = self.line.binary_search_by_key(&place, |caller| caller.place).ok()?;
        self.line.get(at).filter(|caller| caller.id == id).map(|_| at)
    }

    /// The caller has gone, at any moment; nothing of it stays.
    pub(super) fn leave(&mut self, id: CallerId, cx: &mut Cx<'_>) {
        if let Some(at) = self.ended.iter().position(|ended| ended.caller.id == id) {
            let ended = self.ended.swap_remove(at);
            if let Found::Lease(held) = ended.found {
                cx.deeds.push(Deed::LetGo(held));
            }
            cx.deeds.push(Deed::Forget(ended.caller.tracked, ended.caller.waker));
        } else if let Some(caller) = self.take_out(id, cx) {
            cx.deeds.push(Deed::Forget(caller.tracked, caller.waker));
        }
    }

    /// Takes a caller out of its place; what it has asked is given up.
    fn take_out(&mut self, id: CallerId, cx: &mut Cx<'_>) -> Option<Box<Caller>> {
        let mut caller = match self.place_of(id) {
            Some(at) => {
                if at == 0 && !matches!(self.line.front().map(|first| first.reader.is_some()), Some(true)) {
                    self.writing.abandon(&mut self.left, cx);
                }
                let caller = self.line.remove(at)?;
                self.readers_have_news |= self.readers > 0 && !caller.is_reader();
                self.count(&caller, |number| *number -= 1);
                caller
            }
            None => self.beside.remove(&id)?,
        };
        self.places.remove(&id);
        if let Some(reader) = &mut caller.reader {
            reader.0.abandon(&mut self.left, cx);
            reader.0.end(false, cx);
        }
        if self.waiting == 0 {
            self.nobody_waits(cx);
        }
        Some(caller)
    }

    /// What was learnt for those that waited is forgotten.
    fn nobody_waits(&mut self, cx: &mut Cx<'_>) {
        self.is_asked = false;
        self.last_failure = None;
        if !self.writing.has_attempt() {
            self.writing.end(false, cx);
        }
    }

    /// Ends a wait, and wakes its caller.
    fn end(&mut self, caller: Box<Caller>, found: Found, cx: &mut Cx<'_>) {
        let mut caller = caller;
        let until = matches!(found, Found::Lease(_)).then(|| cx.now.saturating_add(cx.client.instance_timeout));
        if until.is_none() {
            cx.deeds.push(Deed::Forget(caller.tracked.take(), None));
        }
        cx.deeds.extend(caller.waker.take().map(Deed::Wake));
        self.ended.push(Ended { caller, found, until });
    }

    fn fail(&mut self, id: CallerId, failure: AcquireFailure, cx: &mut Cx<'_>) {
        if let Some(caller) = self.take_out(id, cx) {
            self.end(caller, Found::Failed(failure), cx);
        }
    }

    /// No caller gets the lock any more, for this reason.
    pub(super) fn close(&mut self, why: &AcquireFailure, cx: &mut Cx<'_>) {
        self.is_closed = true;
        let all: Vec<CallerId> = self.line.iter().map(|caller| caller.id).chain(self.beside.keys().copied()).collect();
        all.into_iter().for_each(|id| self.fail(id, why.clone(), cx));
        for ended in self.ended.iter_mut().filter(|ended| ended.until.is_some()) {
            ended.until = None;
            if let Found::Lease(held) = std::mem::replace(&mut ended.found, Found::Failed(why.clone())) {
                cx.deeds.push(Deed::LetGo(held));
                cx.deeds.push(Deed::Forget(ended.caller.tracked.take(), None));
            }
        }
    }
}

/// What is known of it.
impl Key {
    /// Whether nothing is under way, and nobody would miss it.
    pub(super) fn is_forgettable(&self) -> bool {
        let nobody = self.line.is_empty() && self.beside.is_empty() && self.ended.is_empty();
        nobody && self.held.is_none() && self.left.is_empty() && !self.writing.has_attempt()
    }

    /// Whether no caller of this client has the lock or tries to get it. A guard may still be there whose lease was lost.
    pub(super) fn is_idle(&self, clock: &dyn Clock) -> bool {
        // One that is given up is about to be released.
        let is_lost = |held: &Arc<HeldLease>| held.remaining(clock).is_zero() && !held.is_given_up();
        let nobody = self.line.is_empty() && self.beside.is_empty() && self.ended.is_empty();
        nobody && self.held.as_ref().is_none_or(is_lost)
    }

    /// How many wait, and how many of them are counted elsewhere.
    pub(super) const fn waiting(&self) -> (usize, usize) {
        (self.waiting, self.counted_elsewhere)
    }

    /// How many writers wait.
    pub(super) const fn writers(&self) -> usize {
        self.waiting.saturating_sub(self.readers)
    }

    /// The lease that this client has.
    pub(super) const fn held(&self) -> Option<&Arc<HeldLease>> {
        self.held.as_ref()
    }

    /// Who of this client has the lock.
    pub(super) fn held_here(&self, clock: &dyn Clock) -> Option<AcquireFailure> {
        let held = self.held.as_ref()?;
        let expires_in = held.remaining(clock);
        let held_here = || AcquireFailure::HeldHere { by: Some(held.claim()), expires_in: Some(expires_in) };
        (!expires_in.is_zero()).then(held_here)
    }

    /// Why those that wait do not have the lock, as far as it is known.
    fn why_not_yet(&self, cx: &Cx<'_>) -> Option<AcquireFailure> {
        self.held_here(&*cx.client.clock).or_else(|| self.last_failure.clone())
    }

    /// Why a single try is not sent that came after so many rounds of others had begun; or a reader, which does not wait for readers.
    pub(super) fn refusal(&self, params: &AcquireParams, came_after: u64, cx: &Cx<'_>) -> Option<AcquireFailure> {
        let before = if params.access == Access::Read { self.writers() } else { self.waiting };
        let waited_for = || self.last_failure.clone().unwrap_or(AcquireFailure::WAITED_FOR);
        let lost = self.lost_try.as_ref().filter(|(number, terms, failure)| {
            *number > came_after && (*terms == params.terms || !failure.is_of_its_terms())
        });
        let refusal = self.held_here(&*cx.client.clock).or_else(|| (before > 0).then(waited_for));
        refusal.or_else(|| lost.map(|(.., failure)| failure.clone()))
    }

    /// One more guard of the lease of the same holder (P23), past the line, which no caller has collected yet; `None` if it has none.
    pub(super) fn share(&self, params: &AcquireParams) -> Option<Arc<HeldLease>> {
        if params.holder.is_empty() || params.access == Access::Read {
            return None; // each reader has a lease of its own (P33)
        }
        // Counted under the lease's mutex, so that it is not given up meanwhile.
        self.held.as_ref().filter(|held| *held.holder() == params.holder && held.add_guard()).cloned()
    }

    /// One more guard, which no caller has collected yet, of the lease with this value; `None` if this client does not have
    /// it. An error if it has released the lease, or is about to.
    pub(super) fn share_value(&self, value: &Value) -> Result<Option<Arc<HeldLease>>, Released> {
        match self.held.as_ref().filter(|held| held.claim().value == *value) {
            Some(held) if held.add_guard() => Ok(Some(Arc::clone(held))),
            Some(held) if held.is_released() => Err(Released),
            _ => Ok(None),
        }
    }
}

/// The lease that this client has.
impl Key {
    /// From now on this client has this lease. Gives the one that it knew before.
    pub(super) fn put_held(&mut self, held: &Arc<HeldLease>, deeds: &mut Vec<Deed>) {
        self.turns.won();
        (self.last_failure, self.is_asked) = (None, false);
        let former = self.held.replace(Arc::clone(held));
        deeds.extend(former.map(Deed::ForgetLease));
        self.held_has_changed();
    }

    fn held_has_changed(&mut self) {
        (self.has_news, self.readers_have_news) = (true, true);
        self.writing.looks_at = None;
        self.writing.go_on();
    }

    /// Gives a lease that its guard gives up to the next that waits; `false` if it is to be released. `others` returns how many
    /// are known to wait in other clients, if that can be known.
    pub(super) fn hand_over(
        &mut self,
        held: &Arc<HeldLease>,
        others: impl FnOnce() -> Option<usize>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let is_known = self.held.as_ref().is_some_and(|known| Arc::ptr_eq(known, held));
        let clock = &*cx.client.clock;
        if self.is_closed || !is_known || self.waiting == 0 || self.turns.is_over(others, cx.now) {
            return false;
        }
        let next = self.line.iter().find(|caller| caller.waits());
        let may_take = |next: &Caller| next.is_writer_that_waits() && next.params.may_take(held, clock);
        let Some(id) = next.filter(|next| may_take(next)).map(|next| next.id) else { return false };
        if !held.end_tenure(clock) {
            return false;
        }
        let Some(caller) = self.take_out(id, cx) else { return false };
        let in_a_row = self.turns.handed_over();
        cx.deeds.push(Deed::HandedOver(Arc::clone(held), in_a_row, self.waiting + 1)); // the former guard ends before the next begins
        self.end(caller, Found::Lease(Arc::clone(held)), cx);
        self.held_has_changed();
        true
    }

    /// A lease was given up. Its release is queued by now, so that the next attempt is sent behind it.
    pub(super) fn let_go(&mut self, held: &HeldLease, deeds: &mut Vec<Deed>) {
        let known = self.held.take_if(|known| std::ptr::eq(Arc::as_ptr(known), held));
        if let Some(known) = known {
            deeds.push(Deed::ForgetLease(known));
            self.held_has_changed();
        }
    }

    /// A lease has ended, by itself or as it is gone.
    pub(super) fn held_has_ended(&mut self) {
        if self.held.is_some() {
            self.held_has_changed();
        }
    }
}

/// What comes from outside.
impl Key {
    /// Takes in a reply; whether that may decide something.
    pub(super) fn take(&mut self, number: RoundNumber, id: InstanceId, reply: Reply, cx: &mut Cx<'_>) -> bool {
        if self.writing.awaits(number, id) {
            return self.writing.take(id, reply, cx.now);
        }
        if self.left.take(number, id, &reply, cx) {
            return false;
        }
        let asking =
            |caller: &&mut Box<Caller>| caller.reader.as_ref().is_some_and(|reader| reader.0.awaits(number, id));
        let asks = self.beside.values_mut().chain(&mut self.line).find(asking);
        let Some((caller, reader)) = asks.and_then(|caller| Some((caller.id, caller.reader.as_mut()?))) else {
            return false;
        };
        let may_decide = reader.0.take(id, reply, cx.now);
        self.looked_for.extend(may_decide.then_some(caller));
        may_decide
    }

    /// Whether what was announced in a pause was heard: for a reader, or the writers.
    pub(super) fn note_heard(&mut self, of: Option<CallerId>, pause: u64, is_heard: bool) {
        match of {
            None => self.writing.note_heard(pause, is_heard),
            Some(id) => {
                if let Some(reader) = self.caller(id).and_then(|caller| caller.reader.as_mut()) {
                    reader.0.note_heard(pause, is_heard);
                    self.looked_for.push(id);
                }
            }
        }
    }

    /// Something may have changed for one that pauses: a reader, or the writers.
    pub(super) fn woken(&mut self, of: Option<CallerId>) {
        self.looked_for.extend(of);
    }

    /// It is its turn to have a permit, or one has become known to be of no use.
    pub(super) fn called(&mut self, is_its_turn: bool) {
        self.is_called |= is_its_turn;
        self.writing.waits_for_permit = false;
        let next = if is_its_turn { self.wait_for_permit.pop_front() } else { None };
        if let Some(id) = next
            && let Some(reader) = self.reader(id)
        {
            reader.0.waits_for_permit = false;
            self.looked_for.push(id);
        }
    }
}

/// What is to be done by now. Called until nothing is.
impl Key {
    pub(super) fn advance(&mut self, on: &OnKey<'_>, cx: &mut Cx<'_>) {
        self.take_back(cx);
        self.left.releases.end_patience(cx);
        loop {
            if std::mem::take(&mut self.has_news) {
                self.tell_news(cx);
            }
            if self.has_ends(cx.now) {
                self.end_waits(cx);
            }
            while self.advance_first(on, cx) {}
            self.advance_readers(on, cx);
            if !self.has_news && !self.has_ends(cx.now) {
                break;
            }
        }
        if std::mem::take(&mut self.is_called) {
            cx.deeds.push(Deed::CallNext); // nobody of this key needed the permit
        }
    }

    fn has_ends(&self, now: Instant) -> bool {
        self.next_end.is_some_and(|end| now >= end)
    }

    /// What was won for callers that have not polled is passed on.
    fn take_back(&mut self, cx: &mut Cx<'_>) {
        while let Some(at) = self.ended.iter().position(|ended| ended.until.is_some_and(|until| cx.now >= until)) {
            let Ended { caller, found, .. } = self.ended.swap_remove(at);
            if let Found::Lease(held) = found {
                cx.deeds.push(Deed::LetGo(held));
            }
            cx.deeds.push(Deed::Forget(caller.tracked, caller.waker));
        }
    }

    /// Those that are not the first, single tries, and those of whose holder another has the lease.
    fn tell_news(&mut self, cx: &mut Cx<'_>) {
        let first_asks = self.writing.has_attempt();
        let mut told: Vec<(CallerId, Found)> = Vec::new();
        for (at, caller) in self.line.iter().enumerate() {
            let asks = at == 0 && first_asks;
            let shared = if matches!(caller.want, Want::Turn { .. }) { None } else { self.share(&caller.params) };
            if let Some(held) = shared {
                told.push((caller.id, Found::Lease(held)));
            } else if caller.want == Want::Try && !asks && !caller.is_reader() {
                let refusal = self.refusal(&caller.params, caller.came_after, cx);
                told.extend(refusal.map(|refusal| (caller.id, Found::Failed(refusal))));
            } else if caller.deadline.has_passed(cx.now) && caller.is_writer_that_waits() {
                let last = self.why_not_yet(cx);
                told.extend(last.map(|last| (caller.id, Found::Failed(caller.deadline.failure(last, cx.now)))));
            }
        }
        for (id, found) in told {
            if let Some(caller) = self.take_out(id, cx) {
                self.end(caller, found, cx);
            }
        }
    }

    /// Ends the waits that are over. An attempt is waited for, so that a short wait still learns who has the lock; not for
    /// long if its turn does not come, where there are very many waiters.
    fn end_waits(&mut self, cx: &mut Cx<'_>) {
        let (mut over, mut next_end) = (Vec::new(), None);
        let patience = cx.client.instance_timeout;
        let first_asks = self.writing.has_attempt();
        for (at, caller) in self.line.iter().enumerate() {
            let Some(end) = caller.deadline.at().filter(|_| caller.want != Want::Try) else { continue };
            let last = match (&caller.reader, caller.want) {
                (Some(reader), _) => Self::why_reader_gives_up(reader),
                (None, Want::Turn { .. }) if at == 0 => continue,
                (None, Want::Turn { .. }) => Some(AcquireFailure::WAITED_FOR),
                (None, _) => self.why_not_yet(cx),
            };
            let waits_on = caller.reader.is_none() && (self.is_asked || (at == 0 && first_asks));
            let is_last = !waits_on && (caller.reader.is_some() || cx.now >= end.saturating_add(patience));
            let last = last.or_else(|| is_last.then_some(AcquireFailure::QueueTimeout));
            Self::note_end((caller, end), last, (&mut over, &mut next_end), cx);
        }
        for caller in self.beside.values() {
            let Some(end) = caller.deadline.at().filter(|_| caller.want != Want::Try) else { continue };
            let last = caller.reader.as_ref().and_then(|reader| Self::why_reader_gives_up(reader));
            Self::note_end((caller, end), last, (&mut over, &mut next_end), cx);
        }
        self.next_end = next_end;
        for (id, failure) in over {
            self.fail(id, failure, cx);
        }
    }

    /// Notes a wait that is over and for which it is known why, or when to look at it again.
    fn note_end(
        (caller, end): (&Caller, Instant),
        last: Option<AcquireFailure>,
        (over, next_end): (&mut Vec<(CallerId, AcquireFailure)>, &mut Option<Instant>),
        cx: &Cx<'_>,
    ) {
        let look_at = match last {
            Some(last) if cx.now >= end => return over.push((caller.id, caller.deadline.failure(last, cx.now))),
            // Its attempt decides; if there is none, the end of its patience.
            _ if cx.now >= end => end.saturating_add(cx.client.instance_timeout).max(cx.now.saturating_add(LEAST)),
            _ => end,
        };
        *next_end = Some(next_end.map_or(look_at, |first: Instant| first.min(look_at)));
    }

    /// The first attempt of a reader is waited for, so that a short wait still learns who has the lock.
    fn why_reader_gives_up((asker, last): &(Asker, Option<AcquireFailure>)) -> Option<AcquireFailure> {
        match last {
            Some(last) => Some(last.clone()),
            None => asker.waits_for_permit.then_some(AcquireFailure::QueueTimeout),
        }
    }

    /// One step of the first of the line, if it writes; whether another is worth a look.
    fn advance_first(&mut self, on: &OnKey<'_>, cx: &mut Cx<'_>) -> bool {
        let Some(first) = self.line.front() else { return false };
        let (id, want) = (first.id, first.want);
        if let Want::Turn { .. } = want {
            let waker = self.line.front_mut().and_then(|first| first.waker.take());
            cx.deeds.extend(waker.map(Deed::Wake));
            return false;
        }
        if first.is_reader() {
            self.writing.abandon(&mut self.left, cx);
            self.writing.give_up_writing(cx);
            return false;
        }
        let Some(outcome) = self.writing.outcome(&mut self.left, cx) else {
            return !self.writing.has_attempt() && self.next_step(on, cx);
        };
        match outcome {
            Outcome::Won(held) => {
                cx.deeds.extend((want == Want::Lock).then_some(Deed::LogWon(self.writing.asks, self.writing.rounds)));
                self.put_held(&held, cx.deeds);
                self.writing.end(true, cx);
                if let Some(caller) = self.take_out(id, cx) {
                    self.end(caller, Found::Lease(held), cx);
                }
            }
            Outcome::Undecided(failure) => {
                if want == Want::Lock {
                    self.note_failure(|last| failure.note_undecided_in(last));
                    if self.held_here(&*cx.client.clock).is_some() {
                        self.writing.abandon(&mut self.left, cx); // this client has it
                    }
                }
            }
            Outcome::Lost(failure) => self.lost(id, failure, on, cx),
        }
        true
    }

    /// The attempt of the first was lost.
    fn lost(&mut self, id: CallerId, failure: AcquireFailure, on: &OnKey<'_>, cx: &mut Cx<'_>) {
        let Some(first) = self.line.front() else { return };
        let (params, is_try) = (Arc::clone(&first.params), first.want == Want::Try);
        let AcquireFailure::RoundLost(round) = &failure else { return self.fail(id, failure, cx) }; // which does not pass
        if is_try {
            if params.is_fought_out() {
                self.lost_try = Some((self.tries, params.terms, failure.clone()));
                self.has_news = true;
            }
            cx.deeds.push(Deed::TryRefused); // P26
            self.writing.end(false, cx); // the next try begins anew
            return self.fail(id, failure, cx);
        }
        let round = round.clone();
        cx.deeds.push(Deed::LogRefused(round.clone(), self.writing.asks));
        let leaves_mark = self.writing.note_readers(&round, cx);
        self.note_failure(|last| last.replace(failure));
        if self.held_here(&*cx.client.clock).is_some() || leaves_mark {
            return; // the next step is to wait for the holder, or to try at once, and to leave the mark (P34)
        }
        Self::begin_pause(&mut self.writing, None, (on, Access::Write), &round, cx);
    }

    fn begin_pause(
        asker: &mut Asker,
        of: Option<CallerId>,
        (on, access): (&OnKey<'_>, Access),
        lost: &Round,
        cx: &mut Cx<'_>,
    ) {
        match asker.begin_pause((on.resource, access), lost, (on.waiter, of), cx) {
            Some((pause, announcement)) if !announcement.is_empty() => {
                cx.deeds.push(Deed::Announce(of, pause, announcement));
            }
            Some((pause, _)) => asker.note_heard(pause, false),
            None => {}
        }
    }

    fn note_failure(&mut self, note: impl FnOnce(&mut Option<AcquireFailure>) -> Option<AcquireFailure>) {
        drop(note(&mut self.last_failure));
        self.has_news = true;
    }

    /// What the first does that has no attempt under way; whether another look is worth it.
    fn next_step(&mut self, on: &OnKey<'_>, cx: &mut Cx<'_>) -> bool {
        let Some(first) = self.line.front() else { return false };
        let (id, want, params, begun) = (first.id, first.want, Arc::clone(&first.params), first.deadline.begun);
        let came_after = first.came_after;
        self.writing.looks_at = None;
        if let Some(held) = self.share(&params) {
            if let Some(caller) = self.take_out(id, cx) {
                self.end(caller, Found::Lease(held), cx);
            }
            return true;
        }
        let refusal = if want == Want::Try { self.refusal(&params, came_after, cx) } else { None };
        if let Some(refusal) = refusal {
            self.fail(id, refusal, cx);
            return true;
        }
        if let Some(held) = &self.held {
            let remaining = held.remaining(&*cx.client.clock);
            if !remaining.is_zero() || held.is_given_up() {
                let wait = if remaining.is_zero() { cx.client.instance_timeout } else { remaining }; // its release is about to be queued
                self.writing.why = AskReason::LetGo;
                self.writing.looks_at = Some(cx.now.saturating_add(wait));
                return false;
            }
            cx.deeds.extend(self.held.take().map(Deed::ForgetLease));
        }
        if self.writing.still_pauses(cx) {
            return false;
        }
        if want == Want::Lock && self.turns.take_pause() {
            self.writing.pause_until(cx.now.saturating_add(cx.client.retry.least()), AskReason::Turn);
            return false;
        }
        // P26: it leaves a lock that this client has just released to the client that it has woken, for a moment.
        if let Some(left) = cx.client.backs_off(on.resource) {
            self.writing.why = AskReason::Turn;
            self.writing.looks_at = Some(cx.now.saturating_add(left));
            return false;
        }
        if want == Want::Try
            && let Some(failure) = cx.outage.since(begun)
        {
            self.fail(id, failure, cx);
            return true;
        }
        let is_repeat = want == Want::Lock && matches!(self.writing.why, AskReason::Pause | AskReason::Expired);
        let is_called = std::mem::take(&mut self.is_called);
        let Some(permit) = cx.permits.take(is_repeat, is_called) else {
            if !std::mem::replace(&mut self.writing.waits_for_permit, true) {
                cx.deeds.push(Deed::WaitForPermit(is_repeat));
            }
            cx.deeds.extend(is_called.then_some(Deed::CallNext));
            return false;
        };
        self.writing.waits_for_permit = false;
        if want == Want::Try {
            self.tries += 1; // it counts for all that have come by now
        } else {
            self.is_asked = true;
        }
        match self.writing.ask((&params, want == Want::Lock), permit, &mut self.left, cx) {
            Ok(()) => false,
            Err(failure) => {
                self.fail(id, failure, cx);
                true
            }
        }
    }
}

impl Key {
    /// When time may change something next.
    pub(super) fn due(&mut self, cx: &Cx<'_>) -> Option<Instant> {
        let readers = self.beside.values().chain(&self.line).filter_map(|caller| caller.reader.as_ref()?.0.due(cx));
        let offered = self.ended.iter().filter_map(|ended| ended.until);
        let writing = if self.line.is_empty() { None } else { self.writing.due(cx) };
        offered.chain(readers).chain(self.next_end).chain(writing).chain(self.left.releases.due()).min()
    }

    /// Time has passed: readers for which that may mean something are to be looked at.
    pub(super) fn look(&mut self, cx: &Cx<'_>) {
        let is_due = |caller: &Caller| {
            let due = caller.reader.as_ref().and_then(|reader| reader.0.due(cx));
            due.is_some_and(|due| due <= cx.now)
        };
        let due = self.beside.values().chain(&self.line).filter(|caller| is_due(caller)).map(|caller| caller.id);
        self.looked_for.extend(due);
    }
}

/// Where the state stands.
pub(super) struct OnKey<'a> {
    pub(super) resource: &'a Resource,
    pub(super) waiter: &'a dyn Fn() -> Weak<dyn WaitsToBeWoken>,
}

/// Timers count whole milliseconds.
const LEAST: Duration = Duration::from_millis(1);
