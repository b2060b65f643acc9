//! Steps of an instance's clock (P17).

use std::time::Duration;

use crate::protocol::time::Instant;

/// A step of less than this cannot be distinguished from the resolution of the measurement.
const TOLERANCE_NS: i128 = 1_000_000;

/// A sample is in whole microseconds.
const CUT_OFF_NS: i128 = 1_000;

/// What a sample of an instance's clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It went on as it may.
    Steady,
    /// It jumped forward by at least this: keys have expired too early.
    SteppedForward(Duration),
    /// It jumped back by at least this: keys live longer than they should.
    SteppedBack(Duration),
}

/// By how much an instance's clock went ahead of one's own, in nanoseconds: at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// It was after this instant of one's own clock.
    pub after: Instant,
    /// What no reading of the samples explains otherwise.
    pub least: i128,
    /// What the samples leave room for.
    pub most: i128,
}

/// The interval in which the offset (instance clock - own clock) can lie.
///
/// Each sample narrows it: the instance read its clock between the sending of the request and the
/// arrival of the reply. Between samples it widens by the allowed drift. A sample that does not
/// overlap it shows a step.
///
/// So each bound is the strictest that any sample since the last step sets, with the drift since that
/// sample; however a clock gains more than the drift allows, at once or little by little, the bound
/// shows it. A sample that lies beyond a bound by no more than the tolerance does not move it: else
/// every sample could gain the tolerance once more, and a clock that is slewed would never step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockWatch {
    /// In nanoseconds. It may exceed `most` by the tolerance.
    least: i128,
    most: i128,
    /// The least that the offset can have been when `most` was last set.
    floor: i128,
    /// When that was.
    set_at: Instant,
    /// Since when it has been watched without a step.
    since: Instant,
    at: Instant,
    drift_ppm: u32,
    steps: u32,
    /// What it jumped forward since that was last settled.
    jumped: Option<Jump>,
    /// The last of those jumps.
    last_jump: Option<Jump>,
    /// By how much it can have jumped before the last sample.
    went: Jump,
}

impl ClockWatch {
    /// Begins with a first sample: the instance's clock read `instance_us` (microseconds since the
    /// Unix epoch) at some time between `sent` and `received` of the client's clock.
    pub fn begin(drift_ppm: u32, sent: Instant, received: Instant, instance_us: u64) -> Self {
        let (least, most) = sample(drift_ppm, sent, received, instance_us);
        let went = Jump { after: received, least: 0, most: 0 };
        let (floor, set_at, since, at) = (least, received, received, received);
        Self { least, most, floor, set_at, since, at, drift_ppm, steps: 0, jumped: None, last_jump: None, went }
    }

    /// Continues a watch of before, over a time in which nothing was sampled: the same clock,
    /// and this watch's only sample.
    #[must_use]
    pub fn continue_from(&mut self, previous: &Self) -> Observation {
        let mut whole = *previous;
        let observation = whole.take_in(self.at, self.least, self.most, TOLERANCE_NS);
        *self = whole;
        observation
    }

    /// Takes in another sample.
    ///
    /// Samples may come in any order of sending; an old one only widens what it says.
    pub fn observe(&mut self, sent: Instant, received: Instant, instance_us: u64) -> Observation {
        let (seen_least, seen_most) = sample(self.drift_ppm, sent, received, instance_us);
        // What is cut off of a sample hides as much of a step; together it is never more than the tolerance.
        self.take_in(received, seen_least, seen_most, TOLERANCE_NS - CUT_OFF_NS)
    }

    fn take_in(&mut self, received: Instant, seen_least: i128, seen_most: i128, tolerance: i128) -> Observation {
        // Of a sample and the bounds, the older one widens until the other's time.
        let widening = drift(self.drift_ppm, received.saturating_since(self.at));
        let (least, most, floor) = (self.least - widening, self.most + widening, self.floor - widening);
        let age = drift(self.drift_ppm, self.at.saturating_since(received));
        let (seen_least, seen_most) = (seen_least - age, seen_most + age);
        self.at = self.at.max(received);
        // Since `most` was set: `least` may be of a slow reply of after the jump.
        let went = Jump { after: self.set_at, least: seen_least - most, most: seen_most - floor.min(most) };
        self.went = went;
        let observation = if went.least > tolerance {
            let before = self.jumped.unwrap_or(Jump { after: went.after, least: 0, most: 0 });
            let least = before.least + went.least;
            self.jumped = Some(Jump { least, most: before.most + went.most, ..before });
            self.last_jump = Some(went);
            Observation::SteppedForward(distance(went.least))
        } else if least - seen_most > tolerance {
            Observation::SteppedBack(distance(least - seen_most))
        } else {
            Observation::Steady
        };
        if observation == Observation::Steady {
            self.least = seen_least.max(least);
            (self.most, self.floor, self.set_at) =
                if seen_most < most { (seen_most, self.least, self.at) } else { (most, floor, self.set_at) };
        } else {
            (self.least, self.most, self.floor) = (seen_least, seen_most, seen_least);
            (self.set_at, self.since) = (self.at, self.at);
        }
        self.steps += u32::from(observation != Observation::Steady);
        observation
    }

    /// What it jumped forward since that was last settled.
    pub const fn jumped(&self) -> Option<Jump> {
        self.jumped
    }

    /// The last jump of those that are not settled.
    pub fn last_jump(&self) -> Option<Jump> {
        self.last_jump.filter(|_| self.jumped.is_some())
    }

    /// Whether it can have jumped like that unseen: because its samples leave room for it, or because
    /// they began after it.
    pub fn leaves_room_for(&self, jump: Jump) -> bool {
        let explains = self.went.least <= jump.most && jump.least <= self.went.most + TOLERANCE_NS;
        explains || jump.after < self.since
    }

    /// Continues from where the clock is now.
    pub const fn settle(&mut self) {
        self.jumped = None;
    }

    /// The client's clock stood still, for so long at the most: what jumped because of that is settled, and
    /// what has yet to show because of it will be no jump. A jump that is longer is the instance's own, and stays.
    pub fn own_clock_stood_still(&mut self, most: Duration) {
        let most = i128::try_from(most.as_nanos()).unwrap_or(i128::MAX);
        match self.jumped {
            None => self.most = self.most.saturating_add(most),
            Some(jump) if jump.least <= most => self.jumped = None,
            Some(_) => {}
        }
    }

    /// The offset (instance clock - own clock) in nanoseconds, in the middle of what it can be.
    pub const fn offset_ns(&self) -> i128 {
        i128::midpoint(self.least, self.most)
    }

    /// What the instance's clock shows at least at `now` of the client's clock, in milliseconds, unless it
    /// was set back since the last sample.
    pub fn at_least_ms(&self, now: Instant) -> u64 {
        let least = self.least - drift(self.drift_ppm, now.saturating_since(self.at));
        u64::try_from((i128::from(now.as_nanos()) + least) / 1_000_000).unwrap_or(0)
    }

    /// What it shows at most, likewise.
    pub fn at_most_ms(&self, now: Instant) -> u64 {
        let most = self.most + drift(self.drift_ppm, now.saturating_since(self.at));
        u64::try_from((i128::from(now.as_nanos()) + most) / 1_000_000).unwrap_or(0)
    }

    /// How many steps were seen.
    pub const fn steps(&self) -> u32 {
        self.steps
    }
}

/// The offsets that one sample allows, as of its arrival.
fn sample(drift_ppm: u32, sent: Instant, received: Instant, instance_us: u64) -> (i128, i128) {
    let instance_ns = i128::from(instance_us) * 1_000;
    // Nothing here relies on the client's clock not going back.
    let (sent, received) = (sent.min(received), received.max(sent));
    // Read right after the sending, the instance's clock may have gained on ours since then.
    let gained = drift(drift_ppm, received.saturating_since(sent));
    (instance_ns - i128::from(received.as_nanos()), instance_ns + CUT_OFF_NS + gained - i128::from(sent.as_nanos()))
}

/// By how much an offset may change in this time, in nanoseconds.
fn drift(ppm: u32, time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX).saturating_mul(i128::from(ppm)) / 1_000_000 + 1
}

fn distance(ns: i128) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Instant = Instant::from_millis;

    fn watch() -> ClockWatch {
        // Offset about 1 s, measured within 2 ms.
        ClockWatch::begin(10_000, MS(10), MS(12), 1_011_000)
    }

    /// Takes samples in: when they were sent and received, in milliseconds, and what the instance's clock read.
    fn observe<const N: usize>(watch: &mut ClockWatch, samples: [(u64, u64, u64); N]) -> [Observation; N] {
        samples.map(|(sent, received, instance_us)| watch.observe(MS(sent), MS(received), instance_us))
    }

    #[test]
    fn a_clock_that_goes_on_is_steady() {
        let mut watch = watch();
        for at in (1..100).map(|second| 1_000 * second) {
            assert_eq!(observe(&mut watch, [(at, at + 5, 1_000_000 + at * 1_000 + 2_000)]), [Observation::Steady]);
        }
        assert_eq!(watch.steps(), 0);
        assert!((watch.offset_ns() - 1_000_000_000).abs() < 3_000_000);
    }

    #[test]
    fn a_step_of_the_ttl_is_seen_at_the_next_sample_and_only_once() {
        let mut watch = watch();
        let [stepped, after] = observe(&mut watch, [(100, 101, 11_100_000), (200, 201, 11_200_000)]);
        assert!(matches!(stepped, Observation::SteppedForward(by) if by > Duration::from_millis(9_990)));
        assert_eq!((after, watch.steps()), (Observation::Steady, 1));
        let [back] = observe(&mut watch, [(300, 301, 1_300_000)]);
        assert!(matches!(back, Observation::SteppedBack(by) if by > Duration::from_millis(9_990)));
    }

    #[test]
    fn a_step_while_nobody_looked_is_seen_and_a_clock_that_went_on_is_not_one() {
        let previous = watch();
        let later = |instance_us| ClockWatch::begin(10_000, MS(3_000), MS(3_001), instance_us);
        let mut steady = later(4_000_500);
        assert_eq!((steady.continue_from(&previous), steady.steps()), (Observation::Steady, 0));
        let mut stepped = later(14_000_500);
        assert!(matches!(stepped.continue_from(&previous), Observation::SteppedForward(by) if by.as_millis() > 9_900));
        assert_eq!(stepped.steps(), 1);
        assert!((stepped.offset_ns() - 11_000_000_000).abs() < 50_000_000);
    }

    #[test]
    fn a_jump_for_which_the_own_clock_stood_still_too_shortly_stays() {
        for (jumped_us, stays) in [(12_000, false), (3_600_000_000, true)] {
            let mut watch = watch();
            observe(&mut watch, [(100, 101, 1_100_500 + jumped_us)]);
            assert!(watch.jumped().is_some());
            watch.own_clock_stood_still(Duration::from_millis(15));
            assert_eq!(watch.jumped().is_some(), stays);
        }
    }

    #[test]
    fn what_slow_and_late_replies_explain_is_no_step() {
        // This clock gains 1 %.
        let gains = || ClockWatch::begin(10_000, Instant::ZERO, MS(1), 0);
        for (what, mut watch, samples) in [
            (
                "read right after the sending, and arrived five seconds later",
                watch(),
                &[(100, 5_100, 1_100_100), (5_200, 5_201, 6_200_500)][..],
            ),
            ("3 ms are gained on the way", gains(), &[(1_000, 1_300, 1_010_000), (1_301, 1_302, 1_315_020)]),
            (
                "two threads handle two replies, the older one last",
                gains(),
                &[(1_000, 1_000, 1_010_000), (800, 800, 808_000), (1_100, 1_100, 1_111_000)],
            ),
        ] {
            for sample in samples {
                assert_eq!(observe(&mut watch, [*sample]), [Observation::Steady], "{what}: {sample:?}");
            }
        }
    }

    /// What chrony does by default to a clock that is behind: 83 333 ppm, a thirtieth of a millisecond
    /// between two samples.
    #[test]
    fn a_clock_that_is_slewed_by_more_than_the_drift_is_seen() {
        for pause_ms in [1, 4, 12, 250] {
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_nanos(200_000), 0);
            let stepped_at = (1..10_000u64 / pause_ms).find(|sample| {
                let sent_us = sample * pause_ms * 1_000;
                let instance_us = (sent_us + 100) * 1_083_333 / 1_000_000;
                let [sent, received] = [sent_us, sent_us + 200].map(|us| Instant::from_nanos(us * 1_000));
                watch.observe(sent, received, instance_us) != Observation::Steady
            });
            let after_ms = stepped_at.map(|sample| sample * pause_ms);
            assert!(after_ms.is_some_and(|ms| ms <= 250), "a sample every {pause_ms} ms: {after_ms:?}");
            assert!(watch.jumped().is_some_and(|jump| jump.least <= jump.most));
        }
    }

    /// Steps that are smaller than the tolerance add up.
    #[test]
    fn small_steps_that_follow_each_other_are_a_step() {
        let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_nanos(10_000), 0);
        let mut sample = |ms: u64, ahead_us: u64| {
            watch.observe(MS(ms), Instant::from_nanos(ms * 1_000_000 + 10_000), ms * 1_000 + ahead_us)
        };
        assert_eq!(sample(1, 900), Observation::Steady);
        assert!(matches!(sample(2, 1_800), Observation::SteppedForward(_)));
    }

    #[test]
    fn what_jumped_is_known_until_it_is_settled() {
        let mut watch = watch();
        observe(&mut watch, [(100, 101, 11_100_000), (200, 201, 16_200_000)]);
        let jump = watch.jumped().unwrap();
        let really = 15_000_000_000;
        assert!(jump.least < really && really < jump.most, "{jump:?}");
        watch.settle();
        assert_eq!(watch.jumped(), None);
    }

    #[test]
    fn what_the_clock_shows_lies_between_its_bounds_which_the_drift_widens() {
        let shows = |at| (watch().at_least_ms(MS(at)), watch().at_most_ms(MS(at)));
        assert_eq!(shows(12), (1_010, 1_013));
        assert_eq!(shows(1_012), (2_000, 2_023));
    }

    #[test]
    fn a_jump_that_fits_between_the_last_two_samples_may_have_been_there() {
        let mut watch = watch();
        assert_eq!(observe(&mut watch, [(100, 102, 1_101_000)]), [Observation::Steady]);
        let (most, tolerance) = (watch.went.most, TOLERANCE_NS);
        for (least, fits) in [(most - tolerance, true), (most + tolerance, true), (most + tolerance + 1, false)] {
            let jump = Jump { after: MS(200), least, most: least + tolerance };
            assert_eq!(watch.leaves_room_for(jump), fits, "{jump:?} beside {:?}", watch.went);
        }
    }

    proptest! {
        /// However a clock gains: what it surely gained between any two samples, beyond the drift and
        /// the tolerance, is seen by the second.
        #[test]
        fn no_gain_between_any_two_samples_stays_unseen(
            samples in prop::collection::vec((1u64..500, 0u64..20, 0u64..3_000), 2..40),
        ) {
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, MS(1), 0);
            let (mut now, mut ahead_us, mut since_step) = (1, 0, vec![(0i128, 1_000_000i128, 1u64)]);
            for (pause, trip, gain_us) in samples {
                let sent = now + pause;
                now = sent + trip;
                ahead_us += gain_us;
                let instance_us = sent * 1_000 + ahead_us;
                let (least, most) = sample(10_000, MS(sent), MS(now), instance_us);
                let explained = |before: &(i128, i128, u64)| {
                    let drift = drift(10_000, Duration::from_millis(now - before.2));
                    // A nanosecond of rounding for each sample.
                    least <= before.1 + drift + TOLERANCE_NS + 100
                };
                let all_explained = since_step.iter().all(explained);
                let seen = watch.observe(MS(sent), MS(now), instance_us);
                prop_assert!(all_explained || seen != Observation::Steady, "{least} after {since_step:?}");
                if seen != Observation::Steady {
                    since_step.clear();
                }
                since_step.push((least, most, now));
            }
        }

        #[test]
        fn drift_within_bounds_is_never_a_step(
            rate_ppm in -10_000i64..=10_000, samples in prop::collection::vec((1u64..5_000, 0u64..300, 0u64..=100), 1..50),
        ) {
            let instance = |true_ms: u64| (1_000_000_000 + (true_ms as i64) * (1_000_000 + rate_ppm) / 1_000) as u64;
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, MS(1), instance(0));
            let mut now = 1;
            for (pause, trip, percent) in samples {
                let sent = now + pause;
                let read = sent + trip * percent / 100;
                now = sent + trip;
                let seen = watch.observe(MS(sent), MS(now), instance(read));
                prop_assert_eq!(seen, Observation::Steady);
            }
        }

        #[test]
        fn a_step_larger_than_what_drift_and_trip_explain_is_seen(
            quiet in 1u64..2_000, trip in 0u64..100, extra in 10u64..100_000,
        ) {
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, MS(1), 0);
            let (sent, received) = (1 + quiet, 1 + quiet + trip);
            let explained = (quiet + 2 * trip) / 100 + trip + 2;
            let stepped = (sent + explained + extra) * 1_000;
            let seen = watch.observe(MS(sent), MS(received), stepped);
            prop_assert!(matches!(seen, Observation::SteppedForward(_)));
        }
    }
}
