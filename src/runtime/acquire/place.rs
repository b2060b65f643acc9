//! A place in a slot.

use std::sync::Arc;

use super::asking::Asking;
use super::params::{AcquireParams, Purpose};
use super::slot::{Slot, Stay, Turn};
use crate::runtime::shared::Shared;

/// A place in a slot. Dropped, it leaves the turn to the one behind it.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    stay: Stay,
    turn: Option<Turn>,
}

impl Place {
    /// A place in the slot for what is asked for. It is its turn at once if nobody else is there.
    pub(super) fn join(shared: &Arc<Shared>, params: &Arc<AcquireParams>, waits: bool) -> Self {
        let stay = match params.purpose {
            _ if !waits => Stay::Try,
            Purpose::Permit => Stay::PartOfWait,
            Purpose::Lock | Purpose::Leadership(_) => Stay::Wait,
        };
        let slot = shared.slots.enter(&params.resource, stay);
        let turn = slot.turn_now();
        let mut place = Self { shared: Arc::clone(shared), slot, stay, turn: None };
        if let Some(turn) = turn {
            place.begin_turn(turn, params);
        }
        place
    }

    pub(super) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// It is the next from now on.
    pub(super) fn begin_turn(&mut self, turn: Turn, params: &Arc<AcquireParams>) {
        self.turn = Some(turn);
        if self.stay.waits() {
            self.slot.set_next(Some(Arc::clone(params)));
        }
    }

    /// How the asking goes, if it is the next.
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
