//! Which lease is due when, and whose keys are watched.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use crate::protocol::Instant;
use crate::runtime::held_lease::{HeldLease, HeldLeaseState};

/// All leases of a client that are held.
#[derive(Debug)]
pub(super) struct LeaseTable {
    due: BTreeMap<(Instant, u64), Arc<HeldLease>>,
    entries: u64,
    watched: HashMap<Vec<u8>, Weak<HeldLease>>,
    most_watched: usize,
    /// Until when the task sleeps; `None` if it waits to be woken.
    asleep_until: Option<Instant>,
}

impl LeaseTable {
    pub(super) fn new(most_watched: usize) -> Self {
        Self { due: BTreeMap::new(), entries: 0, watched: HashMap::new(), most_watched, asleep_until: None }
    }

    /// Puts a lease down for `due`, instead of where it stood.
    pub(super) fn schedule(&mut self, held: &Arc<HeldLease>, state: &mut HeldLeaseState, due: Instant) {
        self.unschedule(state);
        self.entries += 1;
        let place = (due, self.entries);
        state.due = Some(place);
        self.due.insert(place, Arc::clone(held));
    }

    fn unschedule(&mut self, state: &mut HeldLeaseState) {
        if let Some(place) = state.due.take() {
            self.due.remove(&place);
        }
    }

    /// Takes a lease out that has ended, and its keys.
    pub(super) fn remove(&mut self, held: &HeldLease) {
        let state = &mut *held.state();
        self.unschedule(state);
        if std::mem::take(&mut state.is_watched) {
            for key in state.claim.resources.lock_keys() {
                // By now it may be the key of a later lease.
                if self.watched.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), held)) {
                    self.watched.remove(key);
                }
            }
        }
    }

    /// Takes one that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Arc<HeldLease>> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next is due; the task sleeps until then.
    pub(super) fn mark_asleep(&mut self) -> Option<Instant> {
        self.asleep_until = self.due.first_key_value().map(|(place, _)| place.0);
        self.asleep_until
    }

    /// Whether the task would sleep past `due`.
    pub(super) fn needs_wake(&mut self, due: Instant) -> bool {
        let must = self.asleep_until.is_none_or(|until| due < until);
        if must {
            self.asleep_until = Some(due); // it need be told only once
        }
        must
    }

    pub(super) fn has_room_to_watch(&self) -> bool {
        self.watched.len() < self.most_watched
    }

    /// Remembers whose keys these are; false if too many are being watched, or it has ended.
    pub(super) fn watch(&mut self, held: &Arc<HeldLease>) -> bool {
        let state = &mut *held.state();
        if state.has_ended() {
            return false; // it would stay in the table
        }
        if state.is_watched {
            return true;
        }
        if self.watched.len() + state.claim.resources.len() > self.most_watched {
            return false;
        }
        for key in state.claim.resources.lock_keys() {
            self.watched.insert(key.to_vec(), Arc::downgrade(held));
        }
        state.is_watched = true;
        true
    }

    /// Who is watched under these keys, each once; under any for `None`.
    pub(super) fn watched(&self, keys: Option<&[Vec<u8>]>) -> Vec<Arc<HeldLease>> {
        let mut leases: Vec<Arc<HeldLease>> = match keys {
            Some(keys) => keys.iter().filter_map(|key| self.watched.get(key)?.upgrade()).collect(),
            None => self.watched.values().filter_map(Weak::upgrade).collect(),
        };
        leases.sort_unstable_by_key(Arc::as_ptr);
        leases.dedup_by(|a, b| Arc::ptr_eq(a, b));
        leases
    }
}
