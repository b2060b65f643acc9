//! What the asker of a line does next.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Aftermath, AskerId, AskerStart, Line, LineState, Offer};
use crate::clock::Clock;
use crate::foreign::wake;
use crate::runtime::acquire::failure::AcquireFailure;
use crate::runtime::acquire::params::AcquireParams;
use crate::runtime::client_task::AbortableTask;
use crate::runtime::held_lease::{HeldLease, Validity};

/// What an asker does next.
pub(crate) enum NextStep {
    /// It asks on the wire.
    Ask(Arc<AcquireParams>),
    /// It waits until the lease is lost, if there is one, or the line has changed, or so long.
    Watch(Option<Arc<HeldLease>>, Duration),
    /// As it watches, and wants nothing: nobody is polled.
    Rest(Duration),
    /// Others get their turn.
    Pause,
    /// Nobody needs it any more.
    End,
}

/// What has become of a lease that was won for a line.
pub(crate) enum Parked {
    /// Somebody is offered it, and others wait.
    GoOn,
    /// Somebody is offered it, and nobody else waits: the asker has ended.
    End,
    /// Nobody is there for it.
    Unwanted,
}

impl Line {
    /// The task of an asker, which it may have outlived already.
    pub(crate) fn set_task(&self, id: AskerId, task: AbortableTask) {
        let mut state = self.lock();
        match state.asker.as_mut().filter(|asker| asker.id == id) {
            Some(asker) => asker.task = Some(task),
            None => task.detach(),
        }
    }

    /// What the asker does next. Whoever was offered a lease for longer than `patience` is passed over.
    pub(crate) fn next_step(&self, id: AskerId, patience: Duration, clock: &dyn Clock) -> (NextStep, Aftermath) {
        let mut after = Aftermath::default();
        let mut state = self.lock();
        if !state.is_asked_by(id) {
            return (NextStep::End, after);
        }
        if !state.needs_asker() {
            state.end_asker();
            after.is_idle = state.is_idle();
            return (NextStep::End, after);
        }
        if let Some(offer) = state.offer.take() {
            let age = clock.now().saturating_since(offer.since);
            if age < patience {
                state.offer = Some(offer);
                return (NextStep::Watch(None, patience.saturating_sub(age)), after);
            }
            state.pass_over(offer, clock, &mut after);
            return (NextStep::Watch(None, patience), after);
        }
        if let Some(held) = &state.held {
            match held.validity(clock) {
                Validity::Held(_) => return (NextStep::Watch(Some(Arc::clone(held)), patience), after),
                Validity::GivenUp => return (NextStep::Watch(None, patience), after), // its release is about to be queued
                Validity::Lost => state.held = None,
            }
        }
        let Some((_, next)) = state.queue.next() else {
            (state.last_failure, state.is_asked) = (None, false); // which says nothing to whoever comes
            return (NextStep::Rest(patience), after);
        };
        let params = Arc::clone(&next.params);
        if state.turns.take_pause() {
            return (NextStep::Pause, after);
        }
        (NextStep::Ask(params), after)
    }

    /// An ask is sent.
    pub(crate) fn note_ask(&self) {
        self.lock().is_asked = true;
    }

    /// Whether an ask is under way, or has ended, for those who wait now.
    pub(crate) fn is_asked(&self) -> bool {
        self.lock().is_asked
    }

    /// Waits for a change that concerns the asker.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Offers a lease that was won to whoever is next.
    pub(crate) fn park(&self, id: AskerId, held: Arc<HeldLease>, clock: &dyn Clock) -> (Parked, Aftermath) {
        let mut after = Aftermath::default();
        let mut state = self.lock();
        if !state.is_asked_by(id) {
            return (Parked::Unwanted, after);
        }
        state.turns.won();
        (state.last_failure, state.is_asked) = (None, false);
        let former = state.offer.take().map(|offer| offer.held); // lost since, or this could not have been won
        let holder = Arc::clone(held.holder());
        state.held = Some(Arc::clone(&held));
        state.offer_to_next(held, clock.now(), &mut after);
        after.wakers.extend(state.queue.wakers_for_failure()); // nobody asks while somebody of this client has it
        after.wakers.extend(state.queue.wakers_of(&holder));
        if std::mem::replace(&mut after.give_back, former).is_some() {
            return (Parked::Unwanted, after);
        }
        if state.needs_asker() {
            return (Parked::GoOn, after);
        }
        state.end_asker();
        (Parked::End, after)
    }

    /// An ask was in vain; `false` if somebody of this client has the lock, so that the next need not wait long.
    pub(crate) fn note_failure(&self, id: AskerId, failure: AcquireFailure, clock: &dyn Clock) -> bool {
        let mut state = self.lock();
        if !state.is_asked_by(id) {
            return true;
        }
        if matches!(failure, AcquireFailure::RoundLost(_)) {
            state.turns.others_have_it();
        }
        let former = state.last_failure.replace(failure);
        let wakers = state.queue.wakers_for_failure();
        let is_held_here = state.held_here(clock).is_some();
        drop(state);
        drop(former);
        wakers.into_iter().for_each(wake);
        !is_held_here
    }

    /// Nobody who waits now gets a lease.
    pub(crate) fn fail_all(&self, id: AskerId, failure: AcquireFailure) -> Aftermath {
        let mut after = Aftermath::default();
        let mut state = self.lock();
        if !state.is_asked_by(id) {
            return after;
        }
        state.end_asker();
        state.failed = Some(failure);
        let all = state.queue.take_all();
        after.wakers.extend(all.filter_map(|waiting| waiting.waker));
        if let Some(offer) = state.offer.take() {
            state.forget_held(&offer.held);
            after.give_back = Some(offer.held);
        }
        after.is_idle = state.is_idle();
        after
    }

    /// An asker has ended and should not have: another one, if anybody waits.
    pub(crate) fn restart(&self, id: AskerId) -> Option<AskerStart> {
        let mut state = self.lock();
        if !state.is_asked_by(id) {
            return None;
        }
        state.end_asker();
        state.asker_needed()
    }
}

impl LineState {
    fn is_asked_by(&self, id: AskerId) -> bool {
        self.asker.as_ref().is_some_and(|asker| asker.id == id)
    }

    /// The asker ends by itself.
    fn end_asker(&mut self) {
        if let Some(task) = self.asker.take().and_then(|asker| asker.task) {
            task.detach();
        }
    }

    /// Offers to the next what was not taken in time; to nobody else if nobody else is there.
    fn pass_over(&mut self, offer: Offer, clock: &dyn Clock, after: &mut Aftermath) {
        if let Some(waiting) = self.queue.get_mut(offer.to) {
            waiting.is_passed_over = true;
        }
        if self.queue.next().is_some() {
            self.offer_to_next(offer.held, clock.now(), after);
        } else {
            self.offer = Some(offer);
        }
    }
}
