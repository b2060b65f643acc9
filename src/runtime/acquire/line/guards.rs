//! A line, for whoever of its client has the lock, or tries once.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Line, LineState, Offer};
use crate::clock::Clock;
use crate::foreign::wake;
use crate::protocol::Value;
use crate::runtime::acquire::failure::AcquireFailure;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::wait_events::handed_over;

impl Line {
    /// Somebody of this client has this lease; `false` if the line is not used any more.
    pub(super) fn put_held(&self, held: &Arc<HeldLease>) -> bool {
        let mut state = self.lock();
        let former = state.held.replace(Arc::clone(held));
        state.last_failure = None;
        let is_used = !state.is_retired;
        let mut wakers = state.queue.wakers_for_failure();
        wakers.extend(state.queue.wakers_of(held.holder()));
        drop(state);
        drop(former);
        wakers.into_iter().for_each(wake);
        is_used
    }

    /// One more guard of the lease that this holder has; `None` if it has none.
    pub(super) fn share(&self, holder: &Arc<str>) -> Option<Arc<HeldLease>> {
        let state = self.lock();
        state.held_by(holder).filter(|held| held.add_guard()).cloned()
    }

    /// One more guard of the lease with this value; `None` if nobody of this client has it.
    pub(super) fn share_value(&self, value: &Value) -> Option<Arc<HeldLease>> {
        let state = self.lock();
        state.held.as_ref().filter(|held| held.claim().value == *value && held.add_guard()).cloned()
    }

    /// Offers a lease that is let go to the next; `false` if it is to be released. At most `most` times in a row: then the
    /// `others` get their turn.
    pub(super) fn hand_over(
        &self,
        held: &Arc<HeldLease>,
        (most, others): (u32, impl FnOnce() -> Option<usize>),
        clock: &dyn Clock,
    ) -> bool {
        let mut state = self.lock();
        let is_known = state.held.as_ref().is_some_and(|known| Arc::ptr_eq(known, held));
        if !is_known || state.offer.is_some() {
            return false;
        }
        let LineState { queue, turns, .. } = &mut *state;
        let Some((to, next)) = queue.next() else { return false };
        if turns.is_over(most, others, clock.now()) {
            return false;
        }
        // A holder's own value is under the keys of its lease.
        let is_for_anybody = next.params.holder.is_empty();
        if !is_for_anybody || !held.end_tenure_for(next.params.terms, next.params.renews, clock) {
            return false;
        }
        let waker = next.waker.take();
        state.offer = Some(Offer { held: Arc::clone(held), to, since: clock.now() });
        let (in_a_row, waiting) = (state.turns.in_a_row() + 1, state.queue.len());
        drop(state);
        held.note_tenure_end(); // the former guard has ended before the next one begins
        if let Some(waker) = waker {
            wake(waker);
        }
        handed_over(self.resources(), in_a_row, waiting);
        true
    }

    /// A lease was let go, and its release is queued; whether the line has nothing more to know.
    pub(super) fn let_go(&self, held: &Arc<HeldLease>) -> bool {
        let mut state = self.lock();
        let known = state.held.take_if(|known| Arc::ptr_eq(known, held));
        if known.is_some() {
            self.changed.notify_one();
        }
        let is_idle = state.is_idle();
        drop(state);
        drop(known);
        is_idle
    }

    /// Why a single try is not sent now. Whoever was offered a lease for longer than `patience` does not count.
    pub(super) fn refusal(&self, patience: Duration, clock: &dyn Clock) -> Option<AcquireFailure> {
        let state = self.lock();
        let is_waited_for = || state.is_waited_for(patience, clock.now());
        let why = || state.last_failure.clone().unwrap_or(AcquireFailure::HeldHere { by: None, expires_in: None });
        state.held_here(clock).or_else(|| is_waited_for().then(why))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Whether it has nothing to know; then it is not used any more.
    pub(super) fn retire(&self) -> bool {
        let mut state = self.lock();
        let retires = !state.is_retired && state.is_idle();
        state.is_retired |= retires;
        retires
    }
}
