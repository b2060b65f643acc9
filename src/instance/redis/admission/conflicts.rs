//! Which of a client's instances have said that they are of another cluster (P16).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The addresses of those instances, by their position in the configuration. What an instance said last counts, also
/// while it is not connected.
#[derive(Debug, Default)]
pub(crate) struct ClusterConflicts {
    /// Whether there are any: it is asked with each acquire.
    any: AtomicBool,
    addresses: Mutex<BTreeMap<usize, String>>,
}

impl ClusterConflicts {
    /// Notes what the instance at `index` says.
    pub(crate) fn note(&self, index: usize, address: &str, is_of_another: bool) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if is_of_another {
            addresses.insert(index, address.to_owned());
        } else {
            addresses.remove(&index);
        }
        self.any.store(!addresses.is_empty(), Ordering::Relaxed);
    }

    /// The first of those instances.
    pub(crate) fn first(&self) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).values().next().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_instance_said_last_counts() {
        let conflicts = ClusterConflicts::default();
        assert_eq!(conflicts.first(), None);
        conflicts.note(2, "c", true);
        conflicts.note(0, "a", false);
        assert_eq!(conflicts.first().as_deref(), Some("c"));
        conflicts.note(1, "b", true);
        conflicts.note(2, "c", false);
        assert_eq!(conflicts.first().as_deref(), Some("b"));
        conflicts.note(1, "b", false);
        assert_eq!(conflicts.first(), None);
    }
}
