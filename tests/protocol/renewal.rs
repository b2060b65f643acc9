//! When a lease is renewed, and when it is known that no quorum can have kept it (P19, P20).

use std::time::Duration;

use proptest::prelude::*;
use redquorum::testing::protocol::{
    InstanceId, InstanceSet, Instant, Lease, Quorum, Refusal, RenewalSchedule, Reply, Round,
};

use crate::support::{ALL, Kind, START, at, every_word, feed, terms};

fn lease_of(quorum: Quorum) -> Lease {
    let mut round = Round::acquire(quorum, terms(), START);
    feed(&mut round, &vec![Kind::Granted; quorum.instances()], at(1));
    Lease::from_won(&mut round, terms(), at(1)).unwrap()
}

fn quorums() -> impl Iterator<Item = Quorum> {
    (1..=7)
        .flat_map(|instances| (instances / 2 + 1..=instances).map(move |votes| Quorum::new(instances, votes).unwrap()))
}

/// The rule in other words: the instances that may have kept the key are fewer than a quorum.
fn no_quorum_has_key(quorum: Quorum, without: usize) -> bool {
    quorum.instances() - without < quorum.votes()
}

#[test]
fn a_lease_is_gone_as_soon_as_fewer_than_a_quorum_can_have_kept_it_by_all_replies() {
    for quorum in quorums().filter(|quorum| quorum.instances() <= 4) {
        every_word(&ALL, quorum.instances(), |word| {
            let mut lease = lease_of(quorum);
            let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
            feed(&mut round, word, at(301));
            lease.note_replies(&round);
            let refused = word.iter().filter(|kind| **kind == Kind::Refused).count();
            assert_eq!(lease.no_quorum_has_key(), no_quorum_has_key(quorum, refused), "{quorum:?} {word:?}");
        });
    }
}

#[test]
fn what_was_repaired_had_been_gone_and_what_is_silent_may_have_kept_it() {
    for quorum in quorums() {
        for repaired in 0..=quorum.instances() {
            for open in
                [None, Some(Reply::Unknown(redquorum::testing::protocol::Cause::TimedOut)), Some(Reply::Granted)]
            {
                let mut lease = lease_of(quorum);
                let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
                for (place, id) in InstanceId::all(quorum.instances()).enumerate() {
                    let reply = if place < repaired { Some(Reply::Repaired) } else { open.clone() };
                    if let Some(reply) = reply {
                        round.on_reply(id, reply, at(301));
                    }
                }
                lease.note_replies(&round);
                assert_eq!(
                    lease.no_quorum_has_key(),
                    no_quorum_has_key(quorum, repaired),
                    "{quorum:?} {repaired} {open:?}"
                );
            }
        }
    }
}

#[test]
fn instances_that_were_seen_without_the_key_count_once_each_and_with_those_that_say_so() {
    for quorum in quorums() {
        let mut lease = lease_of(quorum);
        let mut ids: Vec<InstanceId> = InstanceId::all(quorum.instances()).collect();
        let spare = ids.split_off(quorum.instances() - quorum.votes());
        for id in ids.iter().chain(&ids) {
            lease.note_missing(*id, at(100));
            assert!(!lease.no_quorum_has_key(), "{quorum:?}: a quorum may have it");
        }
        for id in &ids {
            lease.note_reply(*id, &Reply::Repaired, at(300), at(301));
            lease.note_missing(*id, at(200)); // told late
        }
        assert!(!lease.no_quorum_has_key(), "{quorum:?}: the same ones");
        let mut by_look = lease.clone();
        by_look.note_missing(spare[0], at(300));
        assert!(by_look.no_quorum_has_key(), "{quorum:?}");
        lease.note_reply(spare[0], &Reply::Repaired, at(300), at(301));
        assert!(lease.no_quorum_has_key(), "{quorum:?}");
    }
}

/// An instance is missing from the request whose answer says so to the answer that shows the key.
#[test]
fn absences_count_together_unless_one_was_over_before_the_other_was_asked() {
    let quorum = Quorum::majority(3).unwrap();
    let [first, second] = [InstanceId::new(0), InstanceId::new(1)];
    for (seen, asked_first, asked_second, counts) in [
        (299, Some(300), 310, false),
        (299, Some(300), 309, true), // the answer was on its way
        (299, Some(300), 299, true),
        (300, Some(300), 310, true), // both sent at once: who knows which came first
        (301, Some(300), 310, true),
        (299, None, 310, true),
    ] {
        let mut lease = lease_of(quorum);
        lease.note_missing(first, at(seen));
        if let Some(asked) = asked_first {
            lease.note_reply(first, &Reply::Granted, at(asked), at(asked + 10));
        }
        lease.note_missing(second, at(asked_second));
        assert_eq!(lease.no_quorum_has_key(), counts, "{seen} {asked_first:?} {asked_second}");
    }
}

/// Counter-example: a renewal and an extend were sent at once. Two of three said to the renewal that they had lost the key, one of
/// them behind the verdict; by then its answer to the extend, that it had the key, was taken in.
#[test]
fn a_repair_counts_although_a_later_answer_of_its_instance_was_taken_in_first() {
    let quorum = Quorum::majority(3).unwrap();
    let [first, second] = [InstanceId::new(0), InstanceId::new(1)];
    for (first_repaired, extended, counts) in [(300, 300, true), (300, 305, true), (200, 305, false)] {
        let mut lease = lease_of(quorum);
        lease.note_reply(first, &Reply::Repaired, at(first_repaired), at(first_repaired + 10));
        for id in [first, second] {
            lease.note_reply(id, &Reply::Granted, at(250), at(260));
            lease.note_reply(id, &Reply::Granted, at(extended), at(312));
        }
        assert!(!lease.no_quorum_has_key());
        for _ in 0..2 {
            lease.note_reply(second, &Reply::Repaired, at(300), at(311));
            assert_eq!(lease.no_quorum_has_key(), counts, "{first_repaired} {extended}");
        }
    }
}

/// By then a quorum has confirmed a round.
#[test]
fn what_was_over_before_a_round_that_a_quorum_confirmed_counts_no_more() {
    for (confirmed_at, counts) in [(203, true), (204, false)] {
        let mut lease = lease_of(Quorum::majority(3).unwrap());
        let [first, second, third] = [0, 1, 2].map(InstanceId::new);
        lease.note_reply(first, &Reply::Repaired, at(200), at(203));
        for id in [first, third] {
            lease.note_reply(id, &Reply::Granted, at(confirmed_at), at(confirmed_at + 3));
        }
        lease.note_reply(second, &Reply::Repaired, at(200), at(confirmed_at + 4)); // in the same round, and late
        assert_eq!(lease.no_quorum_has_key(), counts, "{confirmed_at}");
    }
}

#[test]
fn an_absence_that_was_over_is_not_joined_with_a_later_one() {
    let mut lease = lease_of(Quorum::majority(3).unwrap());
    let [first, second] = [0, 1].map(InstanceId::new);
    for id in [first, second] {
        lease.note_reply(id, &Reply::Granted, at(100), at(101));
    }
    lease.note_reply(second, &Reply::Granted, at(210), at(213));
    lease.note_missing(second, at(220));
    lease.note_reply(second, &Reply::Repaired, at(200), at(203));
    for (sent, reply) in [(205, Reply::Granted), (206, Reply::Repaired)] {
        lease.note_reply(first, &reply, at(sent), at(209));
    }
    assert!(!lease.no_quorum_has_key(), "the second had the key from 203 to 210");
}

/// One instance is never without the key twice at one moment.
#[test]
fn an_instance_that_is_repaired_again_and_again_counts_once() {
    let mut lease = lease_of(Quorum::majority(3).unwrap());
    let [first, second] = [InstanceId::new(0), InstanceId::new(1)];
    for sent in [300, 310, 320, 330] {
        lease.note_reply(first, &Reply::Repaired, at(sent), at(sent + 15));
        lease.note_reply(second, &Reply::Granted, at(sent), at(sent + 15));
        assert!(!lease.no_quorum_has_key(), "{sent}");
    }
    lease.note_missing(second, at(344));
    assert!(lease.no_quorum_has_key(), "it was without the key before the other had answered");
}

/// Counter-example: two of five were refused in one extend round, a third in the next; neither round was
/// won, and each was looked at alone.
#[test]
fn what_one_round_has_shown_counts_in_the_next() {
    let quorum = Quorum::majority(5).unwrap();
    let mut lease = lease_of(quorum);
    for (begun, missing) in [(100, [0, 1]), (200, [1, 2])] {
        assert!(!lease.no_quorum_has_key());
        let mut round = lease.begin_extend(quorum, terms(), at(begun)).unwrap();
        for id in missing {
            round.on_reply(InstanceId::new(id), Reply::Refused(Refusal::default()), at(begun + 1));
        }
        lease.note_replies(&round);
    }
    assert!(lease.no_quorum_has_key());
}

/// Counter-example: one of three was cut off when the lease was acquired, and came back as another one was cut off for longer than a
/// ttl. The lease was renewed on two at every moment, and lost when the third came back and had its key set again.
#[test]
fn an_absence_that_is_found_late_does_not_reach_back_over_the_time_in_which_nobody_was_asked() {
    for instances in [3, 5] {
        let quorum = Quorum::majority(instances).unwrap();
        let spare = instances - quorum.votes();
        // The first is there at all times, the next are cut off at first, and the last are there only at first.
        let (there_first, there_then) = (|place| place == 0 || place > spare, |place| place <= spare);
        for rounds in [1, 2] {
            let mut round = Round::acquire(quorum, terms(), START);
            for id in InstanceId::all(instances).filter(|id| there_first(id.index())) {
                round.on_reply(id, Reply::Granted, at(1));
            }
            let mut lease = Lease::from_won(&mut round, terms(), at(1)).unwrap();
            for number in 1..=rounds {
                for id in InstanceId::all(instances).filter(|id| there_then(id.index())) {
                    let is_repaired = number == 1 && !there_first(id.index());
                    let reply = if is_repaired { Reply::Repaired } else { Reply::Granted };
                    lease.note_reply(id, &reply, at(number * 300), at(number * 300 + 1));
                }
            }
            for id in InstanceId::all(instances).filter(|id| !there_then(id.index())) {
                lease.note_reply(id, &Reply::Repaired, at(1_000), at(1_001));
            }
            assert!(!lease.no_quorum_has_key(), "{instances} instances, {rounds} rounds");
        }
    }
}

/// Counter-example: the links of a client were cut one after the other, each for longer than a ttl. A renewal set the key again on
/// one of three and found it on the second; the third came back without it before the next one. At every moment two had it.
#[test]
fn a_lease_lives_whose_links_are_cut_one_after_the_other() {
    let quorum = Quorum::majority(3).unwrap();
    let mut lease = lease_of(quorum);
    for turn in 1..50 {
        let (now, back) = (turn * 300, usize::try_from(turn % 3).unwrap());
        let mut round = lease.begin_extend(quorum, terms(), at(now)).unwrap();
        // The one behind it is cut off.
        for (place, reply) in [(back, Reply::Repaired), ((back + 2) % 3, Reply::Granted)] {
            round.on_reply(InstanceId::new(place), reply, at(now + 10));
        }
        lease.note_replies(&round);
        assert!(!lease.no_quorum_has_key(), "turn {turn}");
        assert!(lease.settle(&mut round, at(now + 10)));
    }
    assert!(lease.absent().len() <= 1, "what is past is forgotten");
}

#[test]
fn instances_that_lose_the_key_one_after_another_and_are_repaired_in_between_do_not_end_a_lease() {
    let quorum = Quorum::majority(3).unwrap();
    let mut lease = lease_of(quorum);
    for turn in 1..50 {
        let mut round = lease.begin_extend(quorum, terms(), at(turn * 300)).unwrap();
        for (place, id) in InstanceId::all(3).enumerate() {
            let repaired = place as u64 == turn / 2 % 3 && turn % 2 == 0; // a round in between finds all of them
            round.on_reply(id, if repaired { Reply::Repaired } else { Reply::Granted }, at(turn * 300 + 1));
        }
        lease.note_replies(&round);
        assert!(!lease.no_quorum_has_key(), "{turn}");
        assert!(lease.settle(&mut round, at(turn * 300 + 1)));
        assert_eq!(lease.rests_on(), InstanceSet::first(3));
    }
    assert!(lease.absent().len() <= 1, "what is past is forgotten");
}

#[test]
fn a_lease_rests_on_those_that_granted_the_last_round_that_won_and_have_it_since() {
    let quorum = Quorum::majority(5).unwrap();
    let mut round = Round::acquire(quorum, terms(), START);
    feed(&mut round, &[Kind::Granted, Kind::Granted, Kind::Granted, Kind::NoneYet, Kind::Refused], at(1));
    let mut lease = Lease::from_won(&mut round, terms(), at(1)).unwrap();
    assert_eq!(lease.rests_on(), InstanceSet::first(3));
    round.on_reply(InstanceId::new(3), Reply::Granted, at(2));
    lease.note_replies(&round);
    assert_eq!(lease.rests_on(), InstanceSet::first(4), "a grant that came later");
    lease.note_missing(InstanceId::new(0), at(10));
    assert_eq!(lease.rests_on().len(), 3);
    let mut extend = lease.begin_extend(quorum, terms(), at(300)).unwrap();
    feed(&mut extend, &[Kind::NoneYet, Kind::Granted, Kind::Granted, Kind::Granted, Kind::NoneYet], at(301));
    lease.note_replies(&extend);
    assert!(lease.settle(&mut extend, at(301)));
    assert_eq!(lease.rests_on().len(), 3);
    extend.on_reply(InstanceId::new(0), Reply::Repaired, at(302));
    lease.note_replies(&extend);
    assert_eq!(lease.rests_on(), InstanceSet::first(4));
}

/// What an instance said to a request that was sent at one time, and answered at another.
type Answer = (usize, (u64, u64), Said);

/// The rule in other words: a moment at which so many were away by what they said, looked for among all moments.
fn may_all_have_been_away(said: &[Answer], instances: usize, most: usize) -> bool {
    let is_away = |instance: usize, moment: u64| {
        let of = || said.iter().enumerate().filter(|(_, (by, ..))| *by == instance);
        let is_covered = |(place, (_, (sent, answered), what)): (usize, &Answer)| {
            let again = of().find(|(later, (.., what))| *later > place && *what != Said::Missing);
            let over = match what {
                Said::There => return false,
                Said::Repaired => *answered,
                Said::Missing => again.map_or(u64::MAX, |(_, (_, (_, answered), _))| *answered),
            };
            moment == *sent || (*sent..over).contains(&moment)
        };
        of().any(is_covered)
    };
    let end = said.last().map_or(0, |(_, (_, answered), _)| *answered);
    (0..=end).any(|moment| (0..instances).filter(|instance| is_away(*instance, moment)).count() > most)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    There,
    Missing,
    Repaired,
}

#[test]
fn a_lease_that_is_gone_is_not_brought_back_by_a_round_that_would_win() {
    let quorum = Quorum::majority(3).unwrap();
    let mut lease = lease_of(quorum);
    let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
    for id in InstanceId::all(3) {
        round.on_reply(id, Reply::Repaired, at(301));
    }
    lease.note_replies(&round);
    assert_eq!(round.granted(), InstanceSet::first(3), "each counts as a grant (P10)");
    assert!(lease.no_quorum_has_key(), "and yet another client may have held the lock meanwhile");
}

proptest! {
    #[test]
    fn a_lease_is_gone_when_at_one_moment_too_many_were_without_it_by_what_they_said(
        instances in 3usize..6,
        said in prop::collection::vec((0usize..6, 0u64..4, prop::sample::select(&[Said::There, Said::There, Said::Missing, Said::Repaired][..])), 0..40),
    ) {
        let quorum = Quorum::majority(instances).unwrap();
        let mut lease = lease_of(quorum);
        let mut last = 0;
        let answer = |(place, (instance, takes, said)): (usize, (usize, u64, Said))| {
            let sent = place as u64 + 1;
            last = (sent + takes).max(last); // in the order in which they are heard
            (instance % instances, (sent, last), said)
        };
        let said: Vec<Answer> = said.into_iter().enumerate().map(answer).collect();
        for (count, (instance, (sent, answered), what)) in said.iter().enumerate() {
            let id = InstanceId::new(*instance);
            match what {
                Said::There => lease.note_reply(id, &Reply::Granted, at(*sent), at(*answered)),
                Said::Missing => lease.note_missing(id, at(*sent)),
                Said::Repaired => lease.note_reply(id, &Reply::Repaired, at(*sent), at(*answered)),
            }
            let expected = may_all_have_been_away(&said[..=count], instances, instances - quorum.votes());
            prop_assert_eq!(lease.no_quorum_has_key(), expected, "{:?}", &said[..=count]);
            if expected {
                return Ok(());
            }
        }
    }

    #[test]
    fn a_renewal_is_due_by_a_third_and_not_before_a_sixth_of_the_ttl(
        ttl_us in 5_000u64..100_000_000_000, start_ns in any::<u64>(),
    ) {
        let (ttl, start) = (Duration::from_micros(ttl_us), Instant::from_nanos(start_ns / 2));
        let due = RenewalSchedule::new(ttl).after_success(start);
        prop_assert!(due <= start.saturating_add(ttl / 3));
        prop_assert!(due >= start.saturating_add(ttl / 6), "never faster than the pace of failures");
        prop_assert_eq!(RenewalSchedule::new(ttl).after_failure(start), start.saturating_add(ttl / 10));
    }

    #[test]
    fn a_lease_whose_renewals_fail_is_tried_at_least_six_times_before_it_ends(ttl_ms in 50u64..100_000_000) {
        let ttl = Duration::from_millis(ttl_ms);
        let terms = redquorum::testing::protocol::LeaseTerms::new(ttl, 10_000).unwrap();
        let (plan, end) = (RenewalSchedule::new(ttl), terms.valid_until(START));
        let (mut now, mut tries) = (plan.after_success(START), 0);
        while now < end {
            tries += 1;
            now = plan.after_failure(now);
        }
        prop_assert!((6..=9).contains(&tries), "{tries}");
    }
}
