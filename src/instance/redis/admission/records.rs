//! Whether the admission records of the instances are this client's to write, and what it writes into them (P15, P29).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::protocol::AdmissionTerms;

/// What the connections of one client to all of its instances share.
///
/// A client that only looks writes nothing: its times need not be those of the clients that lock, and a record with
/// other times would keep these out for good.
#[derive(Debug)]
pub(crate) struct Records {
    /// Whether the client takes records as they are and never writes one.
    pub(crate) as_recorded: bool,
    /// The client's own.
    pub(crate) terms: AdmissionTerms,
    /// No client uses a longer ttl: a record that allows more was not written by a client.
    longest: u64,
    wants_locks: AtomicBool,
    wanted: Notify,
    settled: Notify,
    /// The longest ttl that the last record allows that was read of each instance, in milliseconds.
    longest_ttls: Mutex<BTreeMap<usize, u64>>,
}

impl Records {
    /// For a client with these terms. None of its clients uses a ttl above `longest_ms`.
    pub(crate) const fn new(terms: AdmissionTerms, longest_ms: u64, as_recorded: bool) -> Self {
        Self {
            as_recorded,
            terms,
            longest: longest_ms,
            wants_locks: AtomicBool::new(false),
            wanted: Notify::const_new(),
            settled: Notify::const_new(),
            longest_ttls: Mutex::new(BTreeMap::new()),
        }
    }

    /// The client wants locks from now on.
    pub(crate) fn want_locks(&self) {
        if !self.as_recorded && !self.wants_locks.load(Ordering::Acquire) {
            self.wants_locks.store(true, Ordering::Release);
            self.wanted.notify_waiters();
        }
    }

    /// Whether records are this client's to write.
    pub(crate) fn are_to_be_written(&self) -> bool {
        self.wants_locks.load(Ordering::Acquire)
    }

    /// Ends once they are.
    pub(crate) async fn wanted(&self) {
        loop {
            let wanted = self.wanted.notified();
            if self.are_to_be_written() {
                return;
            }
            wanted.await;
        }
    }

    /// Wakes tasks that wait for the record of an instance: there is one now, or no connection.
    pub(crate) fn wake_waiting(&self) {
        self.settled.notify_waiters();
    }

    /// Ends once `is_settled` says so. All waiting tasks are woken in the order in which they came: their next requests are sent
    /// in that order.
    pub(crate) async fn settled(&self, is_settled: impl Fn() -> bool) {
        loop {
            let settled = self.settled.notified();
            if is_settled() {
                return;
            }
            settled.await;
        }
    }

    /// Notes the longest ttl in the record that was just read of the instance at `index`, of any process. What no
    /// client can use is ignored.
    pub(crate) fn note_read(&self, index: usize, longest_ttl_ms: u64) {
        if longest_ttl_ms <= self.longest {
            self.longest_ttls.lock().unwrap_or_else(PoisonError::into_inner).insert(index, longest_ttl_ms);
        }
    }

    /// What is written where there is no valid record (P29): the longest ttl that votes are given for, which is the longest of the last
    /// records that were read, the replaced one included; and for how long the instance waits, which is never less than the
    /// own quarantine.
    pub(crate) fn to_write(&self) -> NewTimes {
        let own_ms = self.terms.quarantine_ms;
        let longest_ttl_ms = self.longest_ttls.lock().unwrap_or_else(PoisonError::into_inner).values().max().copied();
        NewTimes {
            longest_ttl_ms: longest_ttl_ms.unwrap_or(own_ms),
            wait_ms: longest_ttl_ms.map_or(own_ms, |longest_ttl_ms| longest_ttl_ms.max(own_ms)),
        }
    }
}

/// The times of a record that is to be written, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewTimes {
    /// The longest ttl that it allows.
    pub(crate) longest_ttl_ms: u64,
    /// How long the instance waits.
    pub(crate) wait_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        Records::new(AdmissionTerms { max_ttl_ms: 10_000, quarantine_ms: 10_000 }, 60_000, false)
    }

    #[test]
    fn an_instance_waits_for_the_longest_ttl_that_any_record_of_the_list_allows() {
        let records = records();
        let times = |longest_ttl_ms, wait_ms| NewTimes { longest_ttl_ms, wait_ms };
        assert_eq!(records.to_write(), times(10_000, 10_000), "its own, where it has seen none");
        records.note_read(0, 5_000);
        assert_eq!(
            records.to_write(),
            times(5_000, 10_000),
            "never less than the client's quarantine, and nothing is raised"
        );
        records.note_read(1, 30_000);
        records.note_read(2, 20_000);
        assert_eq!(records.to_write(), times(30_000, 30_000));
        records.note_read(1, 5_000);
        assert_eq!(records.to_write(), times(20_000, 20_000), "the last record of each counts");
    }

    /// Or one instance with such a record would keep the others waiting for ever.
    #[test]
    fn a_time_that_no_client_can_ask_for_is_not_believed() {
        let records = records();
        records.note_read(0, 60_001);
        assert_eq!(records.to_write().wait_ms, 10_000);
        records.note_read(0, 60_000);
        assert_eq!(records.to_write().wait_ms, 60_000);
    }

    #[tokio::test]
    async fn records_are_written_by_a_client_that_wants_locks_and_takes_none_as_it_is() {
        let (records, looking) = (records(), Records { as_recorded: true, ..records() });
        for records in [&records, &looking] {
            assert!(!records.are_to_be_written());
            records.want_locks();
        }
        assert!(records.are_to_be_written() && !looking.are_to_be_written());
        records.wanted().await;
    }
}
