//! A line, for its places.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::queue::PlaceNumber;
use super::state::{Aftermath, AskerStart, Line, LineState};
use crate::clock::Clock;
use crate::runtime::acquire::failure::AcquireFailure;
use crate::runtime::acquire::params::AcquireParams;
use crate::runtime::held_lease::{Tenure, Validity};

/// A place that was taken, and the asker that is to be started for it, if there is none yet.
pub(crate) struct Joined {
    pub(crate) number: PlaceNumber,
    pub(crate) start: Option<AskerStart>,
}

/// What a place has come to.
pub(crate) enum Turn {
    /// It has the lease.
    Lease(Tenure),
    /// Its holder has the lease: it shares it (P23).
    Shared,
    /// Nobody in the line gets a lease.
    Failed(AcquireFailure),
    /// Its wait is over, and this is what was in the way.
    InTheWay(AcquireFailure),
}

impl Line {
    /// A place at the end; `None` if the line is not used any more.
    pub(super) fn join(&self, params: &Arc<AcquireParams>) -> Option<Joined> {
        let mut state = self.lock();
        if state.is_retired {
            return None;
        }
        let nobody_is_polled = state.queue.next().is_none();
        if nobody_is_polled {
            (state.last_failure, state.is_asked) = (None, false); // of others, before
        }
        let number = state.queue.push(Arc::clone(params));
        let start = state.asker_needed();
        // Whoever has the offer may not take it, and an asker does nothing for those who are not polled.
        if state.offer.is_some() || (nobody_is_polled && start.is_none()) {
            self.changed.notify_one();
        }
        Some(Joined { number, start })
    }

    /// What a place has come to by now. `past_deadline` if its wait is over.
    pub(crate) fn poll(
        &self,
        number: PlaceNumber,
        (waker, past_deadline): (&Waker, bool),
        clock: &dyn Clock,
    ) -> (Poll<Turn>, Aftermath) {
        let waker = waker.clone();
        let mut after = Aftermath::default();
        let mut state = self.lock();
        if state.offer.as_ref().is_some_and(|offer| offer.to == number)
            && let Some(offer) = state.offer.take()
        {
            if let Some(tenure) = state.collect(number, &offer.held, clock, &mut after) {
                if state.queue.len() == 0 {
                    after.asker = state.dismiss_asker();
                }
                return (Poll::Ready(Turn::Lease(tenure)), after);
            }
            state.forget_held(&offer.held); // too little of it is left, or it was lost
            after.give_back = Some(offer.held);
            after.start = state.asker_needed();
            self.changed.notify_one();
        }
        if state.is_shared_with(number, clock) {
            return (Poll::Ready(Turn::Shared), after);
        }
        let in_the_way = if past_deadline { state.in_the_way(clock) } else { None };
        let LineState { queue, failed, .. } = &mut *state;
        let Some(waiting) = queue.get_mut(number) else {
            let failed = failed.clone().unwrap_or(AcquireFailure::ShutDown);
            return (Poll::Ready(Turn::Failed(failed)), after);
        };
        if let Some(in_the_way) = in_the_way {
            return (Poll::Ready(Turn::InTheWay(in_the_way)), after);
        }
        if std::mem::take(&mut waiting.is_passed_over) {
            self.changed.notify_one();
        }
        waiting.wants_failure = past_deadline;
        after.waker_to_drop = waiting.waker.replace(waker);
        (Poll::Pending, after)
    }

    /// Gives a place up, at whatever point.
    pub(crate) fn leave(&self, number: PlaceNumber) -> Aftermath {
        let mut after = Aftermath::default();
        let mut state = self.lock();
        after.waker_to_drop = state.queue.remove(number).and_then(|waiting| waiting.waker);
        if state.offer.as_ref().is_some_and(|offer| offer.to == number)
            && let Some(offer) = state.offer.take()
        {
            state.offer_to_next(offer.held, offer.since, &mut after);
            if after.give_back.is_some() {
                self.changed.notify_one();
            }
        }
        if !state.needs_asker() {
            after.asker = state.dismiss_asker();
        }
        after.is_idle = state.is_idle();
        after
    }
}

impl LineState {
    /// Whether the holder that waits at this place has the lease (P23).
    fn is_shared_with(&mut self, number: PlaceNumber, clock: &dyn Clock) -> bool {
        let Some(holder) = self.queue.get_mut(number).map(|waiting| Arc::clone(&waiting.params.holder)) else {
            return false;
        };
        self.held_by(&holder).is_some_and(|held| matches!(held.validity(clock), Validity::Held(_)))
    }
}
