//! Which holder has what in this process (P23).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::hold::Hold;
use crate::resource::Resources;

/// Below so many places nothing is tidied up.
const FEW: usize = 256;

/// The lease of one holder on one set of resources, if it has one.
type Place = Arc<tokio::sync::Mutex<Weak<Hold>>>;

/// The holders of this client that have given an identity.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    known: HashMap<(Arc<str>, Resources), Place>,
    tidy_at: usize,
}

impl Holders {
    /// The place of a holder for exactly these resources.
    pub(super) fn place(&self, holder: &Arc<str>, resources: &Resources) -> Place {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.known.len() >= places.tidy_at.max(FEW) {
            places.known.retain(|_, place| is_in_use(place));
            places.tidy_at = places.known.len() * 2;
        }
        Arc::clone(places.known.entry((Arc::clone(holder), resources.clone())).or_default())
    }
}

fn is_in_use(place: &Place) -> bool {
    Arc::strong_count(place) > 1 || place.try_lock().is_ok_and(|lease| lease.strong_count() > 0)
}
