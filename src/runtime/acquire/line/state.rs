//! What a line knows, behind its mutex.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use super::queue::{PlaceNumber, Queue};
use super::turns::Turns;
use crate::clock::Clock;
use crate::protocol::Instant;
use crate::resource::Resources;
use crate::runtime::acquire::failure::AcquireFailure;
use crate::runtime::acquire::params::AcquireParams;
use crate::runtime::client_task::AbortableTask;
use crate::runtime::held_lease::{HeldLease, Tenure, Validity};

/// Those of one client who wait for the same lock, and who of it has the lock.
#[derive(Debug)]
pub(crate) struct Line {
    resources: Resources,
    /// Wakes the asker.
    pub(super) changed: Notify,
    state: Mutex<LineState>,
}

#[derive(Debug, Default)]
pub(super) struct LineState {
    pub(super) queue: Queue,
    /// The lease that the next of the queue may take.
    pub(super) offer: Option<Offer>,
    /// Who of this client has the lock, as far as it is known; also while it is on offer.
    pub(super) held: Option<Arc<HeldLease>>,
    /// The asker: there is one as long as somebody waits to whom nothing is offered.
    pub(super) asker: Option<AskerSlot>,
    pub(super) askers: u64,
    pub(super) turns: Turns,
    /// Whether anything was asked for those who wait now.
    pub(super) is_asked: bool,
    /// Why the last ask was in vain.
    pub(super) last_failure: Option<AcquireFailure>,
    /// Why those who were in the queue get nothing.
    pub(super) failed: Option<AcquireFailure>,
    /// It was removed from the lines of its client.
    pub(super) is_retired: bool,
}

/// Tells the askers of a line apart: only the last one counts.
pub(crate) type AskerId = u64;

/// The asker of a line; its task as soon as that has begun.
#[derive(Debug)]
pub(super) struct AskerSlot {
    pub(super) id: AskerId,
    pub(super) task: Option<AbortableTask>,
}

/// An asker that is to be started.
pub(crate) struct AskerStart {
    pub(crate) id: AskerId,
    /// What it asks for at once.
    pub(crate) first: Option<Arc<AcquireParams>>,
}

/// A lease that nobody has now.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) held: Arc<HeldLease>,
    pub(super) to: PlaceNumber,
    pub(super) since: Instant,
}

/// What is to be done after the mutex of the line.
#[derive(Default)]
#[must_use = "it is to be done"]
pub(crate) struct Aftermath {
    /// A lease for which nobody is there.
    pub(crate) give_back: Option<Arc<HeldLease>>,
    pub(crate) wakers: Vec<Waker>,
    /// A waker is foreign code when it is dropped, too.
    pub(super) waker_to_drop: Option<Waker>,
    /// An asker that nobody needs any more.
    pub(crate) asker: Option<AbortableTask>,
    pub(crate) start: Option<AskerStart>,
    /// Whether the line has nothing more to know.
    pub(crate) is_idle: bool,
}

impl Line {
    pub(super) fn new(resources: Resources) -> Self {
        Self { resources, changed: Notify::new(), state: Mutex::default() }
    }

    pub(crate) const fn resources(&self) -> &Resources {
        &self.resources
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineState {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.len() == 0 && self.offer.is_none() && self.held.is_none() && self.asker.is_none()
    }

    /// Whether anybody waits who polls, as far as that is known: not those who are passed over, and not who was offered a
    /// lease longer than `patience` ago (P22).
    pub(super) fn is_waited_for(&self, patience: Duration, now: Instant) -> bool {
        let unheard = self.offer.as_ref().filter(|offer| now.saturating_since(offer.since) >= patience);
        self.queue.not_passed_over().any(|number| unheard.is_none_or(|offer| offer.to != number))
    }

    /// Nobody of this client has this lease any more, unless its holder shares it (P23). By now it may be another one that
    /// somebody has.
    pub(super) fn forget_held(&mut self, lease: &Arc<HeldLease>) {
        self.held.take_if(|held| Arc::ptr_eq(held, lease) && !held.is_shared());
    }

    /// The lease that this holder has (P23).
    pub(super) fn held_by(&self, holder: &Arc<str>) -> Option<&Arc<HeldLease>> {
        self.held.as_ref().filter(|held| !holder.is_empty() && held.holder() == holder)
    }

    /// Whether somebody waits to whom nothing is offered.
    pub(super) fn needs_asker(&self) -> bool {
        self.queue.len() > usize::from(self.offer.is_some())
    }

    /// The asker that is to be started now, if one is needed and there is none.
    pub(super) fn asker_needed(&mut self) -> Option<AskerStart> {
        if self.asker.is_some() || !self.needs_asker() {
            return None;
        }
        self.askers += 1;
        self.asker = Some(AskerSlot { id: self.askers, task: None });
        let asks_at_once = self.held.is_none() && !self.turns.is_pause_due();
        let next = self.queue.next().filter(|_| asks_at_once);
        Some(AskerStart { id: self.askers, first: next.map(|(_, waiting)| Arc::clone(&waiting.params)) })
    }

    /// The task of an asker that nobody needs any more, to be ended.
    pub(super) fn dismiss_asker(&mut self) -> Option<AbortableTask> {
        self.asker.take()?.task
    }

    /// The place takes the lease that it was offered; `None` if too little is left of it.
    pub(super) fn collect(
        &mut self,
        number: PlaceNumber,
        held: &Arc<HeldLease>,
        clock: &dyn Clock,
        after: &mut Aftermath,
    ) -> Option<Tenure> {
        let params = Arc::clone(&self.queue.get_mut(number)?.params);
        let wish = params.wish(clock.now());
        let tenure = held.begin_tenure(wish, params.terms.min_remaining(), clock)?; // P2, by the time at which it is relied on
        if tenure.was_handed_over() {
            self.turns.handed_over();
        }
        after.waker_to_drop = self.queue.remove(number).and_then(|waiting| waiting.waker);
        Some(tenure)
    }

    /// Offers a lease that nobody has to the next whom it suits.
    pub(super) fn offer_to_next(&mut self, held: Arc<HeldLease>, since: Instant, after: &mut Aftermath) {
        match self.queue.next() {
            Some((to, next)) if held.suits(next.params.terms, &next.params.holder) => {
                after.wakers.extend(next.waker.take());
                self.offer = Some(Offer { held, to, since });
            }
            _ => {
                self.forget_held(&held);
                after.give_back = Some(held);
            }
        }
    }

    /// What is in the way of whoever wants the lock, as far as it is known.
    pub(super) fn in_the_way(&self, clock: &dyn Clock) -> Option<AcquireFailure> {
        self.held_here(clock).or_else(|| self.last_failure.clone())
    }

    /// Who of this client has the lock.
    pub(super) fn held_here(&self, clock: &dyn Clock) -> Option<AcquireFailure> {
        let held = self.held.as_ref()?;
        match held.validity(clock) {
            Validity::Held(expires_in) => {
                Some(AcquireFailure::HeldHere { by: Some(held.claim()), expires_in: Some(expires_in) })
            }
            Validity::GivenUp | Validity::Lost => None,
        }
    }
}
