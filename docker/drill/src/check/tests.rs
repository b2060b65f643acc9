//! Histories written by hand, with what must be found in them.

use std::time::Duration;

use super::rules::{BESIDE_WRITER, STALE_WRITE, TOKEN_ORDER, TWO_HOLDERS, VALIDITY};
use super::{CheckLimits, Judgement, READ, availability, leases};
use crate::clock::{MILLI, Nanos};
use crate::event::{DenialReason, Event, EventKind, parse};

const LIMITS: CheckLimits =
    CheckLimits { ttl: Duration::from_millis(100), drift: Duration::from_millis(3), waiting: None };

fn event(at: u64, who: &str, kind: EventKind) -> Event {
    Event { at: at * MILLI, who: who.to_owned(), kind }
}

fn grant(at: u64, who: &str, until: u64, token: u64) -> Event {
    let (resource, valid_until): (_, Nanos) = ("r".to_owned(), until * MILLI);
    event(at, who, EventKind::Grant { resource, lease: 1, asked: (at - 1) * MILLI, valid_until, token: Some(token) })
}

fn stop(at: u64, who: &str) -> Event {
    event(at, who, EventKind::Stop { lease: 1, lost: false })
}

fn write(at: u64, client: &str, token: u64) -> Event {
    let (resource, client) = ("r".to_owned(), client.to_owned());
    event(at, "referee", EventKind::Write { resource, client, lease: 1, token: Some(token), accepted: true })
}

fn found(history: &[Event]) -> Vec<&'static str> {
    Judgement::of(history, LIMITS).violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn one_after_the_other_is_fine() {
    let history = [grant(10, "a", 100, 1), write(15, "a", 1), stop(50, "a"), grant(50, "b", 140, 2), write(60, "b", 2)];
    assert!(found(&history).is_empty());
}

#[test]
fn two_holders_at_once_are_found() {
    assert_eq!(found(&[grant(10, "a", 100, 1), grant(60, "b", 150, 2)]), [TWO_HOLDERS]);
}

fn reads(at: u64, who: &str, until: u64) -> Event {
    let (resource, valid_until): (_, Nanos) = (format!("r{READ}"), until * MILLI);
    event(at, who, EventKind::Grant { resource, lease: 1, asked: (at - 1) * MILLI, valid_until, token: None })
}

#[test]
fn readers_may_be_there_together_and_beside_no_writer() {
    assert!(found(&[reads(10, "a", 100), reads(20, "b", 100), grant(100, "c", 150, 1)]).is_empty());
    assert_eq!(found(&[reads(10, "a", 100), grant(60, "b", 150, 1)]), [BESIDE_WRITER]);
    assert_eq!(found(&[grant(10, "a", 100, 1), reads(60, "b", 70)]), [BESIDE_WRITER]);
    assert!(found(&[grant(10, "a", 100, 1), stop(50, "a"), reads(50, "b", 120)]).is_empty());
}

#[test]
fn a_lease_ends_with_its_validity_also_for_one_who_was_killed_or_hung() {
    assert!(found(&[grant(10, "a", 100, 1), grant(100, "b", 150, 2), stop(120, "a")]).is_empty());
    assert!(found(&[grant(10, "a", 100, 1), grant(101, "b", 150, 2)]).is_empty());
}

#[test]
fn an_extend_prolongs_what_is_relied_on() {
    let extend = event(50, "a", EventKind::Extend { lease: 1, valid_until: 140 * MILLI });
    assert_eq!(found(&[grant(10, "a", 100, 1), extend, grant(120, "b", 150, 2)]), [TWO_HOLDERS]);
}

#[test]
fn a_long_lease_is_not_hidden_by_a_short_one_within_it() {
    let history = [grant(10, "a", 100, 1), grant(20, "b", 110, 2), stop(30, "b"), grant(60, "c", 150, 3)];
    assert_eq!(found(&history), [TWO_HOLDERS, TWO_HOLDERS]);
}

#[test]
fn a_later_lease_needs_a_larger_token() {
    let second = |token| [grant(10, "a", 100, 5), stop(50, "a"), grant(60, "b", 150, token)];
    assert!(found(&second(6)).is_empty());
    assert_eq!(found(&second(5)), [TOKEN_ORDER]);
    assert_eq!(found(&second(4)), [TOKEN_ORDER]);
}

#[test]
fn a_write_after_that_of_a_later_holder_is_stale() {
    let with = |last: Event| [grant(10, "a", 100, 1), grant(110, "b", 200, 2), write(120, "b", 2), last];
    assert_eq!(found(&with(write(130, "a", 1))), [STALE_WRITE]);
    let mut refused = write(130, "a", 1);
    if let EventKind::Write { accepted, .. } = &mut refused.kind {
        *accepted = false;
    }
    assert!(found(&with(refused)).is_empty());
}

#[test]
fn a_late_write_before_the_next_holder_writes_is_not_stale() {
    assert!(
        found(&[grant(10, "a", 100, 1), grant(110, "b", 200, 2), write(111, "a", 1), write(112, "b", 2)]).is_empty()
    );
}

#[test]
fn more_validity_than_the_ttl_gives_is_found() {
    assert!(found(&[grant(10, "a", 107, 1)]).is_empty());
    assert_eq!(found(&[grant(10, "a", 108, 1)]), [VALIDITY]);
}

#[test]
fn availability_is_told_by_phase() {
    let denied = |at, answer| {
        let asked = (at - 5) * MILLI;
        event(at, "b", EventKind::Denied { resource: "r".to_owned(), asked, answer, cause: "i1 is down".to_owned() })
    };
    let history = [
        grant(10, "a", 100, 1),
        stop(20, "a"),
        event(30, "drill", EventKind::Fault),
        denied(40, DenialReason::Failed),
        denied(45, DenialReason::Held),
        event(50, "drill", EventKind::Healed),
        grant(70, "b", 160, 2),
        stop(80, "b"),
    ];
    let (marks, told) = availability(&history, &leases(&history));
    assert_eq!((marks.fault, marks.healed), (30 * MILLI, 50 * MILLI));
    assert_eq!((told.before.share, told.during.share, told.after.share), (Some(1.0), Some(0.0), Some(1.0)));
    assert_eq!((told.during.failed, told.during.held), (1, 1));
    assert_eq!((told.during.longest_gap_ms, told.during.slowest_failure_ms), (20.0, 5.0));
    assert_eq!((told.recovery_ms, told.cause.as_deref()), (Some(20.0), Some("i1 is down")));
}

#[test]
fn a_log_is_read_as_it_was_written_and_other_lines_are_left_out() {
    let event = grant(10, "a", 100, 1);
    let line = serde_json::to_string(&event).unwrap();
    assert_eq!(parse(&format!("starting..\n{line}\nhalf of a li")), [event]);
}
