//! Which holder has which lease in this client (P23).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;

/// With fewer holders than this, unused slots are left in place.
const MIN_HOLDERS_TO_TIDY: usize = 256;

/// The lease of one holder on one set of resources, if it has one.
#[derive(Debug, Default)]
pub(super) struct HolderSlot {
    /// Locked for as long as a try of the holder is under way: the next finds what it has won.
    pub(super) one_try: tokio::sync::Mutex<()>,
    lease: Mutex<Weak<HeldLease>>,
}

impl HolderSlot {
    /// The lease, if anybody still has it.
    pub(super) fn lease(&self) -> Option<Arc<HeldLease>> {
        self.lock().upgrade()
    }

    /// The holder has this lease from now on.
    pub(super) fn put(&self, held: &Arc<HeldLease>) {
        *self.lock() = Arc::downgrade(held);
    }

    fn lock(&self) -> MutexGuard<'_, Weak<HeldLease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leases of this client's holders that have given an identity.
#[derive(Debug, Default)]
pub(crate) struct ReentryTable(Mutex<HolderSlots>);

#[derive(Debug, Default)]
struct HolderSlots {
    /// By the holder's identity, then by resources.
    by_holder: HashMap<Arc<str>, BTreeMap<Resources, Arc<HolderSlot>>>,
    tidy_at: usize,
}

impl ReentryTable {
    /// How many slots have a lease or a try. Others are dropped when there is a reason to look.
    #[cfg(feature = "testing")]
    pub(crate) fn in_use(&self) -> usize {
        let mut all = self.lock();
        all.by_holder.values_mut().for_each(tidy);
        all.by_holder.values().map(BTreeMap::len).sum()
    }

    /// The slot of a holder for exactly these resources.
    pub(super) fn slot(&self, holder: &Arc<str>, resources: &Resources) -> Arc<HolderSlot> {
        let mut all = self.lock();
        if all.by_holder.len() >= all.tidy_at.max(MIN_HOLDERS_TO_TIDY) {
            all.by_holder.retain(|_, slots| {
                tidy(slots);
                !slots.is_empty()
            });
            all.tidy_at = all.by_holder.len() * 2;
        }
        let slots = all.by_holder.entry(Arc::clone(holder)).or_default();
        if let Some(slot) = slots.get(resources) {
            return Arc::clone(slot);
        }
        tidy(slots); // a holder has few at a time
        Arc::clone(slots.entry(resources.clone()).or_default())
    }

    /// The other leases of a holder on some of these resources: a try for these takes them over, and no
    /// instance notifies a client of changes that it made itself.
    pub(super) fn overlapping(&self, holder: &Arc<str>, resources: &Resources) -> Vec<Arc<HeldLease>> {
        if holder.is_empty() {
            return Vec::new();
        }
        let all = self.lock();
        let of_holder = all.by_holder.get(holder).into_iter().flatten();
        let others = of_holder.filter(|(other, _)| *other != resources && other.overlaps(resources));
        others.filter_map(|(_, slot)| slot.lease()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HolderSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the slots that nobody needs.
fn tidy(slots: &mut BTreeMap<Resources, Arc<HolderSlot>>) {
    slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.lock().strong_count() > 0);
}
