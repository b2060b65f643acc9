//! Replies in any order, twice, and late.

use proptest::prelude::*;
use redquorum::testing::protocol::{InstanceId, Instant, Quorum, Round, Verdict};

use crate::support::{ALL, Kind, START, at, terms};

/// A reply of an instance, some milliseconds after the one before.
type Event = (usize, Kind, u64);

fn events(instances: usize) -> impl Strategy<Value = Vec<Event>> {
    let kinds = prop::sample::select(&ALL[..6]);
    prop::collection::vec((0..instances, kinds, prop_oneof![Just(0), 0u64..400]), 0..24)
}

fn setting() -> impl Strategy<Value = (usize, usize, Vec<Event>)> {
    (1usize..=9).prop_flat_map(|instances| (Just(instances), instances / 2 + 1..=instances, events(instances)))
}

/// Which instances ever said so.
fn said(events: &[Event], fits: impl Fn(Kind) -> bool) -> Vec<bool> {
    let mut which = vec![false; 9];
    events.iter().filter(|(_, kind, _)| fits(*kind)).for_each(|(index, ..)| which[*index] = true);
    which
}

proptest! {
    #[test]
    fn a_verdict_never_changes_and_no_instance_votes_twice((instances, votes, events) in setting()) {
        let mut round = Round::acquire(Quorum::new(instances, votes).unwrap(), terms(), START);
        let mut now = START;
        let mut decided: Option<(Verdict, bool)> = None;
        for (fed, (index, kind, pause)) in events.iter().enumerate() {
            now = now.saturating_add(std::time::Duration::from_millis(*pause));
            let verdict = round.on_reply(InstanceId::new(*index), kind.reply().unwrap(), now);
            let past = &events[..=fed];
            if let Some(before) = decided {
                prop_assert_eq!((verdict, round.is_too_slow()), before);
            } else if verdict == Verdict::Won {
                let voters = said(past, |kind| kind == Kind::Granted).iter().filter(|said| **said).count();
                prop_assert!(voters >= votes, "{voters} of {votes}");
                prop_assert!(now < at(788), "P2");
            }
            if verdict != Verdict::Pending {
                decided = Some((verdict, round.is_too_slow()));
            }
            let voters = said(past, |kind| kind == Kind::Granted).iter().filter(|said| **said).count();
            prop_assert!(round.granted().len() <= voters);
            let may_hold = said(past, |kind| kind != Kind::NotSent);
            let heard = said(past, |_| true);
            for id in InstanceId::all(instances) {
                if may_hold[id.index()] || !heard[id.index()] {
                    // P5: whatever else the instance said before or after.
                    prop_assert!(round.must_release().contains(id), "{id} in {past:?}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_replies_that_come_together_does_not_matter(
        (instances, votes, events) in setting(), seed: u64, late in 0u64..1_000,
    ) {
        let mut one_each: Vec<Event> = Vec::new();
        for event in events {
            if one_each.iter().all(|earlier| earlier.0 != event.0) {
                one_each.push(event);
            }
        }
        let verdict = |events: &[Event], now: Instant| {
            let mut round = Round::acquire(Quorum::new(instances, votes).unwrap(), terms(), START);
            for (index, kind, _) in events {
                round.on_reply(InstanceId::new(*index), kind.reply().unwrap(), now);
            }
            (round.verdict(now), round.must_release(), round.granted())
        };
        let mut other = one_each.clone();
        other.sort_by_key(|event| (event.0 as u64).wrapping_mul(seed | 1).rotate_left(17));
        prop_assert_eq!(verdict(&one_each, at(late)), verdict(&other, at(late)));
    }
}

#[test]
fn nothing_sent_after_an_unknown_reply_does_not_make_the_key_certain_to_be_absent() {
    let mut round = Round::acquire(Quorum::majority(3).unwrap(), terms(), START);
    let id = InstanceId::new(0);
    round.on_reply(id, Kind::Unknown.reply().unwrap(), at(1));
    round.on_reply(id, Kind::NotSent.reply().unwrap(), at(2));
    assert!(round.must_release().contains(id));
}

#[test]
fn a_definite_reply_after_an_unknown_one_counts() {
    let mut round = Round::acquire(Quorum::majority(3).unwrap(), terms(), START);
    round.on_reply(InstanceId::new(0), Kind::Unknown.reply().unwrap(), at(1));
    round.on_reply(InstanceId::new(0), Kind::Granted.reply().unwrap(), at(2));
    assert_eq!(round.on_reply(InstanceId::new(1), Kind::Granted.reply().unwrap(), at(3)), Verdict::Won);
}

#[test]
fn a_reply_of_an_instance_that_is_not_configured_changes_nothing() {
    let mut round = Round::acquire(Quorum::majority(1).unwrap(), terms(), START);
    assert_eq!(round.on_reply(InstanceId::new(1), Kind::Granted.reply().unwrap(), at(1)), Verdict::Pending);
}
