//! The admission record of an instance, and what a client remembers of those that it has seen (P14, P15).

use std::time::Duration;

/// How much of an id is recorded. Both are random hexadecimal digits, so that two processes that
/// follow each other share this much of one with a probability of 2^-64. The record goes out with
/// every request, and instances compare it with every vote.
const ID_DIGITS: usize = 16;

/// A record with a larger order was written by hand. The scripts count in doubles, and whoever writes
/// the next record must be able to count on.
const MOST_ORDER: u64 = 1 << 52;

/// Which life of which process: the beginnings of `run_id/master_replid`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity(String);

impl ProcessIdentity {
    /// The identity, from what the server reports about itself.
    #[must_use]
    pub fn new(run_id: &str, replication_id: &str) -> Self {
        let beginning = |id: &str| id.get(..ID_DIGITS).unwrap_or(id).to_owned();
        Self(format!("{}/{}", beginning(run_id), beginning(replication_id)))
    }

    /// The identity as it is recorded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a record came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordOrigin {
    /// No record was found on a process that had run for long, and reports no flush: never used, as far as its writer saw.
    Blank,
    /// The quarantine has a known reason.
    Waits,
    /// The reason is a flush that was pushed to its writer, of whatever database.
    Flushed,
    /// All instances were blank at once: nobody has ever used them, so nothing can be forgotten.
    Opened,
}

impl RecordOrigin {
    /// The word in the record.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Waits => "waits",
            Self::Flushed => "flushed",
            Self::Opened => "opened",
        }
    }
}

/// What clients go by for the instances that they share, in milliseconds (P16, P29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionTerms {
    /// The longest ttl that is asked for.
    pub max_ttl_ms: u64,
    /// How long an instance that may have forgotten locks sits out. Not less than the longest ttl that any client asks
    /// for; more of it while that is being changed.
    pub quarantine_ms: u64,
}

impl AdmissionTerms {
    /// The same time for both.
    #[must_use]
    pub const fn of_max_ttl(max_ttl_ms: u64) -> Self {
        Self { max_ttl_ms, quarantine_ms: max_ttl_ms }
    }

    /// What covers both.
    #[must_use]
    pub fn covering(self, other: Self) -> Self {
        Self {
            max_ttl_ms: self.max_ttl_ms.max(other.max_ttl_ms),
            quarantine_ms: self.quarantine_ms.max(other.quarantine_ms),
        }
    }
}

/// The admission record of an instance: `identity vote_from_ms max_ttl_ms origin order`, then `quarantine_ms` if that is longer
/// than `max_ttl_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionRecord {
    /// Whom it was written for.
    pub identity: ProcessIdentity,
    /// From when on the process may vote, in milliseconds of the instance's clock.
    pub vote_from_ms: u64,
    /// The longest ttl that any client may ask for under this record, and how long those that have written it wait.
    pub terms: AdmissionTerms,
    /// How it came to be.
    pub origin: RecordOrigin,
    /// Larger than that of every record of this process that its writer knew of. Of one that begins a quarantine it is not less than
    /// the instance's clock in milliseconds: so a writer that knows of none writes no older one either. One that follows another, with
    /// larger terms or opened, comes right behind that, so that whoever doubts the former doubts this one too.
    pub order: u64,
}

impl AdmissionRecord {
    /// Reads a record; anything else is `None`.
    #[must_use]
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(wire).ok()?.split(' ');
        let identity = ProcessIdentity(words.next()?.to_owned());
        let vote_from_ms = words.next()?.parse().ok()?;
        let max_ttl_ms = words.next()?.parse().ok()?;
        let origin = match words.next()? {
            "blank" => RecordOrigin::Blank,
            "waits" => RecordOrigin::Waits,
            "flushed" => RecordOrigin::Flushed,
            "opened" => RecordOrigin::Opened,
            _ => return None,
        };
        let order = words.next()?.parse().ok().filter(|order| *order <= MOST_ORDER)?;
        let quarantine_ms = match words.next() {
            Some(ms) => ms.parse().ok().filter(|ms| *ms > max_ttl_ms)?,
            None => max_ttl_ms,
        };
        let terms = AdmissionTerms { max_ttl_ms, quarantine_ms };
        let record = Self { identity, vote_from_ms, terms, origin, order };
        // The scripts compare the text: one that reads the same but is written otherwise would
        // never match.
        (record.to_wire().as_bytes() == wire).then_some(record)
    }

    /// The record as it is stored.
    #[must_use]
    pub fn to_wire(&self) -> String {
        let Self { identity, vote_from_ms, terms, origin, order } = self;
        let AdmissionTerms { max_ttl_ms, quarantine_ms } = terms;
        let mut record = format!("{} {vote_from_ms} {max_ttl_ms} {} {order}", identity.as_str(), origin.word());
        if quarantine_ms != max_ttl_ms {
            record.push_str(&format!(" {quarantine_ms}"));
        }
        record
    }

    /// Whether the instance was blank and may not vote yet, and its clock shows a time at which this can have been written.
    #[must_use]
    pub fn is_untouched(&self, now_ms: u64) -> bool {
        self.origin == RecordOrigin::Blank && now_ms < self.vote_from_ms && !self.is_from_later(now_ms)
    }

    /// Whether the clock shows less than when this was written: none is written for later than its own quarantine ahead (P29).
    #[must_use]
    pub const fn is_from_later(&self, now_ms: u64) -> bool {
        self.vote_from_ms.saturating_sub(now_ms) > self.terms.quarantine_ms
    }

    /// How long ago it was flushed at an instant of the instance's clock, if it waits, or has waited, for that: the order of a record
    /// that begins a quarantine is the instance's clock then.
    #[must_use]
    pub fn flushed_ago(&self, now_ms: u64) -> Option<Duration> {
        (self.origin == RecordOrigin::Flushed).then(|| Duration::from_millis(now_ms.saturating_sub(self.order)))
    }

    /// How long the process must still sit out at an instant of the instance's clock.
    #[must_use]
    pub const fn quarantine_left(&self, now_ms: u64) -> Duration {
        Duration::from_millis(self.vote_from_ms.saturating_sub(now_ms))
    }
}

/// What a client remembers of the records of the process that it saw last, across its connections.
///
/// A record that is older than one that was seen came back with an old copy of the data: what was
/// granted since is missing from it. The instant from which a record lets vote says nothing about its
/// age, as opening instances that were never used brings it forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRecords {
    newest: Option<AdmissionRecord>,
    /// No record up to this order is believed, although it is the newest.
    suspect_up_to: Option<u64>,
}

impl SeenRecords {
    /// Notes a record that names the process behind the connection.
    pub fn note(&mut self, record: &AdmissionRecord) {
        let newest = self.of(record).map(|newest| newest.order);
        if newest.is_none() {
            self.suspect_up_to = None;
        }
        if newest.is_none_or(|newest| newest < record.order) {
            self.newest = Some(record.clone());
        }
    }

    /// Notes that the data that came with a record was replaced, or the clock was stepped, by `latest_ms` of the
    /// instance's clock: from now on only a record that was written after that is believed. What came back may
    /// be one that this client had not seen yet.
    pub fn suspect(&mut self, record: &AdmissionRecord, latest_ms: u64) {
        self.note(record);
        self.suspect_up_to = self.suspect_up_to.max(Some(record.order.max(latest_ms)));
    }

    /// Whether a record can be one that was written last.
    #[must_use]
    pub fn accepts(&self, record: &AdmissionRecord) -> bool {
        let Some(newest) = self.of(record) else { return true };
        // Two of the same order are not ordered: each may have been written by a client that did not
        // know of the other.
        let is_latest = newest.order < record.order || newest == record;
        is_latest && self.suspect_up_to.is_none_or(|suspect| suspect < record.order)
    }

    /// Whether this client has seen one, of whatever process.
    #[must_use]
    pub const fn has_any(&self) -> bool {
        self.newest.is_some()
    }

    /// The least order of a record that is written next for this process.
    #[must_use]
    pub fn next_order(&self, identity: &ProcessIdentity) -> u64 {
        let newest = self.newest.as_ref().filter(|newest| newest.identity == *identity);
        newest.map_or(0, |newest| newest.order.max(self.suspect_up_to.unwrap_or(0)).saturating_add(1))
    }

    fn of(&self, record: &AdmissionRecord) -> Option<&AdmissionRecord> {
        self.newest.as_ref().filter(|newest| newest.identity == record.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(run_id: &str, order: u64) -> AdmissionRecord {
        let identity = ProcessIdentity::new(run_id, "p");
        let (terms, origin) = (AdmissionTerms::of_max_ttl(10), RecordOrigin::Waits);
        AdmissionRecord { identity, vote_from_ms: 5, terms, origin, order }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        for origin in [RecordOrigin::Blank, RecordOrigin::Waits, RecordOrigin::Flushed, RecordOrigin::Opened] {
            for quarantine_ms in [10, 11] {
                let terms = AdmissionTerms { max_ttl_ms: 10, quarantine_ms };
                let record = AdmissionRecord { origin, terms, ..record("a", 11) };
                assert_eq!(AdmissionRecord::from_wire(record.to_wire().as_bytes()), Some(record));
            }
        }
        for read in ["11", "11 10"] {
            let wire = format!("a/b 7 9 blank {read}");
            let record = AdmissionRecord::from_wire(wire.as_bytes());
            assert_eq!(record.map(|record| record.to_wire()), Some(wire));
        }
        let others = ["11 ", "11 more", "11 10 more", "11 10 10", "11  10"];
        for other in ["", "x"].into_iter().chain(others) {
            assert_eq!(AdmissionRecord::from_wire(format!("a/b 7 9 blank {other}").as_bytes()), None, "{other}");
        }
        assert_eq!(AdmissionRecord::from_wire(b"a/b 7 9 blank"), None);
    }

    #[test]
    fn a_record_that_is_written_otherwise_is_none() {
        assert_eq!(AdmissionRecord::from_wire(b"run1/repl1 01000 10000 waits 7 20000"), None);
        assert_eq!(AdmissionRecord::from_wire(b"run1/repl1 +1000 10000 waits 7 20000"), None);
        assert_eq!(AdmissionRecord::from_wire(b"run1/repl1 1000 10000 waits 07 20000"), None);
        assert_eq!(AdmissionRecord::from_wire(b"run1/repl1 1000 10000 waits 7 9999"), None, "it waits for too little");
        assert_eq!(
            AdmissionRecord::from_wire(b"run1/repl1 1000 10000 waits 7 10000"),
            None,
            "that goes without saying"
        );
        assert_eq!(AdmissionRecord::from_wire(b"run1/repl1 1000 10000 waits 7 020000"), None);
    }

    /// Or nobody could write one that is believed, and the process would never vote again.
    #[test]
    fn a_record_that_nobody_could_follow_is_none() {
        let largest = format!("a/b 7 9 blank {MOST_ORDER}");
        assert!(AdmissionRecord::from_wire(largest.as_bytes()).is_some());
        assert_eq!(AdmissionRecord::from_wire(format!("a/b 7 9 blank {}", MOST_ORDER + 1).as_bytes()), None);
    }

    #[test]
    fn of_two_records_of_one_order_only_the_one_that_was_seen_is_believed() {
        let mut seen = SeenRecords::default();
        seen.note(&record("a", 7));
        assert!(seen.accepts(&record("a", 7)));
        assert!(!seen.accepts(&AdmissionRecord { vote_from_ms: 4, ..record("a", 7) }));
    }

    #[test]
    fn a_record_that_is_doubted_is_believed_no_more_and_a_later_one_is() {
        let mut seen = SeenRecords::default();
        seen.suspect(&record("a", 7), 0);
        assert!(!seen.accepts(&record("a", 7)));
        assert_eq!(seen.next_order(&ProcessIdentity::new("a", "p")), 8);
        assert!(seen.accepts(&record("a", 8)));
    }

    #[test]
    fn a_record_that_was_not_seen_but_is_older_than_the_doubt_is_not_accepted() {
        let mut seen = SeenRecords::default();
        seen.suspect(&record("a", 7), 20);
        assert!(!seen.accepts(&record("a", 8)) && !seen.accepts(&record("a", 20)));
        assert_eq!(seen.next_order(&ProcessIdentity::new("a", "p")), 21);
        assert!(seen.accepts(&record("a", 21)));
    }

    #[test]
    fn what_was_seen_of_another_process_says_nothing() {
        let mut seen = SeenRecords::default();
        seen.suspect(&record("a", 7), 0);
        assert!(seen.accepts(&record("b", 1)));
        assert_eq!(seen.next_order(&ProcessIdentity::new("b", "p")), 0);
        seen.note(&record("b", 1));
        assert!(seen.accepts(&record("b", 1)));
    }

    proptest! {
        /// Whatever is seen in whatever order: what is believed is never older than anything seen.
        #[test]
        fn nothing_older_than_what_was_seen_is_believed(orders in prop::collection::vec(0u64..9, 1..9), then in 0u64..9) {
            let mut seen = SeenRecords::default();
            orders.iter().for_each(|order| seen.note(&record("a", *order)));
            let newest = orders.iter().max().copied().unwrap_or(0);
            prop_assert_eq!(seen.accepts(&record("a", then)), then >= newest);
            prop_assert_eq!(seen.next_order(&ProcessIdentity::new("a", "p")), newest + 1);
        }
    }
}
