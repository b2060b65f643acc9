//! Which holder has what in this process (P23).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::hold::Hold;
use crate::resource::Resources;

/// Below so many holders nothing is tidied up.
const FEW: usize = 256;

/// The lease of one holder on one set of resources, if it has one.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// One try of a holder at a time: the second finds what the first has won.
    pub(super) turn: tokio::sync::Mutex<()>,
    lease: Mutex<Weak<Hold>>,
}

impl Place {
    /// The lease, if anybody still has it.
    pub(super) fn lease(&self) -> Option<Arc<Hold>> {
        self.lock().upgrade()
    }

    /// The holder has this lease from now on.
    pub(super) fn put(&self, hold: &Arc<Hold>) {
        *self.lock() = Arc::downgrade(hold);
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Hold>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holders of this client that have given an identity.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    known: HashMap<Arc<str>, HashMap<Resources, Arc<Place>>>,
    tidy_at: usize,
}

impl Holders {
    /// The place of a holder for exactly these resources.
    pub(super) fn place(&self, holder: &Arc<str>, resources: &Resources) -> Arc<Place> {
        let mut places = self.places();
        if places.known.len() >= places.tidy_at.max(FEW) {
            places.known.retain(|_, places| {
                tidy(places);
                !places.is_empty()
            });
            places.tidy_at = places.known.len() * 2;
        }
        let places = places.known.entry(Arc::clone(holder)).or_default();
        if let Some(place) = places.get(resources) {
            return Arc::clone(place);
        }
        tidy(places); // a holder has few at a time
        Arc::clone(places.entry(resources.clone()).or_default())
    }

    /// The other leases of a holder on some of these resources: what it takes over of them, it takes
    /// from itself, and no instance tells.
    pub(super) fn overlapping(&self, holder: &Arc<str>, resources: &Resources) -> Vec<Arc<Hold>> {
        if holder.is_empty() {
            return Vec::new();
        }
        let places = self.places();
        let of_holder = places.known.get(holder).into_iter().flatten();
        let others = of_holder.filter(|(other, _)| *other != resources && other.overlaps(resources));
        others.filter_map(|(_, place)| place.lease()).collect()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the places that nobody needs.
fn tidy(places: &mut HashMap<Resources, Arc<Place>>) {
    places.retain(|_, place| Arc::strong_count(place) > 1 || place.lock().strong_count() > 0);
}
