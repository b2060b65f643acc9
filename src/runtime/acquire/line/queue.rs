//! Who stands in a line, in the order in which they came.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::runtime::acquire::params::AcquireParams;

/// A place in a line: smaller is earlier.
pub(crate) type PlaceNumber = u64;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) params: Arc<AcquireParams>,
    pub(super) waker: Option<Waker>,
    /// It did not take what it was offered, and was not polled since: others go first (P22).
    pub(super) is_passed_over: bool,
    /// Its wait is over; it only wants to know what was in the way.
    pub(super) wants_failure: bool,
}

/// The places of a line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    places: BTreeMap<PlaceNumber, Waiting>,
    last: PlaceNumber,
}

impl Queue {
    /// A place behind all others.
    pub(super) fn push(&mut self, params: Arc<AcquireParams>) -> PlaceNumber {
        self.last += 1;
        let waiting = Waiting { params, waker: None, is_passed_over: false, wants_failure: false };
        self.places.insert(self.last, waiting);
        self.last
    }

    pub(super) fn get_mut(&mut self, number: PlaceNumber) -> Option<&mut Waiting> {
        self.places.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: PlaceNumber) -> Option<Waiting> {
        self.places.remove(&number)
    }

    /// The first that is not passed over: the next to have the lock.
    pub(super) fn next(&mut self) -> Option<(PlaceNumber, &mut Waiting)> {
        self.places.iter_mut().find(|(_, waiting)| !waiting.is_passed_over).map(|(number, waiting)| (*number, waiting))
    }

    /// Those that are not passed over.
    pub(super) fn not_passed_over(&self) -> impl Iterator<Item = PlaceNumber> {
        self.places.iter().filter(|(_, waiting)| !waiting.is_passed_over).map(|(number, _)| *number)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Everybody leaves.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        std::mem::take(&mut self.places).into_values()
    }

    /// The wakers of those who wait for this holder, if it is one.
    pub(super) fn wakers_of(&mut self, holder: &Arc<str>) -> Vec<Waker> {
        let of_holder =
            self.places.values_mut().filter(|waiting| !holder.is_empty() && waiting.params.holder == *holder);
        of_holder.filter_map(|waiting| waiting.waker.take()).collect()
    }

    /// The wakers of those who want to know what is in the way.
    pub(super) fn wakers_for_failure(&mut self) -> Vec<Waker> {
        let wanting = self.places.values_mut().filter(|waiting| waiting.wants_failure);
        wanting.filter_map(|waiting| waiting.waker.take()).collect()
    }
}
