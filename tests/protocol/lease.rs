//! A lease over its life (P8, P9).

use std::time::Duration;

use proptest::prelude::*;
use redquorum::testing::protocol::{ExtendRejected, InstanceId, InstanceSet, Instant, Lease, LeaseTerms, Quorum};

use crate::support::{ALL, Kind, START, acquired, at, feed, just_before, terms};

fn quorum() -> Quorum {
    Quorum::majority(3).unwrap()
}

/// A lease of three instances, the last of which was not reached.
fn lease() -> Lease {
    let mut round = acquired(&[Kind::Granted, Kind::Granted, Kind::NotSent]);
    Lease::from_won(&mut round, terms(), at(1)).unwrap()
}

fn extended(lease: &mut Lease, begun: Instant, kinds: &[Kind], ended: Instant) -> bool {
    let mut round = lease.begin_extend(quorum(), lease.terms(), begun).unwrap();
    feed(&mut round, kinds, ended);
    lease.settle(&mut round, ended)
}

const WON: [Kind; 3] = [Kind::Granted, Kind::NoneYet, Kind::Granted];

#[test]
fn a_lease_is_valid_until_the_last_nanosecond_and_not_after() {
    let lease = lease();
    assert_eq!(lease.valid_until(), at(988));
    assert!(lease.is_valid(just_before(988)) && !lease.is_valid(at(988)));
    assert_eq!(lease.remaining(at(2_000)), Duration::ZERO);
}

#[test]
fn an_extend_moves_the_validity_from_its_own_start() {
    let mut lease = lease();
    assert!(extended(&mut lease, at(300), &WON, at(400)));
    assert_eq!(lease.valid_until(), at(1_288));
}

#[test]
fn an_extend_that_is_confirmed_too_late_does_not_bring_the_lease_back() {
    let mut lease = lease();
    assert!(!extended(&mut lease, at(900), &WON, at(988)));
    assert_eq!(lease.valid_until(), at(988));
    assert!(extended(&mut self::lease(), at(900), &WON, just_before(988)));
}

/// Counter-example: the verdict fell in time, but was settled with a clock that had been read before.
/// Meanwhile a client asked, was told that the lease is over, and then it was valid again.
#[test]
fn a_verdict_that_fell_in_time_but_is_settled_too_late_does_not_bring_the_lease_back() {
    let mut lease = lease();
    let mut round = lease.begin_extend(quorum(), terms(), at(900)).unwrap();
    feed(&mut round, &WON, just_before(988));
    assert!(!lease.is_valid(at(988)));
    assert!(!lease.settle(&mut round, at(989)));
    assert!(!lease.is_valid(at(989)));
}

#[test]
fn a_lost_lease_cannot_be_extended() {
    let mut lease = lease();
    assert_eq!(lease.begin_extend(quorum(), terms(), at(988)).unwrap_err(), ExtendRejected::Lost);
    assert!(lease.begin_extend(quorum(), terms(), just_before(988)).is_ok());
}

#[test]
fn an_extend_never_shortens() {
    let mut lease = lease();
    let shorter = LeaseTerms::new(Duration::from_millis(999), 10_000).unwrap();
    assert_eq!(lease.begin_extend(quorum(), shorter, at(1)).unwrap_err(), ExtendRejected::WouldShorten);
    let longer = LeaseTerms::new(Duration::from_secs(2), 10_000).unwrap();
    let mut round = lease.begin_extend(quorum(), longer, at(1)).unwrap();
    feed(&mut round, &[Kind::Unknown; 3], at(2));
    assert!(!lease.settle(&mut round, at(2)));
    // Instances may keep the key for two seconds now; one second would end it before.
    assert_eq!(lease.begin_extend(quorum(), terms(), at(3)).unwrap_err(), ExtendRejected::WouldShorten);
}

#[test]
fn an_extend_that_wins_out_of_order_moves_nothing_back() {
    let mut lease = lease();
    let mut first = lease.begin_extend(quorum(), terms(), at(100)).unwrap();
    assert!(extended(&mut lease, at(200), &WON, at(210)));
    feed(&mut first, &WON, at(220));
    lease.settle(&mut first, at(220));
    assert_eq!(lease.valid_until(), at(1_188));
}

#[test]
fn an_extend_that_was_begun_makes_every_instance_one_to_release() {
    let mut lease = lease();
    assert!(!lease.release_targets().contains(InstanceId::new(2)), "nothing was sent to it");
    assert!(lease.begin_extend(quorum(), terms(), at(1)).is_ok());
    assert_eq!(lease.release_targets(), InstanceSet::first(3));
}

#[test]
fn an_unknown_or_late_instance_is_one_to_release() {
    let mut round = acquired(&[Kind::Granted, Kind::Granted, Kind::Granted, Kind::Unknown, Kind::NoneYet]);
    let lease = Lease::from_won(&mut round, terms(), at(1)).unwrap();
    assert_eq!(lease.release_targets(), InstanceSet::first(5));
    let also = [InstanceId::new(6)].into_iter().collect();
    assert_eq!(lease.add_release_targets(also).release_targets().len(), 6);
}

proptest! {
    #[test]
    fn once_lost_a_lease_stays_lost_and_its_validity_never_moves_back(
        rounds in prop::collection::vec((0u64..500, prop::array::uniform3(prop::sample::select(&ALL[..])), 0u64..300), 1..30),
    ) {
        let mut lease = lease();
        let mut now = START;
        let mut lost = false;
        for (pause, kinds, takes) in rounds {
            now = now.saturating_add(Duration::from_millis(pause));
            let before = lease.valid_until();
            lost |= now >= before;
            match lease.begin_extend(quorum(), terms(), now) {
                Err(refused) => prop_assert!(lost && refused == ExtendRejected::Lost),
                Ok(mut round) => {
                    prop_assert!(!lost);
                    let begun = now;
                    now = now.saturating_add(Duration::from_millis(takes));
                    feed(&mut round, &kinds, now);
                    let granted = kinds.iter().filter(|kind| **kind == Kind::Granted).count();
                    let should_win = granted >= 2 && now < before;
                    prop_assert_eq!(lease.settle(&mut round, now), should_win);
                    let moved = begun.saturating_add(Duration::from_millis(988));
                    prop_assert_eq!(lease.valid_until(), if should_win { moved.max(before) } else { before });
                }
            }
            lost |= now >= lease.valid_until();
            prop_assert_eq!(lease.is_valid(now), !lost);
        }
    }
}
