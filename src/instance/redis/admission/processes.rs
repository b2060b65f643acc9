//! Which server process each of a client's connections leads to (P16).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::protocol::NotUsable;

/// The processes behind the connected instances of one client, by the position of the instance in the
/// configuration.
#[derive(Debug, Default)]
pub(crate) struct ProcessRegistry(Mutex<BTreeMap<usize, Process>>);

#[derive(Debug)]
struct Process {
    address: String,
    run_id: String,
}

impl ProcessRegistry {
    /// Notes that the instance at `index` is this process.
    ///
    /// # Errors
    /// If another instance is the same process: one process has one vote.
    pub(crate) fn register(&self, index: usize, address: &str, run_id: &str) -> Result<(), NotUsable> {
        let mut processes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        processes.remove(&index);
        if let Some(other) = processes.values().find(|process| process.run_id == run_id) {
            return Err(NotUsable::SameProcess(other.address.clone()));
        }
        processes.insert(index, Process { address: address.to_owned(), run_id: run_id.to_owned() });
        Ok(())
    }

    /// Notes that the instance at `index` is not connected any more.
    pub(crate) fn unregister(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_one_vote() {
        let processes = ProcessRegistry::default();
        assert_eq!(processes.register(0, "a", "run1"), Ok(()));
        assert_eq!(processes.register(1, "b", "run1"), Err(NotUsable::SameProcess("a".to_owned())));
        assert_eq!(processes.register(0, "a", "run1"), Ok(()), "the same instance again");
        processes.unregister(0);
        assert_eq!(processes.register(1, "b", "run1"), Ok(()));
    }
}
