//! What a caller is told of a defeat: never "held" for "down" or the other way round.

use std::time::Duration;

use redquorum::testing::protocol::Cause;
use redquorum::testing::protocol::{InstanceId, Quorum, Refusal, Reply, Round, RoundFailure, Verdict};

use crate::support::{ALL, Kind, START, acquired, at, every_word, terms};

fn refused_by(value: &str, expires_ms: u64) -> Reply {
    let expires_in = Some(Duration::from_millis(expires_ms));
    Reply::Refused(Refusal { value: Some(value.into()), expires_in, ..Refusal::default() })
}

fn not_admitted(secs: Option<u64>) -> Reply {
    Reply::NotAdmitted { remaining: secs.map(Duration::from_secs) }
}

fn granted() -> Reply {
    Reply::Granted
}

fn not_sent() -> Reply {
    Reply::NotSent(Cause::Silent)
}

fn unknown() -> Reply {
    Reply::Unknown(Cause::TimedOut)
}

/// The name of a defeat.
const fn name(defeat: &RoundFailure) -> &'static str {
    match defeat {
        RoundFailure::Contended(_) => "contended",
        RoundFailure::SplitVote(_) => "split",
        RoundFailure::NoQuorum => "no quorum",
        RoundFailure::InQuarantine(_) => "in quarantine",
        RoundFailure::TooSlow => "too slow",
        RoundFailure::StaleToken => "stale",
    }
}

/// What five instances replied (those that are not named have not yet), and the defeat.
fn defeat(replies: Vec<Reply>) -> RoundFailure {
    let mut round = Round::acquire(Quorum::majority(5).unwrap(), terms(), START);
    for (index, reply) in replies.into_iter().enumerate() {
        round.on_reply(InstanceId::new(index), reply, at(1));
    }
    assert_eq!(round.verdict(at(1)), Verdict::Lost);
    RoundFailure::of(&round)
}

#[test]
fn every_kind_of_defeat_has_its_name() {
    let held = || refused_by("x", 500);
    let stale = || Kind::Stale.reply().unwrap();
    let table = [
        ("held by one client on all", "contended", vec![held(), held(), held(), held(), held()]),
        ("held, the rest has not answered", "contended", vec![held(), held(), held()]),
        ("held, the rest is down", "contended", vec![held(), held(), held(), not_sent(), unknown()]),
        ("held by a quorum, the rest is ours", "contended", vec![held(), held(), held(), granted(), granted()]),
        ("one in the way, two are down", "split", vec![held(), granted(), granted(), unknown(), not_sent()]),
        ("two others", "split", vec![held(), held(), refused_by("y", 1), refused_by("y", 2), refused_by("z", 3)]),
        ("another and we", "split", vec![held(), held(), refused_by("y", 9), granted(), granted()]),
        ("all down", "no quorum", vec![not_sent(), not_sent(), not_sent(), not_sent(), not_sent()]),
        ("a majority hangs", "no quorum", vec![granted(), granted(), unknown(), unknown(), unknown()]),
        ("held by few, most down", "no quorum", vec![held(), held(), not_sent(), unknown(), not_sent()]),
        ("granted by few, most down", "no quorum", vec![granted(), unknown(), not_sent(), not_sent()]),
        (
            "most in quarantine",
            "in quarantine",
            vec![granted(), granted(), not_admitted(Some(1)), not_admitted(None), not_admitted(None)],
        ),
        (
            "down and in quarantine",
            "in quarantine",
            vec![granted(), granted(), unknown(), not_sent(), not_admitted(Some(1))],
        ),
        ("stale alone", "stale", vec![stale(), stale(), stale(), granted(), granted()]),
    ];
    for (situation, expected, replies) in table {
        let found = defeat(replies);
        assert_eq!(name(&found), expected, "{situation}: {found:?}");
    }
}

/// What three instances reply to a round whose rival stood in the way of the round before for long enough.
fn defeat_again(replies: [Reply; 3]) -> RoundFailure {
    let quorum = Quorum::majority(3).unwrap();
    let mut before = Round::acquire(quorum, terms(), START);
    for index in 0..3 {
        before.on_reply(InstanceId::new(index), if index == 0 { refused_by("x", 500) } else { unknown() }, at(1));
    }
    let mut round = Round::acquire(quorum, terms(), at(30)).repeating(&before, &[], Duration::from_millis(25));
    for (index, reply) in replies.into_iter().enumerate() {
        round.on_reply(InstanceId::new(index), reply, at(31));
    }
    RoundFailure::of(&round)
}

/// Counter-example: each of several that tried a free lock was told that it is held, by the value of a client that had crashed.
#[test]
fn a_key_that_stays_on_too_few_instances_to_keep_a_quorum_from_others_is_no_holders() {
    let (held, other) = (|| refused_by("x", 500), || refused_by("y", 500));
    for (expected, replies) in [
        ("contended", [held(), granted(), unknown()]),
        ("contended", [held(), granted(), not_sent()]),
        ("contended", [held(), granted(), not_admitted(None)]),
        ("contended", [other(), held(), not_sent()]),
        ("split", [held(), granted(), other()]),
        ("split", [held(), other(), refused_by("z", 1)]),
    ] {
        let found = defeat_again(replies.clone());
        assert_eq!(name(&found), expected, "{replies:?}: {found:?}");
    }
}

#[test]
fn contention_names_the_most_agreed_holder_and_the_earliest_expiry() {
    let replies = vec![refused_by("x", 900), refused_by("y", 70), refused_by("x", 800), granted(), granted()];
    let RoundFailure::SplitVote(contention) = defeat(replies) else { panic!("it is split") };
    assert_eq!(contention.most_named.value.as_deref(), Some(b"x".as_slice()));
    assert_eq!(contention.earliest_expiry, Some(Duration::from_millis(70)));
    assert_eq!(contention.refused_by.len(), 3);
}

#[test]
fn quarantine_ends_when_as_many_as_are_missing_may_vote() {
    let replies = vec![granted(), not_admitted(Some(9)), not_admitted(Some(2)), not_admitted(Some(5)), unknown()];
    assert_eq!(defeat(replies), RoundFailure::InQuarantine(Some(Duration::from_secs(5))));
    let replies = vec![granted(), not_admitted(None), not_admitted(Some(2)), not_admitted(None), unknown()];
    assert_eq!(defeat(replies), RoundFailure::InQuarantine(None));
}

/// Counter-example: a process that had stood still found five answers, the first of which decided as
/// too late; four had refused, and the advice was a longer ttl.
#[test]
fn a_round_that_came_too_late_is_too_slow_only_if_with_more_time_it_could_have_been_won() {
    let held = || refused_by("x", 500);
    let table = [
        ("granted too late", "too slow", vec![granted(), granted(), granted()]),
        ("granted too late, two refused", "too slow", vec![granted(), granted(), granted(), held(), held()]),
        ("two granted, the rest has not answered", "too slow", vec![granted(), granted()]),
        ("four refused", "contended", vec![granted(), held(), held(), held(), held()]),
        ("refused, then four refused", "contended", vec![held(), held(), held(), held(), granted()]),
        ("three are down", "no quorum", vec![granted(), not_sent(), unknown(), unknown(), granted()]),
        (
            "three in quarantine",
            "in quarantine",
            vec![granted(), granted(), not_admitted(None), not_admitted(None), not_admitted(None)],
        ),
    ];
    for (situation, expected, replies) in table {
        let mut round = Round::acquire(Quorum::majority(5).unwrap(), terms(), START);
        for (index, reply) in replies.into_iter().enumerate() {
            assert_eq!(round.on_reply(InstanceId::new(index), reply, at(788)), Verdict::Lost);
        }
        assert!(round.is_too_slow());
        let found = RoundFailure::of(&round);
        assert_eq!(name(&found), expected, "{situation}: {found:?}");
    }
}

#[test]
fn held_is_never_said_of_instances_that_are_down_nor_down_of_a_lock_that_is_held() {
    every_word(&ALL, 5, |word| {
        let mut round = acquired(word);
        if round.verdict(at(1)) != Verdict::Lost {
            return;
        }
        let count = |kinds: &[Kind]| word.iter().filter(|kind| kinds.contains(kind)).count();
        let down = count(&[Kind::NotSent, Kind::Unknown]);
        let refused = count(&[Kind::Refused]);
        match RoundFailure::of(&round) {
            RoundFailure::Contended(_) | RoundFailure::SplitVote(_) => assert!(refused > 0 && down < 3, "{word:?}"),
            RoundFailure::NoQuorum => assert!(refused < 3 && down >= 3, "{word:?}"),
            RoundFailure::InQuarantine(_) => assert!(down + count(&[Kind::NotAdmitted]) >= 3 && down < 3, "{word:?}"),
            RoundFailure::StaleToken => assert!(refused == 0 && count(&[Kind::Stale]) > 0, "{word:?}"),
            RoundFailure::TooSlow => panic!("it was in time: {word:?}"),
        }
    });
}
