//! The releases that wait to be sent, or to be sent again, to the instances (P6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::instance::Claim;
use crate::protocol::{InstanceId, Instant};
use crate::resource::ByResource;

/// A release that one instance has not confirmed yet.
#[derive(Clone, Debug)]
pub(super) struct PendingRelease {
    pub(super) claim: Arc<Claim>,
    /// From then on the keys have expired by themselves.
    pub(super) expires_at: Instant,
    /// On how many instances it is pending; all of its copies share this.
    pub(super) pending_on: Arc<AtomicUsize>,
}

impl PendingRelease {
    /// The release, on so many instances, of a claim that was sent before `now`.
    pub(super) fn new(claim: Arc<Claim>, instances: usize, now: Instant) -> Self {
        // Twice the ttl: no clock is off by that much.
        let expires_at = now.saturating_add(claim.ttl.saturating_mul(2));
        Self { claim, expires_at, pending_on: Arc::new(AtomicUsize::new(instances)) }
    }
}

/// So many of the releases of a lock are sent ahead of its next acquire: an instance that refuses them all keeps no client busy with
/// thousands of them, and has the value of one of them at most.
const MOST_AHEAD: usize = 16;

/// Identifies a release that waits: smaller is older.
pub(super) type ReleaseNumber = u64;

/// The releases that wait, by instance, in the order in which they came.
#[derive(Debug)]
pub(super) struct PendingReleases {
    /// How many there are.
    count: AtomicUsize,
    waiting: Mutex<Vec<OfInstance>>,
}

#[derive(Debug, Default)]
struct OfInstance {
    last: ReleaseNumber,
    releases: BTreeMap<ReleaseNumber, PendingRelease>,
    by_key: ByResource<BTreeSet<ReleaseNumber>>,
}

impl OfInstance {
    fn put(&mut self, release: PendingRelease) -> ReleaseNumber {
        self.last += 1;
        self.by_key.entry(release.claim.resource.clone()).or_default().insert(self.last);
        self.releases.insert(self.last, release);
        self.last
    }

    fn take(&mut self, number: ReleaseNumber) -> Option<PendingRelease> {
        let release = self.releases.remove(&number)?;
        let resource = &release.claim.resource;
        if let Some(numbers) = self.by_key.get_mut(resource) {
            numbers.remove(&number);
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

    /// Whether none waits, as it is as a rule.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
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

    /// The newest of those for a claim's lock, and all of its own value, which a lease that was moved may have (P32); in their order.
    pub(super) fn take_for(&self, id: InstanceId, claim: &Claim) -> Vec<PendingRelease> {
        self.take_where(id, |OfInstance { releases, by_key, .. }| {
            let Some(all) = by_key.get(&claim.resource) else { return Vec::new() };
            let is_of_claim = |number| releases.get(number).is_some_and(|release| release.claim.value == claim.value);
            let old = all.len().saturating_sub(MOST_AHEAD);
            let ahead = all.iter().enumerate().filter(|(at, number)| *at >= old || is_of_claim(number));
            ahead.map(|(_, number)| *number).collect()
        })
    }

    /// The oldest, so many at most.
    pub(super) fn take_oldest(&self, id: InstanceId, most: usize) -> Vec<PendingRelease> {
        self.take_where(id, |of_instance| of_instance.releases.keys().take(most).copied().collect())
    }

    /// The oldest beyond `most`. Of thousands of releases that come at once each may come here: it looks at no others.
    pub(super) fn take_beyond(&self, id: InstanceId, most: usize) -> Vec<PendingRelease> {
        let surplus = |of_instance: &OfInstance| of_instance.releases.len().saturating_sub(most);
        self.take_where(id, |all| all.releases.keys().take(surplus(all)).copied().collect())
    }

    /// Those whose keys have expired.
    pub(super) fn take_expired(&self, id: InstanceId, now: Instant) -> Vec<PendingRelease> {
        let is_over = |release: &PendingRelease| release.expires_at <= now;
        self.take_where(id, |all| {
            all.releases.iter().filter(|(_, release)| is_over(release)).map(|(number, _)| *number).collect()
        })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_beyond_the_bound_are_dropped_and_those_whose_keys_have_expired() {
        let (releases, id, other) = (PendingReleases::new(2), InstanceId::new(0), InstanceId::new(1));
        let claim = |name: &str, ttl: u64| Arc::new(Claim { ttl: Duration::from_secs(ttl), ..Claim::sample(1, name) });
        for (name, ttl) in [("a", 9), ("b", 1), ("c", 9), ("d", 5)] {
            for id in [id, other] {
                releases.put(id, PendingRelease::new(claim(name, ttl), 2, Instant::from_millis(1_000)));
            }
        }
        assert_eq!([4, 3].map(|most| releases.take_beyond(id, most).len()), [0, 1]);
        let expired = |seconds: u64| releases.take_expired(id, Instant::from_millis(1_000 * seconds)).len();
        assert_eq!([2, 3, 10, 11].map(expired), [0, 1, 0, 1], "after twice their ttl");
        let left = releases.take_oldest(id, 9);
        assert_eq!(left.iter().map(|release| release.claim.resource.display()).collect::<Vec<_>>(), ["c"]);
        assert_eq!((releases.len(id), releases.len(other)), (0, 4));
    }

    #[test]
    fn of_a_lock_the_newest_are_sent_ahead_in_their_order() {
        let (releases, id) = (PendingReleases::new(1), InstanceId::new(0));
        let release = |round: u128, name: &str| {
            PendingRelease::new(Arc::new(Claim::sample(round, name)), 1, Instant::from_millis(1_000))
        };
        for round in 1..=20 {
            releases.put(id, release(round, "a"));
            releases.put(id, release(round, "b"));
        }
        let ahead = |round| {
            let taken = releases.take_for(id, &release(round, "a").claim);
            taken.into_iter().map(|release| release.claim.value.clone()).collect::<Vec<_>>()
        };
        let values = |rounds: std::ops::RangeInclusive<u128>| -> Vec<_> {
            rounds.map(|round| release(round, "a").claim.value.clone()).collect()
        };
        let all_but_first = [ahead(21), ahead(21), ahead(21)];
        assert_eq!(all_but_first, [values(5..=20), values(1..=4), Vec::new()]);
        assert_eq!(releases.len(id), 20);
        (1..=20).for_each(|round| _ = releases.put(id, release(round, "a")));
        assert_eq!(ahead(2), [values(2..=2), values(5..=20)].concat(), "those of its value are not left behind");
    }
}
