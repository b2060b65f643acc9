//! The keys that have releases to send again, by instance, in the order in which they failed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::protocol::{InstanceId, Instant};

/// The pause before a release that was not confirmed is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The most releases that are sent again to one instance at once, and the most that are kept for it.
pub(super) const MOST_AT_ONCE: usize = 1024;
pub(super) const MOST_KEPT: usize = 128 * 1024;

pub(super) struct Retries<K>(Vec<Mutex<OfInstance<K>>>);

struct OfInstance<K> {
    /// Each with when the keys of its release have expired.
    keys: VecDeque<(Instant, Weak<K>)>,
    /// When the first of them are looked at; `None` without any.
    due: Option<Instant>,
}

impl<K> Retries<K> {
    pub(super) fn new(instances: usize) -> Self {
        let of_instance = || Mutex::new(OfInstance { keys: VecDeque::new(), due: None });
        Self((0..instances).map(|_| of_instance()).collect())
    }

    /// A release of this key is to be sent again. Gives when the instance is looked at, and the oldest if there are too many.
    pub(super) fn put(
        &self,
        id: InstanceId,
        (expires_at, key): (Instant, Weak<K>),
        now: Instant,
    ) -> (Option<Instant>, Option<Weak<K>>) {
        let Some(mut of_instance) = self.lock(id) else { return (None, None) };
        of_instance.keys.push_back((expires_at, key));
        let due = *of_instance.due.get_or_insert(now.saturating_add(PAUSE));
        let is_full = of_instance.keys.len() > MOST_KEPT;
        let oldest = if is_full { of_instance.keys.pop_front() } else { None };
        (Some(due), oldest.map(|(_, key)| key))
    }

    /// Whether the instance is to be looked at now.
    pub(super) fn is_due(&self, id: InstanceId, now: Instant) -> bool {
        self.lock(id).is_some_and(|of_instance| of_instance.due.is_some_and(|due| due <= now))
    }

    /// How many there are for this instance.
    pub(super) fn len(&self, id: InstanceId) -> usize {
        self.lock(id).map_or(0, |of_instance| of_instance.keys.len())
    }

    /// The first key; only one whose release has expired, if `expired` says by when. `None` ends the look at the instance.
    pub(super) fn take(&self, id: InstanceId, expired: Option<Instant>) -> Option<Weak<K>> {
        let mut of_instance = self.lock(id)?;
        let (expires_at, _) = of_instance.keys.front()?;
        let is_taken = expired.is_none_or(|now| *expires_at <= now);
        if is_taken { Some(of_instance.keys.pop_front()?.1) } else { None }
    }

    /// The instance was looked at.
    pub(super) fn looked(&self, id: InstanceId, now: Instant) {
        if let Some(mut of_instance) = self.lock(id) {
            of_instance.due = (!of_instance.keys.is_empty()).then(|| now.saturating_add(PAUSE));
        }
    }

    /// When an instance is to be looked at next.
    pub(super) fn due(&self) -> Option<Instant> {
        InstanceId::all(self.0.len()).filter_map(|id| self.lock(id)?.due).min()
    }

    fn lock(&self, id: InstanceId) -> Option<MutexGuard<'_, OfInstance<K>>> {
        Some(self.0.get(id.index())?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
