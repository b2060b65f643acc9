//! The releases that wait to be sent, or to be sent again, to the instances (P6).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::instance::Claim;
use crate::protocol::{InstanceId, Instant};
use crate::resource::{ByResource, Resource};

/// A release that one instance has not confirmed yet.
#[derive(Clone, Debug)]
pub(super) struct PendingRelease {
    pub(super) claim: Arc<Claim>,
    /// From then on the keys have expired by themselves.
    pub(super) expires_at: Instant,
}

impl PendingRelease {
    /// The release of a claim that was sent before `now`.
    pub(super) fn new(claim: Arc<Claim>, now: Instant) -> Self {
        // Twice the ttl: no clock is off by that much.
        let expires_at = now.saturating_add(claim.ttl.saturating_mul(2));
        Self { claim, expires_at }
    }

    /// The same for a time when it was sent already. It goes as a script (P7): a comparison that deletes nothing takes
    /// two round trips, and may never be in time where one takes more than half of that.
    pub(super) fn resent(self) -> Self {
        if self.claim.resent {
            return self;
        }
        Self { claim: Arc::new(Claim { resent: true, ..Claim::clone(&self.claim) }), ..self }
    }
}

/// Identifies a release that waits: smaller is older.
pub(super) type ReleaseNumber = u64;

/// The releases that wait, by instance, in the order in which they came.
#[derive(Debug)]
pub(super) struct PendingReleases {
    /// How many there are: as a rule none.
    count: AtomicUsize,
    waiting: Mutex<Vec<OfInstance>>,
}

#[derive(Debug, Default)]
struct OfInstance {
    last: ReleaseNumber,
    releases: BTreeMap<ReleaseNumber, PendingRelease>,
    by_key: ByResource<Vec<ReleaseNumber>>,
}

impl OfInstance {
    fn put(&mut self, release: PendingRelease) -> ReleaseNumber {
        self.last += 1;
        self.by_key.entry(release.claim.resource.clone()).or_default().push(self.last);
        self.releases.insert(self.last, release);
        self.last
    }

    fn take(&mut self, number: ReleaseNumber) -> Option<PendingRelease> {
        let release = self.releases.remove(&number)?;
        let resource = &release.claim.resource;
        if let Some(numbers) = self.by_key.get_mut(resource) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_key.remove(resource);
            }
        }
        Some(release)
    }
}

impl PendingReleases {
    pub(super) fn new(instances: usize) -> Self {
        let waiting = (0..instances).map(|_| OfInstance::default()).collect();
        Self { count: AtomicUsize::new(0), waiting: Mutex::new(waiting) }
    }

    /// One more that waits.
    pub(super) fn put(&self, id: InstanceId, release: PendingRelease) -> ReleaseNumber {
        let mut waiting = self.lock();
        let Some(of_instance) = waiting.get_mut(id.index()) else { return 0 };
        self.count.fetch_add(1, Ordering::SeqCst);
        of_instance.put(release)
    }

    /// One that waits; `None` if it was taken already.
    pub(super) fn take(&self, id: InstanceId, number: ReleaseNumber) -> Option<PendingRelease> {
        let taken = self.lock().get_mut(id.index())?.take(number);
        self.uncount(usize::from(taken.is_some()));
        taken
    }

    /// Those for a lock.
    pub(super) fn take_for(&self, id: InstanceId, resource: &Resource) -> Vec<PendingRelease> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        self.take_where(id, |of_instance| of_instance.by_key.get(resource).cloned().unwrap_or_default())
    }

    /// The oldest, so many at most.
    pub(super) fn take_oldest(&self, id: InstanceId, most: usize) -> Vec<PendingRelease> {
        self.take_where(id, |of_instance| of_instance.releases.keys().take(most).copied().collect())
    }

    /// Drops those whose keys have expired, and the oldest beyond `most`; how many.
    pub(super) fn drop_surplus(&self, id: InstanceId, most: usize, now: Instant) -> usize {
        let dropped = self.take_where(id, |of_instance| {
            let surplus = of_instance.releases.len().saturating_sub(most);
            let all = of_instance.releases.iter().enumerate();
            let gone = all.filter(|(at, (_, release))| *at < surplus || release.expires_at <= now);
            gone.map(|(_, (number, _))| *number).collect()
        });
        dropped.len()
    }

    /// How many wait for an instance.
    pub(super) fn len(&self, id: InstanceId) -> usize {
        self.lock().get(id.index()).map_or(0, |of_instance| of_instance.releases.len())
    }

    fn take_where(&self, id: InstanceId, which: impl FnOnce(&OfInstance) -> Vec<ReleaseNumber>) -> Vec<PendingRelease> {
        let mut waiting = self.lock();
        let Some(of_instance) = waiting.get_mut(id.index()) else { return Vec::new() };
        let numbers = which(of_instance);
        let taken: Vec<_> = numbers.into_iter().filter_map(|number| of_instance.take(number)).collect();
        drop(waiting);
        self.uncount(taken.len());
        taken
    }

    fn uncount(&self, number: usize) {
        self.count.fetch_sub(number, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OfInstance>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
