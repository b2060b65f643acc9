//! Instances that may have forgotten locks do not vote (P14, P15, P16).
//!
//! Every instance holds one record: which process it was written for, and from which instant, by
//! the instance's own clock, that process may vote. Whatever makes an instance forget locks also
//! takes the record away, or leaves one that names another process: a restart gives a new run id, a
//! promotion or a resynchronisation a new replication id, a flush removes the record.

use std::time::Duration;

use crate::protocol::admission::record::{AdmissionRecord, ProcessIdentity, RecordOrigin, SeenRecords};
use crate::protocol::round::cause::NotUsable;

/// How far two readings of the start of one process can lie apart: a second for the cut-off of the
/// uptime, and one because the server counts it by a clock that it reads now and then.
///
/// Whoever writes a record for a young process must see that this much is left before its
/// `vote_from_ms`, by the instance's clock at the time of the writing.
pub const START_UNCERTAINTY_MS: u64 = 2_000;

/// What a server reports about itself when a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Which life of which process.
    pub identity: ProcessIdentity,
    /// Whether it is a master now.
    pub is_master: bool,
    /// Whether it has been a replica in this life, as far as it reports.
    pub was_replica: bool,
    /// Whether any of its data was flushed in this life, as far as it reports.
    pub was_flushed: bool,
    /// How long it has been up, in whole seconds as it counts them.
    pub uptime_s: u64,
    /// Its clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl ProcessFacts {
    /// The same facts at a later instant of the instance's clock: its start does not move.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> Self {
        let passed_s = (now_ms / 1000).saturating_sub(self.now_ms / 1000);
        Self { uptime_s: self.uptime_s.saturating_add(passed_s), now_ms, ..self.clone() }
    }
}

/// What a client does about the record that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// The record names this process: go by it.
    Keep(AdmissionRecord),
    /// A record must be written, provided that the one that was found is still there.
    Write {
        /// From when on the process may vote; `None`, or an instant that has passed by the time of
        /// the writing, stands for `max_ttl` after the writing.
        vote_from_ms: Option<u64>,
        /// How the record comes to be.
        origin: RecordOrigin,
    },
}

/// Decides what a record means for a client with this `max_ttl` (P15).
///
/// `found` is what the instance has under the record's key, `None` if nothing; `seen` is what the client
/// remembers of its records.
///
/// # Errors
/// [`NotUsable`] if the instance must not be used at all.
pub fn decide_record(
    facts: &ProcessFacts,
    found: Option<&[u8]>,
    max_ttl: Duration,
    seen: &SeenRecords,
) -> Result<RecordAction, NotUsable> {
    if !facts.is_master {
        return Err(NotUsable::Replica);
    }
    let ours_ms = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
    let Some(found) = found else {
        return Ok(without_record(facts, ours_ms));
    };
    let restarted = RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits };
    let Some(record) = AdmissionRecord::from_wire(found) else {
        return Ok(restarted); // somebody wrote over it: as good as another process
    };
    if record.max_ttl_ms != ours_ms {
        return Err(NotUsable::OtherMaxTtl { recorded_ms: record.max_ttl_ms, ours_ms });
    }
    // No record is written for later than `max_ttl` ahead: the clock was set back, and the instance
    // would sit out the difference. `max_ttl` from now is long enough whatever it forgot.
    let clock_went_back = record.quarantine_left(facts.now_ms) > max_ttl;
    let stands = record.identity == facts.identity && !clock_went_back && seen.accepts(&record);
    Ok(if stands { RecordAction::Keep(record) } else { restarted })
}

fn without_record(facts: &ProcessFacts, max_ttl_ms: u64) -> RecordAction {
    // The start is reported in whole seconds, cut off: it may have been up to a second later. What was
    // granted before it has expired `max_ttl` after it.
    let started_ms = (facts.now_ms / 1000).saturating_sub(facts.uptime_s).saturating_add(1).saturating_mul(1000);
    let started_ms = started_ms.min(facts.now_ms);
    let vote_from_ms = started_ms.saturating_add(max_ttl_ms);
    // Another reading of the same start may have been earlier by `START_UNCERTAINTY_MS`: from then on
    // the process may have voted, and what took its record away may have taken those votes too.
    let surely_never_voted = facts.now_ms.saturating_add(START_UNCERTAINTY_MS) < vote_from_ms;
    if facts.was_replica || facts.was_flushed {
        // What it forgot may be younger than the process: a key that was there before the start and
        // extended since, or a grant of the master before. Nor is it blank, whatever others are.
        RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits }
    } else if facts.now_ms >= vote_from_ms {
        // Whatever was granted before its start has expired.
        RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Blank }
    } else if surely_never_voted {
        RecordAction::Write { vote_from_ms: Some(vote_from_ms), origin: RecordOrigin::Waits }
    } else {
        RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits }
    }
}

/// Whether nobody has ever used a set of instances, so that they may vote at once (P15).
///
/// `records` are what *all* configured instances answered, with their clocks in milliseconds, to
/// reads begun after every one of the records had been written. An instance that voted has a record
/// that is not untouched, and a won round needs a quorum of those: only if every instance of that
/// quorum forgot it would all be untouched.
#[must_use]
pub fn never_used(records: &[(AdmissionRecord, u64)], instances: usize) -> bool {
    records.len() == instances && records.iter().all(|(record, now_ms)| record.is_untouched(*now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TTL: Duration = Duration::from_secs(10);

    fn facts(uptime_s: u64) -> ProcessFacts {
        let identity = ProcessIdentity::new("run1", "repl1");
        ProcessFacts {
            identity,
            is_master: true,
            was_replica: false,
            was_flushed: false,
            uptime_s,
            now_ms: 1_000_000_500,
        }
    }

    fn record(identity: &str, max_ttl_ms: u64) -> Vec<u8> {
        format!("{identity} 1000000000 {max_ttl_ms} waits 7").into_bytes()
    }

    /// What a client makes of it that has seen no record yet.
    fn decide_record(facts: &ProcessFacts, found: Option<&[u8]>, max_ttl: Duration) -> Result<RecordAction, NotUsable> {
        super::decide_record(facts, found, max_ttl, &SeenRecords::default())
    }

    #[test]
    fn a_record_for_this_process_stands() {
        let step = decide_record(&facts(99), Some(&record("run1/repl1", 10_000)), MAX_TTL);
        assert!(matches!(step, Ok(RecordAction::Keep(kept)) if kept.vote_from_ms == 1_000_000_000));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_keep_an_instance_from_voting_for_long() {
        let ahead = |ms: u64| format!("run1/repl1 {} 10000 waits 7", facts(99).now_ms + ms).into_bytes();
        assert!(matches!(decide_record(&facts(99), Some(&ahead(10_000)), MAX_TTL), Ok(RecordAction::Keep(_))));
        let quarantine = Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits });
        assert_eq!(decide_record(&facts(99), Some(&ahead(10_001)), MAX_TTL), quarantine);
    }

    /// Flushed, and an older copy of the data came back: with a record of this very process.
    #[test]
    fn a_record_that_is_older_than_one_that_was_seen_means_quarantine_from_now() {
        let written = |order: u64| format!("run1/repl1 1000000000 10000 waits {order}").into_bytes();
        let mut seen = SeenRecords::default();
        seen.note(&AdmissionRecord::from_wire(&written(7)).unwrap());
        let step = |order| super::decide_record(&facts(99), Some(&written(order)), MAX_TTL, &seen);
        assert_eq!(step(6), Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits }));
        assert!(matches!((step(7), step(8)), (Ok(RecordAction::Keep(_)), Ok(RecordAction::Keep(_)))));
    }

    #[test]
    fn any_other_record_means_quarantine_from_now() {
        let quarantine = Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits });
        for identity in ["run2/repl1", "run1/repl2", "run1", "", "run1/repl1 "] {
            assert_eq!(decide_record(&facts(99), Some(&record(identity, 10_000)), MAX_TTL), quarantine, "{identity}");
        }
        assert_eq!(decide_record(&facts(99), Some(b"\xff"), MAX_TTL), quarantine);
        assert_eq!(decide_record(&facts(1), Some(&record("run2/repl1", 10_000)), MAX_TTL), quarantine);
    }

    #[test]
    fn a_young_process_votes_max_ttl_after_its_start() {
        // 1 000 000.5 s now, up for 3 s: started in the second before 999 998.
        let step = decide_record(&facts(3), None, MAX_TTL);
        assert_eq!(step, Ok(RecordAction::Write { vote_from_ms: Some(1_000_008_000), origin: RecordOrigin::Waits }));
        // Started in this very second: not later than now.
        let step = decide_record(&facts(0), None, MAX_TTL);
        assert_eq!(step, Ok(RecordAction::Write { vote_from_ms: Some(1_000_010_500), origin: RecordOrigin::Waits }));
    }

    #[test]
    fn a_process_that_may_have_voted_before_a_flush_is_not_young() {
        // Admitted at an uptime of 0 s it votes from 10.0 s on. Flushed at 10.4 s, it is read as
        // started up to a second later: voting again at 10.5 s it would forget what it granted.
        let flushed = ProcessFacts { now_ms: 1_000_010_400, ..facts(9) };
        assert_eq!(
            decide_record(&flushed, None, MAX_TTL),
            Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits })
        );
    }

    /// All instances restart empty at once, and the first client looks shortly before the locks of
    /// before have expired: blank instances would be opened at once.
    #[test]
    fn a_process_is_blank_only_once_everything_of_before_its_start_has_expired() {
        for uptime_s in 0..12 {
            let step = decide_record(&facts(uptime_s), None, MAX_TTL);
            let blank = matches!(step, Ok(RecordAction::Write { origin: RecordOrigin::Blank, .. }));
            assert_eq!(blank, uptime_s > 10, "{uptime_s} s");
        }
    }

    #[test]
    fn an_old_process_without_a_record_is_blank() {
        assert_eq!(
            decide_record(&facts(12), None, MAX_TTL),
            Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Blank })
        );
    }

    /// A young process restarts from disk, a key that it kept is extended, then it is flushed: its
    /// start says nothing of when that key would have expired. And a cluster whose instances were
    /// all flushed has been used.
    #[test]
    fn a_flushed_process_or_a_former_replica_waits_from_now_however_old_it_is() {
        let quarantine = Ok(RecordAction::Write { vote_from_ms: None, origin: RecordOrigin::Waits });
        for uptime_s in [1, 12] {
            assert_eq!(
                decide_record(&ProcessFacts { was_replica: true, ..facts(uptime_s) }, None, MAX_TTL),
                quarantine
            );
            assert_eq!(
                decide_record(&ProcessFacts { was_flushed: true, ..facts(uptime_s) }, None, MAX_TTL),
                quarantine
            );
        }
    }

    #[test]
    fn a_record_that_is_read_later_does_not_make_a_process_younger() {
        for later_ms in [0, 400, 499, 500, 1_000, 7_499, 60_000] {
            let read_later = facts(3).at(facts(3).now_ms + later_ms);
            let step = decide_record(&read_later, None, MAX_TTL);
            let surely_young = later_ms < 5_500;
            let expected = Some(1_000_008_000).filter(|_| surely_young);
            assert!(
                matches!(step, Ok(RecordAction::Write { vote_from_ms, .. }) if vote_from_ms == expected),
                "{later_ms}: {step:?}"
            );
        }
    }

    #[test]
    fn replicas_and_other_settings_are_refused() {
        assert_eq!(
            decide_record(&ProcessFacts { is_master: false, ..facts(1) }, None, MAX_TTL),
            Err(NotUsable::Replica)
        );
        let other = decide_record(&facts(1), Some(&record("run1/repl1", 5_000)), MAX_TTL);
        assert_eq!(other, Err(NotUsable::OtherMaxTtl { recorded_ms: 5_000, ours_ms: 10_000 }));
        assert!(other.unwrap_err().to_string().contains("5000 ms"));
    }

    #[test]
    fn only_instances_that_are_all_untouched_were_never_used() {
        let blank = |vote_from_ms| AdmissionRecord {
            identity: ProcessIdentity::new("r", "p"),
            vote_from_ms,
            max_ttl_ms: 10_000,
            origin: RecordOrigin::Blank,
            order: 7,
        };
        let untouched = (blank(2_000), 1_000);
        let aged = (blank(1_000), 1_000);
        let opened = (AdmissionRecord { origin: RecordOrigin::Opened, ..blank(2_000) }, 1_000);
        assert!(never_used(&[untouched.clone(), untouched.clone()], 2));
        assert!(!never_used(std::slice::from_ref(&untouched), 2));
        assert!(!never_used(&[untouched.clone(), aged], 2));
        assert!(!never_used(&[untouched, opened], 2));
    }
}
