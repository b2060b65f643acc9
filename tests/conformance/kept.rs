//! An instance in quarantine grants nothing new, and keeps what it has (P10, P14).

use std::time::Duration;

use redquorum::testing::conformance::{Ask, Content, Kind};
use redquorum::testing::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin, Reply};

use crate::generate::{Key, Step, token, value};
use crate::known::{TTL, ask, on_every_server_with, replies, text};
use crate::model::{Model, wall_us};

const LONGER: Duration = Duration::from_secs(60);

/// Of an instance that waits for another hour.
fn waits() -> AdmissionRecord {
    let vote_from_ms = wall_us() / 1_000 + 3_600_000;
    let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Flushed);
    AdmissionRecord { identity, vote_from_ms, longest_ttl_ms: 3_600_000, origin, order: 1 }
}

/// For longer than the keys are there.
fn extend(name: &str) -> Ask {
    Ask { ttl: LONGER, ..ask(Kind::Extend, name, 4096, true) }
}

/// What comes of `step` on an instance with this record, where the keys of these locks are there under the own value.
fn with_keys(record: &AdmissionRecord, there: &[&'static str], step: Step) -> Model {
    let set = |name: &&'static str| Step::SetIfAbsent(Key::Lock(name), value("", 1), TTL);
    let steps: Vec<Step> = there.iter().map(set).chain([step]).collect();
    on_every_server_with(Some(record), &steps)
}

fn lives_for(ttl: Duration) -> Content {
    text(&value("", 1), Some(ttl))
}

#[test]
fn a_key_that_is_there_is_extended_and_leaves_its_token() {
    let record = waits();
    let model = with_keys(&record, &["a"], Step::Asks(vec![extend("a")], Some(record.clone())));
    let replies = replies(&model);
    let near_an_hour = |left: Duration| left.abs_diff(Duration::from_secs(3_600)) < Duration::from_secs(20);
    assert!(matches!(&replies[..], [Reply::Kept { remaining }] if near_an_hour(*remaining)), "{replies:?}");
    let kept = text(&token(4096).to_wire(), None);
    assert_eq!(model.contents()[..2], [lives_for(LONGER), kept]);
}

/// It may have voted for another client before it forgot that.
#[test]
fn a_key_that_is_missing_is_not_set_and_leaves_no_token() {
    let record = waits();
    let model = with_keys(&record, &["a"], Step::Asks(vec![extend("b")], Some(record.clone())));
    let replies = replies(&model);
    assert!(matches!(&replies[..], [Reply::Refused(refusal)] if refusal.value.is_none()));
    let nothing = || Content::Nothing;
    assert_eq!(model.contents()[..4], [lives_for(TTL), nothing(), nothing(), nothing()]);
}

#[test]
fn nothing_new_is_granted_not_even_to_whom_has_the_key() {
    let record = waits();
    for there in [&[][..], &["a"]] {
        let acquire = vec![ask(Kind::Acquire, "a", 4096, true)];
        let model = with_keys(&record, there, Step::Asks(acquire, Some(record.clone())));
        assert!(matches!(replies(&model)[..], [Reply::NotAdmitted { remaining: Some(_) }]));
        assert_eq!(model.contents()[0], if there.is_empty() { Content::Nothing } else { lives_for(TTL) });
    }
}

/// The client knows the record of before whatever happened.
#[test]
fn nothing_is_kept_for_whom_names_another_record() {
    let record = waits();
    let former = AdmissionRecord { order: 0, ..record.clone() };
    for step in [
        Step::Asks(vec![extend("a")], Some(former.clone())),
        Step::Asks(vec![Ask { kind: Kind::Keep, ..extend("a") }], Some(former.clone())),
    ] {
        let model = with_keys(&record, &["a"], step);
        assert_eq!(replies(&model), [Reply::NotAdmitted { remaining: None }]);
        assert_eq!(model.contents()[..2], [lives_for(TTL), Content::Nothing]);
    }
}

#[test]
fn of_leases_that_are_renewed_together_those_are_extended_that_are_there() {
    let record = waits();
    let leases = vec![extend("b"), extend("a")];
    let model = with_keys(&record, &["a"], Step::Asks(leases, Some(record.clone())));
    let replies = replies(&model);
    assert!(matches!(&replies[..], [Reply::Refused(_), Reply::Kept { .. }]), "{replies:?}");
    assert_eq!([&model.contents()[0], &model.contents()[2]], [&lives_for(LONGER), &Content::Nothing]);
}
