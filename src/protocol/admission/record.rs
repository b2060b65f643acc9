//! The admission record of an instance, and what a client remembers of those that it has seen (P14, P15).

use std::time::Duration;

/// How much of an id is recorded. Both are random hexadecimal digits, so that two processes that
/// follow each other share this much of one with a probability of 2^-64. The record goes out with
/// every request, and instances compare it with every vote.
const ID_DIGITS: usize = 16;

/// A record with a larger order was written by hand. The scripts count in doubles, and the writer of
/// the next record must be able to count on.
const MOST_ORDER: u64 = 1 << 52;

/// Which process, and which life of it: the beginnings of `run_id/master_replid`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity(String);

impl ProcessIdentity {
    /// The identity, from what the server reports about itself.
    pub fn new(run_id: &str, replication_id: &str) -> Self {
        let beginning = |id: &str| id.get(..ID_DIGITS).unwrap_or(id).to_owned();
        Self(format!("{}/{}", beginning(run_id), beginning(replication_id)))
    }

    /// The identity as it is recorded.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a record came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordOrigin {
    /// A client has found no valid record: the process may have forgotten locks.
    Waits,
    /// A flush of any database was pushed to the writer.
    Flushed,
    /// An operator has said that no lock was held, so that the process voted at once.
    Opened,
}

impl RecordOrigin {
    /// The word in the record.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Flushed => "flushed",
            Self::Opened => "opened",
        }
    }

    /// The origin with this word.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        [Self::Waits, Self::Flushed, Self::Opened].into_iter().find(|origin| origin.word().as_bytes() == word)
    }
}

/// No client uses a longer ttl: a record that allows one was not written by a client, and makes none wait (P29).
pub const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The two times of a client, in milliseconds (P29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionTerms {
    /// The longest ttl that it uses.
    pub max_ttl_ms: u64,
    /// How long it makes an instance wait that may have forgotten locks, at least. Not less than the longest ttl of any
    /// client.
    pub quarantine_ms: u64,
}

/// The admission record of an instance: `identity vote_from_ms longest_ttl_ms origin order`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionRecord {
    /// Whom it was written for.
    pub identity: ProcessIdentity,
    /// From when on the process may vote, in milliseconds of the instance's clock.
    pub vote_from_ms: u64,
    /// The longest ttl that votes under this record are given for.
    pub longest_ttl_ms: u64,
    /// How it came to be.
    pub origin: RecordOrigin,
    /// Larger than that of every record of this process that its writer knew of. Of one that begins a quarantine it is not less than
    /// the instance's clock in milliseconds: so a writer that knows of none writes no older one either. One that only allows a longer
    /// ttl than the one that it replaces follows that directly: a client that doubts the former doubts this one too.
    pub order: u64,
}

impl AdmissionRecord {
    /// Reads a record; anything else is `None`.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(wire).ok()?.split(' ');
        let identity = ProcessIdentity(words.next()?.to_owned());
        let vote_from_ms = words.next()?.parse().ok()?;
        let longest_ttl_ms = words.next()?.parse().ok()?;
        let origin = RecordOrigin::of_word(words.next()?.as_bytes())?;
        let order = words.next()?.parse().ok().filter(|order| *order <= MOST_ORDER)?;
        let record = Self { identity, vote_from_ms, longest_ttl_ms, origin, order };
        // The scripts compare the text: one that reads the same but is written otherwise would
        // never match.
        (record.to_wire().as_bytes() == wire).then_some(record)
    }

    /// The record as it is stored.
    pub fn to_wire(&self) -> String {
        let Self { identity, vote_from_ms, longest_ttl_ms, origin, order } = self;
        format!("{} {vote_from_ms} {longest_ttl_ms} {} {order}", identity.as_str(), origin.word())
    }

    /// How long ago it was flushed at an instant of the instance's clock, if it waits, or has waited, for that: the order of a record
    /// that begins a quarantine is the instance's clock then.
    pub fn flushed_ago(&self, now_ms: u64) -> Option<Duration> {
        (self.origin == RecordOrigin::Flushed).then(|| Duration::from_millis(now_ms.saturating_sub(self.order)))
    }

    /// How long the process must still sit out at an instant of the instance's clock.
    pub const fn quarantine_left(&self, now_ms: u64) -> Duration {
        Duration::from_millis(self.vote_from_ms.saturating_sub(now_ms))
    }
}

/// What a client remembers of the records of the process that it saw last, across its connections.
///
/// A record that is older than one that was seen came back with an old copy of the data: what was
/// granted since is missing from it. The instant from which a record lets vote says nothing about its
/// age: clients wait for different times.
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
    /// instance's clock: from now on only a record that was written after that is accepted. An old copy may
    /// be one that this client had not seen yet.
    pub fn suspect(&mut self, record: &AdmissionRecord, latest_ms: u64) {
        self.note(record);
        self.suspect_up_to = self.suspect_up_to.max(Some(record.order.max(latest_ms)));
    }

    /// Whether a record can be one that was written last.
    pub fn accepts(&self, record: &AdmissionRecord) -> bool {
        let Some(newest) = self.of(record) else { return true };
        // Two of the same order are not ordered: each may have been written by a client that did not
        // know of the other.
        let is_latest = newest.order < record.order || newest == record;
        is_latest && self.suspect_up_to.is_none_or(|suspect| suspect < record.order)
    }

    /// The least order of a record that is written next for this process.
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
        AdmissionRecord { identity, vote_from_ms: 5, longest_ttl_ms: 10, origin: RecordOrigin::Waits, order }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written_and_anything_else_is_none() {
        let read = |wire: &str| AdmissionRecord::from_wire(wire.as_bytes());
        for origin in [RecordOrigin::Waits, RecordOrigin::Flushed, RecordOrigin::Opened] {
            let record = AdmissionRecord { origin, ..record("a", 11) };
            assert_eq!(read(&record.to_wire()), Some(record));
        }
        for whole in ["a/b 7 9 opened 11".to_owned(), format!("a/b 7 9 waits {MOST_ORDER}")] {
            assert_eq!(read(&whole).map(|record| record.to_wire()), Some(whole));
        }
        for other in ["", " ", " x", " 11 ", " 11 more", " 11 10", "  11"] {
            assert_eq!(read(&format!("a/b 7 9 waits{other}")), None, "{other}");
        }
        assert_eq!(read("a/b 7 9 blank 11"), None);
        // Otherwise no client could write a valid record, and the process would never vote again.
        assert_eq!(read(&format!("a/b 7 9 waits {}", MOST_ORDER + 1)), None);
        for other in ["01000 10000 waits 7", "+1000 10000 waits 7", "1000 10000 waits 07", "1000 010000 waits 7"] {
            assert_eq!(read(&format!("run1/repl1 {other}")), None, "written otherwise: {other}");
        }
    }

    #[test]
    fn of_two_records_of_one_order_only_the_one_that_was_seen_is_believed() {
        let mut seen = SeenRecords::default();
        seen.note(&record("a", 7));
        let other = AdmissionRecord { vote_from_ms: 4, ..record("a", 7) };
        assert!(seen.accepts(&record("a", 7)) && !seen.accepts(&other));
        seen.note(&other);
        assert!(seen.accepts(&record("a", 7)) && !seen.accepts(&other), "also if that was looked at");
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
        /// Records seen in any order: the accepted one is never older than any that was seen.
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
