//! When a lease is renewed, and when it is known that no quorum can have kept it (P19, P20).

use std::time::Duration;

use proptest::prelude::*;
use redquorum::FencingToken;
use redquorum::protocol::{InstanceId, InstanceSet, Instant, Lease, Quorum, RenewalPlan, Reply, Round};

use crate::support::{ALL, Kind, START, at, every_word, feed, terms};

fn lease_of(quorum: Quorum) -> Lease {
    let mut round = Round::acquire(quorum, terms(), START);
    feed(&mut round, &vec![Kind::Granted; quorum.instances()], at(1));
    Lease::from_won(&mut round, terms(), FencingToken::from_number(7).unwrap(), at(1)).unwrap()
}

fn quorums() -> impl Iterator<Item = Quorum> {
    (1..=7)
        .flat_map(|instances| (instances / 2 + 1..=instances).map(move |votes| Quorum::new(instances, votes).unwrap()))
}

/// The rule in other words: the instances that may have kept the key are fewer than a quorum.
fn is_gone(quorum: Quorum, without: usize) -> bool {
    quorum.instances() - without < quorum.votes()
}

#[test]
fn a_lease_is_gone_as_soon_as_fewer_than_a_quorum_can_have_kept_it_whatever_the_replies() {
    for quorum in quorums().filter(|quorum| quorum.instances() <= 4) {
        every_word(&ALL, quorum.instances(), |word| {
            let mut lease = lease_of(quorum);
            let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
            feed(&mut round, word, at(301));
            let refused = word.iter().filter(|kind| **kind == Kind::Refused).count();
            assert_eq!(lease.is_gone(&round), is_gone(quorum, refused), "{quorum:?} {word:?}");
        });
    }
}

#[test]
fn what_was_repaired_had_been_gone_and_what_is_silent_may_have_kept_it() {
    for quorum in quorums() {
        for repaired in 0..=quorum.instances() {
            for open in [None, Some(Reply::Unknown(redquorum::Cause::TimedOut)), Some(Reply::Granted)] {
                let mut lease = lease_of(quorum);
                let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
                for (place, id) in InstanceId::all(quorum.instances()).enumerate() {
                    let reply = if place < repaired { Some(Reply::Repaired) } else { open.clone() };
                    if let Some(reply) = reply {
                        round.on_reply(id, reply, at(301));
                    }
                }
                assert_eq!(lease.is_gone(&round), is_gone(quorum, repaired), "{quorum:?} {repaired} {open:?}");
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
            assert!(!lease.note_missing(*id, quorum, at(100)), "{quorum:?}: a quorum may have it");
        }
        let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
        assert!(!lease.is_gone(&round));
        for id in &ids {
            round.on_reply(*id, Reply::Repaired, at(301));
        }
        assert!(!lease.is_gone(&round), "{quorum:?}: the same ones");
        assert!(lease.clone().note_missing(spare[0], quorum, at(302)), "{quorum:?}");
        round.on_reply(spare[0], Reply::Repaired, at(302));
        assert!(lease.is_gone(&round), "{quorum:?}");
    }
}

#[test]
fn only_a_victory_that_was_begun_later_puts_right_what_was_seen_missing() {
    let quorum = Quorum::majority(3).unwrap();
    let [first, second] = [InstanceId::new(0), InstanceId::new(1)];
    for (seen, begun, is_won, is_right) in
        [(299, 300, true, true), (300, 300, true, false), (301, 300, true, false), (299, 300, false, false)]
    {
        let mut lease = lease_of(quorum);
        assert!(!lease.note_missing(first, quorum, at(seen)));
        let mut round = lease.begin_extend(quorum, terms(), at(begun)).unwrap();
        feed(&mut round, &[if is_won { Kind::Granted } else { Kind::Unknown }; 3], at(310));
        assert_eq!(lease.settle(&mut round, at(310)), is_won);
        assert_eq!(lease.note_missing(second, quorum, at(311)), !is_right, "seen {seen}, begun {begun}, won {is_won}");
    }
}

#[test]
fn a_lease_that_is_gone_is_not_brought_back_by_a_round_that_would_win() {
    let quorum = Quorum::majority(3).unwrap();
    let mut lease = lease_of(quorum);
    let mut round = lease.begin_extend(quorum, terms(), at(300)).unwrap();
    for id in InstanceId::all(3) {
        round.on_reply(id, Reply::Repaired, at(301));
    }
    assert_eq!(round.granted(), InstanceSet::first(3), "each counts as a grant (P10)");
    assert!(lease.is_gone(&round), "and yet another client may have held the lock meanwhile");
}

proptest! {
    #[test]
    fn a_renewal_is_due_by_a_third_and_not_before_a_sixth_of_the_ttl(
        ttl_us in 5_000u64..100_000_000_000, start_ns in any::<u64>(),
    ) {
        let (ttl, start) = (Duration::from_micros(ttl_us), Instant::from_nanos(start_ns / 2));
        let due = RenewalPlan::new(ttl).after_success(start);
        prop_assert!(due <= start.saturating_add(ttl / 3));
        prop_assert!(due >= start.saturating_add(ttl / 6), "never faster than the pace of failures");
        prop_assert_eq!(RenewalPlan::new(ttl).after_failure(start), start.saturating_add(ttl / 10));
    }

    #[test]
    fn a_lease_whose_renewals_fail_is_tried_at_least_six_times_before_it_ends(ttl_ms in 50u64..100_000_000) {
        let ttl = Duration::from_millis(ttl_ms);
        let terms = redquorum::protocol::Terms::new(ttl, 10_000).unwrap();
        let (plan, end) = (RenewalPlan::new(ttl), terms.valid_until(START));
        let (mut now, mut tries) = (plan.after_success(START), 0);
        while now < end {
            tries += 1;
            now = plan.after_failure(now);
        }
        prop_assert!((6..=9).contains(&tries), "{tries}");
    }
}
