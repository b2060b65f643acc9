//! Which server process each of a client's connections leads to (P16).

use std::sync::{Mutex, PoisonError};

use crate::protocol::NotUsable;

/// One client's instances by the process behind them.
#[derive(Debug, Default)]
pub(crate) struct ProcessRegistry(Mutex<Vec<(usize, String, String)>>);

impl ProcessRegistry {
    /// Notes that the instance at `index` is this process.
    ///
    /// # Errors
    /// If another instance is the same process: one process has one vote.
    pub(crate) fn register(&self, index: usize, address: &str, run_id: &str) -> Result<(), NotUsable> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(other, ..)| *other != index);
        if let Some((_, other, _)) = entries.iter().find(|(.., id)| id == run_id) {
            return Err(NotUsable::SameProcess(other.clone()));
        }
        entries.push((index, address.to_owned(), run_id.to_owned()));
        Ok(())
    }

    /// Notes that the instance at `index` is not connected any more.
    pub(crate) fn unregister(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, ..)| *other != index);
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
