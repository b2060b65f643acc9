//! Which holder has what in this process (P23).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::held_lease::HeldLease;
use crate::resource::Resources;

/// Below so many holders nothing is tidied up.
const FEW: usize = 256;

/// The lease of one holder on one set of resources, if it has one.
#[derive(Debug, Default)]
pub(super) struct HolderSlot {
    /// One try of a holder at a time: the second finds what the first has won.
    pub(super) turn: tokio::sync::Mutex<()>,
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

/// The holders of this client that have given an identity.
#[derive(Debug, Default)]
pub(crate) struct ReentryTable(Mutex<HolderSlots>);

#[derive(Debug, Default)]
struct HolderSlots {
    known: HashMap<Arc<str>, HashMap<Resources, Arc<HolderSlot>>>,
    tidy_at: usize,
}

impl ReentryTable {
    /// The place of a holder for exactly these resources.
    pub(super) fn slot(&self, holder: &Arc<str>, resources: &Resources) -> Arc<HolderSlot> {
        let mut slots = self.slots();
        if slots.known.len() >= slots.tidy_at.max(FEW) {
            slots.known.retain(|_, slots| {
                tidy(slots);
                !slots.is_empty()
            });
            slots.tidy_at = slots.known.len() * 2;
        }
        let slots = slots.known.entry(Arc::clone(holder)).or_default();
        if let Some(slot) = slots.get(resources) {
            return Arc::clone(slot);
        }
        tidy(slots); // a holder has few at a time
        Arc::clone(slots.entry(resources.clone()).or_default())
    }

    /// The other leases of a holder on some of these resources: what it takes over of them, it takes
    /// from itself, and no instance tells.
    pub(super) fn overlapping(&self, holder: &Arc<str>, resources: &Resources) -> Vec<Arc<HeldLease>> {
        if holder.is_empty() {
            return Vec::new();
        }
        let slots = self.slots();
        let of_holder = slots.known.get(holder).into_iter().flatten();
        let others = of_holder.filter(|(other, _)| *other != resources && other.overlaps(resources));
        others.filter_map(|(_, slot)| slot.lease()).collect()
    }

    fn slots(&self) -> MutexGuard<'_, HolderSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the places that nobody needs.
fn tidy(slots: &mut HashMap<Resources, Arc<HolderSlot>>) {
    slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.lock().strong_count() > 0);
}
