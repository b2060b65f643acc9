//! What a record means, for each record and each client that may meet.

use std::time::Duration;

use super::*;

const MAX_TTL: Duration = Duration::from_secs(10);

/// What the instance's clock shows.
const NOW_MS: u64 = 1_000_000_500;

fn facts() -> ProcessFacts {
    ProcessFacts { identity: ProcessIdentity::new("run1", "repl1"), is_master: true }
}

fn record(identity: &str, longest_ttl_ms: u64) -> Vec<u8> {
    format!("{identity} 1000000000 {longest_ttl_ms} waits 7").into_bytes()
}

fn terms(max_ttl: Duration, quarantine: Duration) -> AdmissionTerms {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    AdmissionTerms { max_ttl_ms: ms(max_ttl), quarantine_ms: ms(quarantine) }
}

/// What a client makes of it that has seen no record yet.
fn decide_record(facts: &ProcessFacts, found: Option<&[u8]>, max_ttl: Duration) -> Result<RecordAction, NotUsable> {
    super::decide_record(facts, (found, NOW_MS), terms(max_ttl, max_ttl), &SeenRecords::default())
}

#[test]
fn a_record_for_this_process_stands() {
    let step = decide_record(&facts(), Some(&record("run1/repl1", 10_000)), MAX_TTL);
    assert!(matches!(step, Ok(RecordAction::Keep(kept)) if kept.vote_from_ms == 1_000_000_000));
}

/// A clock that was set back does not keep an instance from voting for long. But clients wait for their own quarantine where that is
/// longer than the ttls that the record allows, and for the time that it allowed before.
#[test]
fn a_record_from_later_stands_unless_it_has_the_instance_wait_for_too_long() {
    for (later_ms, wait_ms, stands) in
        [(0, 10_000, true), (1, 10_000, false), (3_600_000, 10_000, false), (0, 30_000, true), (1, 30_000, false)]
    {
        // Written when the clock showed so much more.
        let written_ms = NOW_MS + later_ms;
        let found = format!("run1/repl1 {} 10000 waits {written_ms}", written_ms + wait_ms);
        let step = decide_record(&facts(), Some(found.as_bytes()), MAX_TTL);
        assert_eq!(matches!(step, Ok(RecordAction::Keep(_))), stands, "{found}: {step:?}");
        assert!(stands || step == Ok(RecordAction::Write));
    }
}

/// Flushed, and an older copy of the data came back: with a record of this very process.
#[test]
fn a_record_that_is_older_than_one_that_was_seen_means_quarantine_from_now() {
    let written = |order: u64| format!("run1/repl1 1000000000 10000 waits {order}").into_bytes();
    let mut seen = SeenRecords::default();
    seen.note(&AdmissionRecord::from_wire(&written(7)).unwrap());
    let ours = terms(MAX_TTL, MAX_TTL);
    let step = |order| super::decide_record(&facts(), (Some(&written(order)), NOW_MS), ours, &seen);
    assert_eq!(step(6), Ok(RecordAction::Write));
    assert!(matches!((step(7), step(8)), (Ok(RecordAction::Keep(_)), Ok(RecordAction::Keep(_)))));
}

/// With any times: they are no reason to refuse a client.
#[test]
fn any_other_record_means_quarantine_from_now() {
    for identity in ["run2/repl1", "run1/repl2", "run1", "", "run1/repl1 "] {
        for longest_ttl_ms in [1, 10_000, 30_000] {
            let step = decide_record(&facts(), Some(&record(identity, longest_ttl_ms)), MAX_TTL);
            assert_eq!(step, Ok(RecordAction::Write), "{identity}");
        }
    }
    assert_eq!(decide_record(&facts(), Some(b"\xff"), MAX_TTL), Ok(RecordAction::Write));
}

/// However new it is: servers that were all restarted empty look the same as new ones.
#[test]
fn a_process_without_a_record_waits_from_now() {
    assert_eq!(decide_record(&facts(), None, MAX_TTL), Ok(RecordAction::Write));
}

#[test]
fn replicas_and_other_settings_are_refused() {
    assert_eq!(decide_record(&ProcessFacts { is_master: false, ..facts() }, None, MAX_TTL), Err(NotUsable::Replica));
    let other = |ms| decide_record(&facts(), Some(&record("run1/repl1", ms)), MAX_TTL).unwrap_err();
    assert_eq!(other(5_000), NotUsable::TtlAboveRecord { recorded_ms: 5_000, ours_ms: 10_000 });
    assert_eq!(other(20_000), NotUsable::QuarantineBelowRecord { recorded_ms: 20_000, ours_ms: 10_000 });
    for (refused, recorded) in [(other(5_000), "5000 ms"), (other(20_000), "20000 ms")] {
        let message = refused.to_string();
        for word in [recorded, "10000 ms", "'redquorum admission set --quarantine 10000ms'"] {
            assert!(message.contains(word), "{message}");
        }
    }
}

/// (the longest ttl, the quarantine) of a client, and the record's time, in seconds.
#[test]
fn a_client_asks_for_no_more_than_the_record_allows_and_waits_for_no_less() {
    let s = Duration::from_secs;
    for (ours, recorded) in
        [(10, 10), (10, 30), (30, 30)].into_iter().flat_map(|ours| [10, 20, 30].map(|it| (ours, it)))
    {
        let found = record("run1/repl1", recorded * 1_000);
        let terms = terms(s(ours.0), s(ours.1));
        let action = super::decide_record(&facts(), (Some(&found), NOW_MS), terms, &SeenRecords::default());
        assert_eq!(action.is_ok(), ours.0 <= recorded && recorded <= ours.1, "{ours:?} {recorded}: {action:?}");
    }
}

#[test]
fn a_client_that_only_looks_takes_any_time() {
    for longest_ttl_ms in [5_000, 30_000] {
        let found = record("run1/repl1", longest_ttl_ms);
        let found = (Some(found.as_slice()), NOW_MS);
        let action = decide_as_recorded(&facts(), found, terms(MAX_TTL, MAX_TTL), &SeenRecords::default());
        assert!(matches!(action, Ok(RecordAction::Keep(_))), "{action:?}");
    }
}
