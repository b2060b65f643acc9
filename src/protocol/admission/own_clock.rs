//! Whether it was one's own clock that stood still (P17).
//!
//! A machine that was paused or moved may have a clock that did not count the time: then the clocks of
//! all instances seem to have jumped forward, all by the same.

use std::time::Duration;

use crate::protocol::admission::clock_watch::{ClockWatch, Jump};

/// What comparing the clocks of a client's instances shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpedClock {
    /// One's own stood still, for so long at the most.
    Own(Duration),
    /// An instance shows that one's own went on.
    Instances,
    /// Too few have answered.
    Unknown,
}

/// Decides whose clock jumped, by the watches over those instances that answered after the jump was
/// noticed.
///
/// It was one's own if a quorum of at least two instances jumped, all by what can be the same, and none
/// shows that it did not.
pub fn which_clock_jumped<'a>(watches: impl Iterator<Item = &'a ClockWatch> + Clone, quorum: usize) -> JumpedClock {
    let jumps = || watches.clone().filter_map(ClockWatch::jumped);
    let common = jumps().reduce(|one, other| Jump {
        after: one.after.max(other.after),
        least: one.least.max(other.least),
        most: one.most.min(other.most),
    });
    let Some(common) = common else { return JumpedClock::Unknown };
    let shows_none = |watch: &ClockWatch| watch.jumped().is_none() && !watch.leaves_room_for(common);
    if common.least > common.most || watches.clone().any(shows_none) {
        return JumpedClock::Instances;
    }
    if jumps().count() < quorum.max(2) {
        return JumpedClock::Unknown;
    }
    // Rather too long: the client's leases then end too early.
    let most = jumps().map(|jump| jump.most).max().unwrap_or_default();
    JumpedClock::Own(Duration::from_nanos(u64::try_from(most).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Instant;
    use proptest::prelude::*;

    /// A watch over a clock that was sampled before and after the client's clock stood still, each time
    /// within so many ms.
    fn watch(stood_still_ms: u64, stepped_ms: u64, trips_ms: [u64; 2]) -> ClockWatch {
        let [before, after] = trips_ms;
        let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_millis(before), before * 500);
        let sent = 500;
        let instance_ms = sent + stood_still_ms + stepped_ms;
        let (sent, received) = (Instant::from_millis(sent), Instant::from_millis(sent + after));
        watch.observe(sent, received, instance_ms * 1_000 + after * 500);
        watch
    }

    fn decide(watches: &[ClockWatch]) -> JumpedClock {
        which_clock_jumped(watches.iter(), 3)
    }

    fn is_ours(watches: &[ClockWatch], really: u64) -> bool {
        matches!(decide(watches), JumpedClock::Own(most) if most.as_millis() >= u128::from(really))
    }

    #[test]
    fn the_same_jump_on_all_that_answer_is_ones_own() {
        for stood_still in [12, 5_000] {
            let all = [watch(stood_still, 0, [1, 1]); 5];
            assert!(is_ours(&all, stood_still));
            assert!(is_ours(&all[..3], stood_still), "two did not answer");
            assert_eq!(decide(&all[..2]), JumpedClock::Unknown);
        }
    }

    #[test]
    fn one_instance_that_went_on_with_us_shows_that_ours_went_on() {
        let mut all = [watch(0, 5_000, [1, 1]); 5];
        all[3] = watch(0, 0, [1, 1]);
        assert_eq!(decide(&all), JumpedClock::Instances);
        assert_eq!(decide(&all[2..4]), JumpedClock::Instances, "with any other answer");
    }

    #[test]
    fn jumps_that_differ_are_not_ours() {
        let all = [watch(0, 5_000, [1, 1]), watch(0, 4_900, [1, 1]), watch(0, 5_000, [1, 1])];
        assert_eq!(decide(&all), JumpedClock::Instances);
    }

    /// Its replies take so long that a jump of that size does not show.
    #[test]
    fn an_instance_that_could_have_jumped_unseen_shows_nothing() {
        let near = watch(12, 0, [1, 1]);
        let far = watch(12, 0, [80, 80]);
        assert_eq!(far.jumped(), None);
        assert!(is_ours(&[near, near, near, far, far], 12));
        assert_eq!(decide(&[near, near, far, far, far]), JumpedClock::Unknown);
    }

    /// The first reply after the standstill was slow, and hid it; the next shows it.
    #[test]
    fn a_slow_reply_in_between_does_not_make_the_jump_seem_smaller() {
        let near = watch(40, 0, [1, 1]);
        let mut other = watch(40, 0, [1, 70]);
        assert_eq!(other.jumped(), None);
        other.observe(Instant::from_millis(600), Instant::from_millis(601), 640_500);
        assert!(other.jumped().is_some());
        assert!(is_ours(&[near, near, near, other, other], 40));
    }

    /// Its connection broke with the standstill, and it is another process now.
    #[test]
    fn an_instance_that_was_not_watched_before_shows_nothing() {
        let near = watch(5_000, 0, [1, 1]);
        let mut fresh = ClockWatch::begin(10_000, Instant::from_millis(550), Instant::from_millis(551), 5_550_500);
        fresh.observe(Instant::from_millis(560), Instant::from_millis(561), 5_560_500);
        assert!(is_ours(&[near, near, near, fresh, fresh], 5_000));
        let mut earlier = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_millis(1), 500);
        earlier.observe(Instant::from_millis(560), Instant::from_millis(561), 560_500);
        assert_eq!(decide(&[near, near, near, fresh, earlier]), JumpedClock::Instances);
    }

    #[test]
    fn with_one_instance_nobody_can_tell() {
        assert_eq!(which_clock_jumped([watch(5_000, 0, [1, 1])].iter(), 1), JumpedClock::Unknown);
    }

    proptest! {
        /// With any round trips: the result is never that an instance stepped.
        #[test]
        fn a_clock_that_stood_still_is_never_taken_for_steps(
            stood_still in 0u64..10_000, trips in prop::collection::vec((0u64..100, 0u64..100, 0u64..100), 1..7),
        ) {
            let watches: Vec<_> = trips.iter().map(|(before, after, later)| {
                let mut watch = watch(stood_still, 0, [*before, *after]);
                let (sent, received) = (Instant::from_millis(700), Instant::from_millis(700 + later));
                watch.observe(sent, received, (700 + stood_still) * 1_000 + later * 300);
                watch
            }).collect();
            let verdict = decide(&watches);
            prop_assert!(verdict != JumpedClock::Instances, "{watches:?}");
            if let JumpedClock::Own(most) = verdict {
                prop_assert!(most.as_millis() >= u128::from(stood_still));
            }
        }
    }
}
