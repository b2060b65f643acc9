//! Which lease is due when, and whose keys are watched.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::instance::ChangedKeys;
use crate::protocol::{Access, Instant};
use crate::resource::Resource;
use crate::runtime::held_lease::{HeldLease, HeldLeaseState, ScheduleKey};

/// The lease table behind a mutex that also orders requests: a task that sends an extend from here, or drops a
/// guard, holds it. So no extend is sent behind the release of its lease (P6).
#[derive(Debug)]
pub(super) struct SharedLeaseTable(Mutex<LeaseTable>);

/// The table, and the right to send for its leases.
pub(super) type SendOrder<'a> = MutexGuard<'a, LeaseTable>;

impl SharedLeaseTable {
    pub(super) fn new(most_watched: usize) -> Self {
        Self(Mutex::new(LeaseTable { most_watched, ..LeaseTable::default() }))
    }

    pub(super) fn lock_send_order(&self) -> SendOrder<'_> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The held leases of a client.
#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    by_due: BTreeMap<ScheduleKey, Arc<HeldLease>>,
    /// How many times a lease was scheduled or adopted.
    entries: u64,
    /// Those that a guard has, in the order in which they were adopted.
    adopted: BTreeMap<u64, Arc<HeldLease>>,
    /// Those of them that read for a holder, by it.
    readers: BTreeMap<(Arc<str>, u64), Arc<HeldLease>>,
    /// No more are adopted.
    is_shut_down: bool,
    /// By key.
    watched: BTreeMap<Vec<u8>, Weak<HeldLease>>,
    most_watched: usize,
    /// Until when the task sleeps; `None` if it waits for a message.
    asleep_until: Option<Instant>,
}

impl LeaseTable {
    #[cfg(feature = "testing")]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.by_due.len().max(self.adopted.len()), self.watched.len())
    }

    /// How many leases callers have guards of.
    pub(super) fn collected(&self) -> usize {
        self.adopted.values().filter(|held| held.state().is_collected()).count()
    }

    /// How many of them read.
    pub(super) fn read(&self) -> usize {
        let is_read = |held: &&Arc<HeldLease>| held.state().is_collected() && held.claim().access == Access::Read;
        self.adopted.values().filter(is_read).count()
    }

    /// Whether this holder reads it.
    pub(super) fn is_read_by(&self, resource: &Resource, holder: &str) -> bool {
        let holder: Arc<str> = holder.into();
        let of_holder = (Arc::clone(&holder), 0)..=(holder, u64::MAX);
        self.readers.range(of_holder).any(|(_, held)| held.claim().resource == *resource)
    }

    /// A caller has a guard of this lease from now on; `false` if the client was shut down.
    pub(super) fn adopt(&mut self, held: &Arc<HeldLease>) -> bool {
        let state = &mut *held.state();
        if !self.is_shut_down && state.adoption.is_none() && !state.has_ended() {
            self.entries += 1;
            state.adoption = Some(self.entries);
            self.adopted.insert(self.entries, Arc::clone(held));
            if state.claim.access == Access::Read && !held.holder().is_empty() {
                self.readers.insert((Arc::clone(held.holder()), self.entries), Arc::clone(held));
            }
        }
        !self.is_shut_down
    }

    /// Work that was under way for leases with guards is given up. Those that were just about to be scheduled are due.
    pub(super) fn recover(&mut self, now: Instant) {
        let adopted: Vec<_> = self.adopted.values().cloned().collect();
        for held in adopted {
            let mut state = held.state();
            state.renewal = None;
            if state.schedule_key.is_none() {
                self.schedule(&held, &mut state, now);
            }
        }
    }

    /// Those that guards have. No more are adopted after this.
    pub(super) fn shut_down(&mut self) -> Vec<Arc<HeldLease>> {
        self.is_shut_down = true;
        self.readers.clear();
        std::mem::take(&mut self.adopted).into_values().collect()
    }

    /// Schedules a lease for `due`, instead of where it stood.
    pub(super) fn schedule(&mut self, held: &Arc<HeldLease>, state: &mut HeldLeaseState, due: Instant) {
        self.unschedule(state);
        self.entries += 1;
        let key = ScheduleKey { due, entry: self.entries };
        state.schedule_key = Some(key);
        self.by_due.insert(key, Arc::clone(held));
    }

    /// The same, unless it is due before that.
    pub(super) fn schedule_sooner(&mut self, held: &Arc<HeldLease>, state: &mut HeldLeaseState, due: Instant) {
        if state.schedule_key.is_none_or(|planned| due < planned.due) {
            self.schedule(held, state, due);
        }
    }

    fn unschedule(&mut self, state: &mut HeldLeaseState) {
        if let Some(key) = state.schedule_key.take() {
            self.by_due.remove(&key);
        }
    }

    /// Removes a lease that has ended, and its keys.
    pub(super) fn remove(&mut self, held: &HeldLease) {
        let state = &mut *held.state();
        if let Some(adoption) = state.adoption.take() {
            self.adopted.remove(&adoption);
            self.readers.remove(&(Arc::clone(held.holder()), adoption));
        }
        self.unschedule(state);
        if std::mem::take(&mut state.is_watched) {
            let key = state.claim.resource.key();
            // By now it may be the key of a later lease.
            if self.watched.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), held)) {
                self.watched.remove(key);
            }
        }
    }

    /// Removes a lease that is due from the schedule.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Arc<HeldLease>> {
        let first = self.by_due.first_entry().filter(|first| first.key().due <= now)?;
        Some(first.remove())
    }

    /// When the next lease is due: the task sleeps until then.
    pub(super) fn mark_asleep(&mut self) -> Option<Instant> {
        self.asleep_until = self.by_due.first_key_value().map(|(key, _)| key.due);
        self.asleep_until
    }

    /// Whether the task would sleep past `due`.
    pub(super) fn needs_wake(&mut self, due: Instant) -> bool {
        let needs_wake = self.asleep_until.is_none_or(|until| due < until);
        if needs_wake {
            self.asleep_until = Some(due); // one message is enough
        }
        needs_wake
    }

    pub(super) fn has_room_to_watch(&self) -> bool {
        self.watched.len() < self.most_watched
    }

    /// Records whose keys these are; false if too many keys are watched, the lease has ended, or reads: each renewal of another
    /// reader changes its key, too.
    pub(super) fn watch(&mut self, held: &Arc<HeldLease>) -> bool {
        let state = &mut *held.state();
        if state.has_ended() || state.claim.access == Access::Read {
            return false; // it would never be removed
        }
        if state.is_watched {
            return true;
        }
        if self.watched.len() >= self.most_watched {
            return false;
        }
        self.watched.insert(state.claim.resource.key().to_vec(), Arc::downgrade(held));
        state.is_watched = true;
        true
    }

    /// The leases that are watched under these keys, each once.
    pub(super) fn watched_under(&self, keys: &ChangedKeys) -> Vec<Arc<HeldLease>> {
        let mut leases: Vec<Arc<HeldLease>> = match keys {
            ChangedKeys::Among(keys) => keys.iter().filter_map(|key| self.watched.get(key)?.upgrade()).collect(),
            ChangedKeys::Any => self.watched.values().filter_map(Weak::upgrade).collect(),
        };
        let mut seen = HashSet::new();
        leases.retain(|held| seen.insert(Arc::as_ptr(held)));
        leases
    }
}
