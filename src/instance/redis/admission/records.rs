//! Whether the admission records of the instances are this client's to write, and what it writes into them (P15, P29).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::protocol::AdmissionTerms;

/// What the connections of one client to all of its instances share.
///
/// A client that only looks writes nothing: its times need not be those of the clients that lock, and a record with
/// other times would keep these out for good.
#[derive(Debug)]
pub(crate) struct Records {
    /// Whether the client takes records as they are and never writes one.
    as_recorded: bool,
    terms: AdmissionTerms,
    /// No client asks for more, or tokens are forgotten before locks: a record that says so was not written by a client.
    longest: u64,
    wants_locks: AtomicBool,
    wanted: Notify,
    settled: Notify,
    /// The longest `max_ttl` of any record that was seen on any instance, in milliseconds.
    longest_seen: AtomicU64,
}

impl Records {
    /// For a client with these terms. None of its clients asks for a ttl above `longest_ms`.
    pub(crate) const fn new(terms: AdmissionTerms, longest_ms: u64, as_recorded: bool) -> Self {
        Self {
            as_recorded,
            terms,
            longest: longest_ms,
            wants_locks: AtomicBool::new(false),
            wanted: Notify::const_new(),
            settled: Notify::const_new(),
            longest_seen: AtomicU64::new(0),
        }
    }

    /// Whether the client takes records as they are and never writes one.
    pub(crate) const fn are_as_recorded(&self) -> bool {
        self.as_recorded
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

    /// Wakes those who wait for the record of an instance, as there is one now, or no connection.
    pub(crate) fn wake_waiting(&self) {
        self.settled.notify_waiters();
    }

    /// Ends once `is_settled` says so. All who wait are woken in the order in which they came: what they ask next is asked
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

    /// Notes a record of one of the instances, of whatever process.
    pub(crate) fn note_seen(&self, recorded: AdmissionTerms) {
        if recorded.max_ttl_ms <= self.longest {
            self.longest_seen.fetch_max(recorded.max_ttl_ms, Ordering::AcqRel);
        }
    }

    /// The client's own terms.
    pub(crate) const fn terms(&self) -> AdmissionTerms {
        self.terms
    }

    /// What is written where there is no record to go by: the instance waits for as long as any client asks for whose record was
    /// seen on any instance, though this client itself may wait for less (P29).
    pub(crate) fn terms_to_write(&self) -> AdmissionTerms {
        let quarantine_ms = self.terms.quarantine_ms.max(self.longest_seen.load(Ordering::Acquire));
        AdmissionTerms { quarantine_ms, ..self.terms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        Records::new(AdmissionTerms::of_max_ttl(10_000), 60_000, false)
    }

    #[test]
    fn an_instance_waits_for_the_longest_ttl_that_any_record_of_the_list_allows() {
        let records = records();
        assert_eq!(records.terms_to_write(), AdmissionTerms::of_max_ttl(10_000));
        records.note_seen(AdmissionTerms { max_ttl_ms: 5_000, quarantine_ms: 50_000 });
        assert_eq!(records.terms_to_write(), AdmissionTerms::of_max_ttl(10_000), "nobody asks for 50 s yet");
        records.note_seen(AdmissionTerms::of_max_ttl(30_000));
        records.note_seen(AdmissionTerms::of_max_ttl(20_000));
        let expected = AdmissionTerms { max_ttl_ms: 10_000, quarantine_ms: 30_000 };
        assert_eq!(records.terms_to_write(), expected);
    }

    /// Or one instance with such a record would keep the others waiting for ever.
    #[test]
    fn a_time_that_no_client_can_ask_for_is_not_believed() {
        let records = records();
        records.note_seen(AdmissionTerms::of_max_ttl(60_001));
        assert_eq!(records.terms_to_write(), AdmissionTerms::of_max_ttl(10_000));
        records.note_seen(AdmissionTerms::of_max_ttl(60_000));
        assert_eq!(records.terms_to_write().quarantine_ms, 60_000);
    }

    #[tokio::test]
    async fn records_are_written_by_a_client_that_wants_locks_and_takes_none_as_it_is() {
        let (records, looking) = (records(), Records::new(AdmissionTerms::of_max_ttl(1), 60_000, true));
        for records in [&records, &looking] {
            assert!(!records.are_to_be_written());
            records.want_locks();
        }
        assert!(records.are_to_be_written() && !looking.are_to_be_written());
        records.wanted().await;
    }
}
