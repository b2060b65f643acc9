//! One server process has one vote, under however many addresses a client reaches it (P16).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::{Instant, NotUsable};

/// So many processes are remembered of one address.
const MOST_OF_ADDRESS: usize = 16;

/// Under which address each server process votes for one client.
#[derive(Debug)]
pub(crate) struct ProcessNames {
    /// How long a vote can count at most: so long a process votes under no other address.
    quarantine: Duration,
    names: Mutex<Vec<ProcessName>>,
}

#[derive(Debug)]
struct ProcessName {
    run_id: String,
    /// The position of the instance in the configuration.
    index: usize,
    address: String,
    /// When the connection to it ended.
    ended: Option<Instant>,
    /// Whether its address has led to no other process since.
    is_latest: bool,
    /// From when on its votes count, by the client's clock.
    counts_from: Instant,
}

impl ProcessNames {
    pub(crate) const fn new(quarantine: Duration) -> Self {
        Self { quarantine, names: Mutex::new(Vec::new()) }
    }

    /// Records that the instance at `index` is this process, and returns the instant from which its votes count: at once, unless the process
    /// has voted under an address that leads to another one by now.
    ///
    /// # Errors
    /// If it is the process of another address: one that is connected, or that may come back as the same.
    pub(crate) fn claim(
        &self,
        (index, address): (usize, &str),
        run_id: &str,
        now: Instant,
    ) -> Result<Instant, NotUsable> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|name| name.ended.is_none_or(|ended| now < ended.saturating_add(self.quarantine)));
        let former = names.iter().position(|name| name.run_id == run_id);
        let counts_from = match former.and_then(|at| names.get(at)) {
            None => Instant::ZERO,
            Some(own) if own.index == index => own.counts_from,
            Some(other) if other.is_latest => return Err(NotUsable::SameProcess(other.address.clone())),
            Some(other) => other.ended.unwrap_or(now).saturating_add(self.quarantine),
        };
        former.map(|at| names.remove(at));
        names.iter_mut().filter(|name| name.index == index).for_each(|name| name.is_latest = false);
        if names.iter().filter(|name| name.index == index).count() == MOST_OF_ADDRESS
            && let Some(oldest) = names.iter().position(|name| name.index == index)
        {
            names.remove(oldest); // a process that so many have followed is gone, or the address lies
        }
        let (address, run_id) = (address.to_owned(), run_id.to_owned());
        names.push(ProcessName { run_id, index, address, ended: None, is_latest: true, counts_from });
        Ok(counts_from)
    }

    /// Records that the instance at `index` is not connected any more.
    pub(crate) fn disconnected(&self, index: usize, now: Instant) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let present = names.iter_mut().find(|name| name.index == index && name.ended.is_none());
        present.into_iter().for_each(|name| name.ended = Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Instant = Instant::from_millis;

    const NOW: Result<Instant, NotUsable> = Ok(Instant::ZERO);

    fn names() -> ProcessNames {
        ProcessNames::new(Duration::from_secs(10))
    }

    fn claim(names: &ProcessNames, index: usize, run_id: &str, at: u64) -> Result<Instant, NotUsable> {
        names.claim((index, ["a", "b", "c"][index]), run_id, MS(at))
    }

    fn same_as(address: &str) -> Result<Instant, NotUsable> {
        Err(NotUsable::SameProcess(address.to_owned()))
    }

    /// An address that connected while another was away for a moment took its process, and shut it out from then on.
    #[test]
    fn a_process_votes_under_the_address_that_connected_first_also_while_that_is_away() {
        let names = names();
        assert_eq!(claim(&names, 0, "one", 1), NOW);
        assert_eq!(claim(&names, 1, "another", 1), NOW);
        assert_eq!(claim(&names, 2, "one", 99_999), same_as("a"));
        names.disconnected(0, MS(100_000));
        assert_eq!(claim(&names, 2, "one", 109_999), same_as("a"));
        assert_eq!(claim(&names, 0, "one", 109_999), NOW);
        names.disconnected(0, MS(110_000));
        assert_eq!(claim(&names, 2, "one", 120_000), NOW, "no vote under the first address counts any more");
        assert_eq!(claim(&names, 0, "one", 120_000), same_as("c"));
    }

    /// Both addresses would otherwise count for one lease: the last vote under the one and the first under the other.
    #[test]
    fn a_process_that_moved_votes_under_its_new_address_once_no_vote_under_the_former_counts() {
        let names = names();
        assert_eq!(claim(&names, 0, "one", 1), NOW);
        names.disconnected(0, MS(1_000));
        assert_eq!(claim(&names, 0, "another", 1_500), NOW);
        assert_eq!(claim(&names, 1, "one", 2_000), Ok(MS(11_000)));
        assert_eq!(claim(&names, 0, "one", 2_500), same_as("b"));
        names.disconnected(1, MS(3_000));
        assert_eq!(claim(&names, 1, "one", 4_000), Ok(MS(11_000)), "the wait does not begin anew");
        names.disconnected(1, MS(5_000));
        assert_eq!(claim(&names, 1, "third", 6_000), NOW);
        assert_eq!(claim(&names, 2, "one", 7_000), Ok(MS(15_000)));
    }

    #[test]
    fn an_address_whose_process_comes_back_goes_on() {
        let names = names();
        for (run_id, at) in [("one", 1_000), ("another", 2_000), ("one", 3_000)] {
            assert_eq!(claim(&names, 0, run_id, at), NOW);
            names.disconnected(0, MS(at + 500));
        }
    }

    #[test]
    fn an_address_with_ever_new_processes_keeps_few_of_them() {
        let names = names();
        assert_eq!(claim(&names, 0, "honest", 1), NOW);
        for at in 0..100 {
            assert_eq!(claim(&names, 1, &at.to_string(), at), NOW);
            names.disconnected(1, MS(at));
        }
        assert_eq!(names.names.lock().unwrap().len(), 1 + MOST_OF_ADDRESS);
        assert_eq!(claim(&names, 1, "honest", 100), same_as("a"));
    }
}
