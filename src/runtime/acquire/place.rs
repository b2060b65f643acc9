//! A place in a slot.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;

use super::asking::Asking;
use super::params::{AcquireParams, Purpose};
use super::slot::{Slot, Stay, Turn};
use crate::runtime::shared::Shared;

/// A place in a slot. Dropped, it leaves the turn to the one behind it.
pub(super) struct Place {
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    slot: Arc<Slot>,
    stay: Stay,
    turn: Option<Turn>,
    /// The place of a waiter in the queue until it is its turn.
    queued: Option<Pin<Box<dyn Future<Output = Turn> + Send + Sync>>>,
}

impl Place {
    /// A place in the slot. It is its turn at once if the slot is empty.
    pub(super) fn join(shared: &Arc<Shared>, params: &Arc<AcquireParams>, waits: bool) -> Self {
        let stay = match params.purpose {
            _ if !waits => Stay::Try,
            Purpose::Permit => Stay::PartOfWait,
            Purpose::Lock | Purpose::Leadership(_) => Stay::Wait,
        };
        let slot = shared.slots.enter(&params.resource, stay);
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        let mut place = Self { shared, params, slot, stay, turn: None, queued: None };
        if let Some(turn) = place.slot.turn_now() {
            place.begin_turn(turn);
            return place;
        }
        if waits {
            let mut queued: Pin<Box<dyn Future<Output = Turn> + Send + Sync>> = Box::pin(place.slot.turn());
            // P24: it is in the queue from now on, not only when its task is polled, which others may be before.
            match queued.as_mut().now_or_never() {
                Some(turn) => place.begin_turn(turn),
                None => place.queued = Some(queued),
            }
        }
        place
    }

    pub(super) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) const fn is_next(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns once it is the next. Dropped before that, a waiter keeps its place in the queue, and a single try leaves it.
    pub(super) async fn wait_for_turn(&mut self) {
        let turn = match &mut self.queued {
            _ if self.turn.is_some() => return,
            Some(queued) => queued.await,
            None => self.slot.turn().await,
        };
        self.begin_turn(turn);
    }

    /// It is the next from now on.
    fn begin_turn(&mut self, turn: Turn) {
        (self.turn, self.queued) = (Some(turn), None);
        if self.stay.waits() {
            self.slot.set_next(Some(Arc::clone(&self.params)));
        }
    }

    /// The state of the attempts, if it is the next.
    pub(super) fn asking(&mut self) -> Option<&mut Asking> {
        self.turn.as_deref_mut()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.turn.is_some() && self.stay.waits() {
            self.slot.set_next(None);
        }
        self.turn = None;
        let laid_down = self.slot.leave(self.stay);
        if let Some(held) = laid_down {
            self.shared.let_go(&held, None);
        }
        self.shared.slots.tidy(&self.slot);
    }
}
