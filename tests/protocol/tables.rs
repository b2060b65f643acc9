//! Every combination of replies at every clock reading that makes a difference (P2, P4, P5, P9).

use redquorum::testing::protocol::{InstanceId, Instant, Lease, Quorum, Round, Verdict};

use crate::support::{ALL, Kind, START, at, every_word, feed, just_before, terms};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Acquire,
    /// Of a lease that is valid until 500 ms after the start.
    Extend,
    Release,
}

impl RequestKind {
    fn round(self, quorum: Quorum) -> Round {
        match self {
            Self::Acquire => Round::acquire(quorum, terms(), START),
            Self::Extend => Round::extend(quorum, terms(), at(500), START),
            Self::Release => Round::release(quorum, START),
        }
    }

    /// When a victory is still of use: the rule in milliseconds, worked out by hand.
    const fn is_late(self, now: Instant) -> bool {
        match self {
            Self::Acquire => now.as_nanos() >= at(788).as_nanos(),
            Self::Extend => now.as_nanos() >= at(500).as_nanos(),
            Self::Release => false,
        }
    }
}

/// The rule, without the library: a quorum that granted in time wins; what cannot become one, or
/// not in time, is lost.
fn rule(votes: usize, word: &[Kind], late: bool) -> Verdict {
    let count = |wanted: Kind| word.iter().filter(|kind| **kind == wanted).count();
    match (count(Kind::Granted), count(Kind::NoneYet)) {
        _ if late => Verdict::Lost,
        (granted, _) if granted >= votes => Verdict::Won,
        (granted, open) if granted + open < votes => Verdict::Lost,
        _ => Verdict::Pending,
    }
}

/// Before; just inside and just past the least validity of an acquire; the same for the former
/// validity of an extend; past every validity.
const READINGS: [Instant; 6] = [START, just_before(500), at(500), just_before(788), at(788), at(988)];

fn check(kind: RequestKind, votes: usize, word: &[Kind]) {
    let quorum = Quorum::new(word.len(), votes).unwrap();
    for now in READINGS {
        let context = || format!("{kind:?}, {votes} votes, {word:?}, {now:?}");
        let mut round = kind.round(quorum);
        feed(&mut round, word, now);
        let expected = rule(votes, word, kind.is_late(now));
        assert_eq!(round.verdict(now), expected, "{}", context());
        if kind.is_late(now) && rule(votes, word, false) != Verdict::Lost {
            assert!(round.is_too_slow(), "the clock lost it: {}", context());
        }
        for id in InstanceId::all(word.len()) {
            let kind = word[id.index()];
            assert_eq!(round.must_release().contains(id), kind != Kind::NotSent, "P5: {}", context());
            assert_eq!(round.granted().contains(id), kind == Kind::Granted, "P5: {}", context());
        }
        if kind == RequestKind::Acquire {
            let lease = Lease::from_won(&mut round, terms(), now);
            assert_eq!(lease.map(|lease| lease.valid_until()), (expected == Verdict::Won).then_some(at(988)));
        }

        // The same replies at once, looked at later: a verdict stays, what was open may be too late.
        let mut round = kind.round(quorum);
        feed(&mut round, word, START);
        let expected = match rule(votes, word, false) {
            Verdict::Pending => rule(votes, word, kind.is_late(now)),
            decided => decided,
        };
        assert_eq!(round.verdict(now), expected, "looked at later: {}", context());
    }
}

fn check_all(alphabet: &[Kind], instances: usize) {
    for kind in [RequestKind::Acquire, RequestKind::Extend, RequestKind::Release] {
        for votes in instances / 2 + 1..=instances {
            every_word(alphabet, instances, |word| check(kind, votes, word));
        }
    }
}

#[test]
fn up_to_four_instances_decide_by_the_rule_with_all_replies() {
    (1..=4).for_each(|instances| check_all(&ALL, instances));
}

#[test]
fn five_instances_decide_by_the_rule_with_all_replies() {
    for kind in [RequestKind::Acquire, RequestKind::Extend, RequestKind::Release] {
        every_word(&ALL, 5, |word| check(kind, 3, word));
    }
}

#[test]
fn more_instances_and_larger_quorums_decide_by_the_rule() {
    (5..=7).for_each(|instances| check_all(&[Kind::Granted, Kind::Unknown, Kind::NoneYet], instances));
}

/// P30: every pair of quorums of two lists, as bits.
#[test]
fn quorums_of_lists_that_differ_by_one_instance_share_an_instance() {
    for count in 1..8_u32 {
        let votes = |count: u32| u32::try_from(Quorum::majority(count as usize).unwrap().votes()).unwrap();
        let quorums = |count: u32| (0..1_u32 << count).filter(move |set| set.count_ones() == votes(count));
        let pairs = quorums(count).flat_map(|one| quorums(count + 1).map(move |other| (one, other)));
        assert!(pairs.into_iter().all(|(one, other)| one & other != 0), "{count} and one more");
    }
}
