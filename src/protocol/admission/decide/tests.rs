//! What a record means, for each record and each client that may meet.

use std::time::Duration;

use super::*;

const MAX_TTL: Duration = Duration::from_secs(10);

fn facts(uptime_s: u64) -> ProcessFacts {
    let identity = ProcessIdentity::new("run1", "repl1");
    ProcessFacts { identity, is_master: true, was_replica: false, was_flushed: false, uptime_s, now_ms: 1_000_000_500 }
}

fn record(identity: &str, max_ttl_ms: u64) -> Vec<u8> {
    format!("{identity} 1000000000 {max_ttl_ms} waits 7").into_bytes()
}

fn terms(max_ttl: Duration, quarantine: Duration) -> AdmissionTerms {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    AdmissionTerms { max_ttl_ms: ms(max_ttl), quarantine_ms: ms(quarantine) }
}

/// What a client makes of it that has seen no record yet.
fn decide_record(facts: &ProcessFacts, found: Option<&[u8]>, max_ttl: Duration) -> Result<RecordAction, NotUsable> {
    super::decide_record(facts, found, terms(max_ttl, max_ttl), &SeenRecords::default())
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
    let quarantine = Ok(RecordAction::Write { origin: RecordOrigin::Waits });
    assert_eq!(decide_record(&facts(99), Some(&ahead(10_001)), MAX_TTL), quarantine);
}

/// Flushed, and an older copy of the data came back: with a record of this very process.
#[test]
fn a_record_that_is_older_than_one_that_was_seen_means_quarantine_from_now() {
    let written = |order: u64| format!("run1/repl1 1000000000 10000 waits {order}").into_bytes();
    let mut seen = SeenRecords::default();
    seen.note(&AdmissionRecord::from_wire(&written(7)).unwrap());
    let ours = terms(MAX_TTL, MAX_TTL);
    let step = |order| super::decide_record(&facts(99), Some(&written(order)), ours, &seen);
    assert_eq!(step(6), Ok(RecordAction::Write { origin: RecordOrigin::Waits }));
    assert!(matches!((step(7), step(8)), (Ok(RecordAction::Keep(_)), Ok(RecordAction::Keep(_)))));
}

#[test]
fn any_other_record_means_quarantine_from_now() {
    let quarantine = Ok(RecordAction::Write { origin: RecordOrigin::Waits });
    for identity in ["run2/repl1", "run1/repl2", "run1", "", "run1/repl1 "] {
        assert_eq!(decide_record(&facts(99), Some(&record(identity, 10_000)), MAX_TTL), quarantine, "{identity}");
    }
    assert_eq!(decide_record(&facts(99), Some(b"\xff"), MAX_TTL), quarantine);
    assert_eq!(decide_record(&facts(1), Some(&record("run2/repl1", 10_000)), MAX_TTL), quarantine);
}

/// Its clock may have been set since: back, and a process that has voted looks young; forward, and it votes too soon.
#[test]
fn a_process_without_a_record_waits_from_now_however_young_it_says_that_it_is() {
    for uptime_s in 0..10 {
        let step = decide_record(&facts(uptime_s), None, MAX_TTL);
        assert_eq!(step, Ok(RecordAction::Write { origin: RecordOrigin::Waits }), "{uptime_s} s");
    }
}

#[test]
fn an_instance_that_has_lost_a_record_which_this_client_saw_is_not_blank_whichever_process_it_is() {
    for identity in ["run1/repl1", "run2/repl1"] {
        let mut seen = SeenRecords::default();
        seen.note(&AdmissionRecord::from_wire(&record(identity, 10_000)).unwrap());
        let step = super::decide_record(&facts(99), None, terms(MAX_TTL, MAX_TTL), &seen);
        assert_eq!(step, Ok(RecordAction::Write { origin: RecordOrigin::Waits }), "{identity}");
    }
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
    assert_eq!(decide_record(&facts(12), None, MAX_TTL), Ok(RecordAction::Write { origin: RecordOrigin::Blank }));
}

/// A young process restarts from disk, a key that it kept is extended, then it is flushed: its
/// start says nothing of when that key would have expired. And a cluster whose instances were
/// all flushed has been used.
#[test]
fn a_flushed_process_or_a_former_replica_waits_from_now_however_old_it_is() {
    let quarantine = Ok(RecordAction::Write { origin: RecordOrigin::Waits });
    for uptime_s in [1, 12] {
        assert_eq!(decide_record(&ProcessFacts { was_replica: true, ..facts(uptime_s) }, None, MAX_TTL), quarantine);
        assert_eq!(decide_record(&ProcessFacts { was_flushed: true, ..facts(uptime_s) }, None, MAX_TTL), quarantine);
    }
}

#[test]
fn facts_that_are_read_earlier_make_no_process_younger_or_older() {
    for later_ms in [0, 400, 499, 500, 1_000, 7_499, 7_500, 60_000] {
        let step = decide_record(&facts(3).at(facts(3).now_ms + later_ms), None, MAX_TTL);
        let is_old = later_ms >= 7_500;
        let origin = if is_old { RecordOrigin::Blank } else { RecordOrigin::Waits };
        assert_eq!(step, Ok(RecordAction::Write { origin }), "{later_ms}");
    }
}

#[test]
fn replicas_and_other_settings_are_refused() {
    assert_eq!(decide_record(&ProcessFacts { is_master: false, ..facts(1) }, None, MAX_TTL), Err(NotUsable::Replica));
    let other = |ms| decide_record(&facts(1), Some(&record("run1/repl1", ms)), MAX_TTL).unwrap_err();
    assert_eq!(other(5_000), NotUsable::ShortQuarantine { recorded_ms: 5_000, ours_ms: 10_000 });
    assert_eq!(other(20_000), NotUsable::OtherMaxTtl { recorded_ms: 20_000, ours_ms: 10_000 });
    assert!(other(5_000).to_string().contains("5000 ms") && other(20_000).to_string().contains("20000 ms"));
}

/// (the longest ttl, the quarantine) of two clients that meet: one has written the record.
#[test]
fn clients_share_an_instance_if_each_waits_for_what_the_other_asks_for() {
    let s = Duration::from_secs;
    let stages = [(10, 10), (10, 30), (30, 30)];
    for (one, other) in stages.into_iter().flat_map(|one| stages.map(|other| (one, other))) {
        let recorded = terms(s(one.0), s(one.1));
        let identity = ProcessIdentity::new("run1", "repl1");
        let origin = RecordOrigin::Waits;
        let record = AdmissionRecord { identity, vote_from_ms: 1, terms: recorded, origin, order: 7 };
        let ours = terms(s(other.0), s(other.1));
        let found = record.to_wire().into_bytes();
        let action = super::decide_record(&facts(99), Some(&found), ours, &SeenRecords::default());
        let fits = one.1 >= other.0 && other.1 >= one.0;
        assert_eq!(action.is_ok(), fits, "{one:?} {other:?}: {action:?}");
        match action {
            Ok(RecordAction::Keep(kept)) => assert_eq!((kept.terms, ours.covering(recorded)), (recorded, recorded)),
            Ok(RecordAction::Raise(raised)) => {
                assert_ne!(raised.terms, recorded);
                let covering = ours.covering(recorded);
                assert_eq!(raised, AdmissionRecord { terms: covering, ..record }, "nothing else changes");
            }
            other => assert!(!fits, "{other:?}"),
        }
    }
}

/// Written by a client that waits for 30 s; one that waits for 10 s must not cut that short.
#[test]
fn a_long_quarantine_is_not_taken_for_a_clock_that_was_set_back() {
    let ahead = |ms: u64| format!("run1/repl1 {} 10000 waits 7 30000", facts(99).now_ms + ms).into_bytes();
    let step = |ms| decide_record(&facts(99), Some(&ahead(ms)), MAX_TTL);
    assert!(matches!(step(30_000), Ok(RecordAction::Keep(_))));
    assert!(matches!(step(30_001), Ok(RecordAction::Write { .. })));
}

#[test]
fn only_instances_that_are_all_untouched_and_without_tokens_were_never_used() {
    let look = |origin, now_ms, has_tokens| {
        let (identity, terms) = (ProcessIdentity::new("r", "p"), AdmissionTerms::of_max_ttl(10_000));
        let record = AdmissionRecord { identity, vote_from_ms: 2_000, terms, origin, order: 7 };
        FirstLook { record, now_ms, has_tokens }
    };
    let unused = || look(RecordOrigin::Blank, 1_000, false);
    assert!(never_used(&[unused(), unused()], 2));
    assert!(!never_used(&[unused()], 2), "one was not reached");
    assert!(!never_used(&[unused(), look(RecordOrigin::Blank, 2_000, false)], 2), "it votes already");
    assert!(
        !never_used(&[unused(), look(RecordOrigin::Blank, 1_000, true)], 2),
        "it voted before its clock was set back"
    );
    for origin in [RecordOrigin::Waits, RecordOrigin::Opened] {
        assert!(!never_used(&[unused(), look(origin, 1_000, false)], 2), "{origin:?}");
    }
}
