//! Steps of an instance's clock (P17).

use std::time::Duration;

use super::Instant;

/// A step of less than this is not told from the resolution of the measurement.
const TOLERANCE_NS: i128 = 1_000_000;

/// What a sample of an instance's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It went on as it may.
    Steady,
    /// It jumped forward by at least this: keys have expired too early.
    SteppedForward(Duration),
    /// It jumped back by at least this: keys live longer than they should.
    SteppedBack(Duration),
}

/// The interval in which the offset (instance clock - own clock) can lie.
///
/// Each sample narrows it: the instance read its clock between the sending of the request and the
/// arrival of the reply. Between samples it widens by the allowed drift. A sample that does not
/// overlap it shows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockWatch {
    /// In nanoseconds.
    least: i128,
    most: i128,
    at: Instant,
    drift_ppm: u32,
    steps: u32,
}

impl ClockWatch {
    /// Begins with a first sample: the instance's clock read `instance_us` (microseconds since the
    /// Unix epoch) at some time between `sent` and `received` of the own clock.
    #[must_use]
    pub fn begin(drift_ppm: u32, sent: Instant, received: Instant, instance_us: u64) -> Self {
        let (least, most) = sample(drift_ppm, sent, received, (instance_us, 1));
        Self { least, most, at: received, drift_ppm, steps: 0 }
    }

    /// Goes on from a watch of before, over a time in which nothing was sampled: the same clock,
    /// and this watch's only sample.
    #[must_use]
    pub fn follow_on(&mut self, former: &Self) -> Observation {
        let mut whole = *former;
        let observation = whole.take_in(self.at, self.least, self.most, TOLERANCE_NS);
        *self = whole;
        observation
    }

    /// Takes in another sample.
    ///
    /// Samples may come in any order of sending; an old one only widens what it says.
    pub fn observe(&mut self, sent: Instant, received: Instant, instance_us: u64) -> Observation {
        self.observe_cut(sent, received, (instance_us, 1))
    }

    /// Takes in a sample that the instance cut off to whole units of so many microseconds.
    pub fn observe_cut(&mut self, sent: Instant, received: Instant, cut: (u64, u64)) -> Observation {
        let (seen_least, seen_most) = sample(self.drift_ppm, sent, received, cut);
        // What was cut off hides as much of a step; together it is never more than the tolerance.
        let tolerance = TOLERANCE_NS - (i128::from(cut.1) * 1_000).min(TOLERANCE_NS);
        self.take_in(received, seen_least, seen_most, tolerance)
    }

    fn take_in(&mut self, received: Instant, seen_least: i128, seen_most: i128, tolerance: i128) -> Observation {
        let widening = drift(self.drift_ppm, received.saturating_since(self.at));
        let (least, most) = (self.least - widening, self.most + widening);
        self.at = self.at.max(received);
        let observation = if seen_least > most + tolerance {
            Observation::SteppedForward(distance(seen_least - most))
        } else if seen_most < least - tolerance {
            Observation::SteppedBack(distance(least - seen_most))
        } else {
            Observation::Steady
        };
        if observation == Observation::Steady && seen_least.max(least) <= seen_most.min(most) {
            (self.least, self.most) = (seen_least.max(least), seen_most.min(most));
        } else {
            (self.least, self.most) = (seen_least, seen_most);
        }
        self.steps += u32::from(observation != Observation::Steady);
        observation
    }

    /// The offset (instance clock - own clock) in nanoseconds, in the middle of what it can be.
    #[must_use]
    pub const fn offset_ns(&self) -> i128 {
        i128::midpoint(self.least, self.most)
    }

    /// What the instance's clock shows at least at `now` of the own clock, in milliseconds, unless it
    /// was set back since the last sample.
    #[must_use]
    pub fn at_least_ms(&self, now: Instant) -> u64 {
        let least = self.least - drift(self.drift_ppm, now.saturating_since(self.at));
        u64::try_from((i128::from(now.as_nanos()) + least) / 1_000_000).unwrap_or(0)
    }

    /// How many steps were seen.
    #[must_use]
    pub const fn steps(&self) -> u32 {
        self.steps
    }
}

/// The offsets that one sample allows, as of its arrival.
fn sample(drift_ppm: u32, sent: Instant, received: Instant, (instance_us, unit_us): (u64, u64)) -> (i128, i128) {
    let instance_ns = i128::from(instance_us) * 1_000;
    // Read right after the sending, the instance's clock may have gained on ours since then.
    let gained = drift(drift_ppm, received.saturating_since(sent));
    let cut_off = i128::from(unit_us) * 1_000;
    (instance_ns - i128::from(received.as_nanos()), instance_ns + cut_off + gained - i128::from(sent.as_nanos()))
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

    fn watch() -> ClockWatch {
        // Offset about 1 s, measured within 2 ms.
        ClockWatch::begin(10_000, Instant::from_millis(10), Instant::from_millis(12), 1_011_000)
    }

    #[test]
    fn a_clock_that_goes_on_is_steady() {
        let mut watch = watch();
        for second in 1..100 {
            let at = 1_000 * second;
            let sample =
                watch.observe(Instant::from_millis(at), Instant::from_millis(at + 5), 1_000_000 + at * 1_000 + 2_000);
            assert_eq!(sample, Observation::Steady);
        }
        assert_eq!(watch.steps(), 0);
        assert!((watch.offset_ns() - 1_000_000_000).abs() < 3_000_000);
    }

    #[test]
    fn a_step_of_the_ttl_is_seen_at_the_next_sample_and_only_once() {
        let mut watch = watch();
        let stepped = watch.observe(Instant::from_millis(100), Instant::from_millis(101), 11_100_000);
        assert!(matches!(stepped, Observation::SteppedForward(by) if by > Duration::from_millis(9_990)));
        let after = watch.observe(Instant::from_millis(200), Instant::from_millis(201), 11_200_000);
        assert_eq!((after, watch.steps()), (Observation::Steady, 1));
        let back = watch.observe(Instant::from_millis(300), Instant::from_millis(301), 1_300_000);
        assert!(matches!(back, Observation::SteppedBack(_)));
    }

    #[test]
    fn a_step_while_nobody_looked_is_seen_and_a_clock_that_went_on_is_not_one() {
        let former = watch();
        let later = |instance_us| {
            ClockWatch::begin(10_000, Instant::from_millis(3_000), Instant::from_millis(3_001), instance_us)
        };
        let mut steady = later(4_000_500);
        assert_eq!((steady.follow_on(&former), steady.steps()), (Observation::Steady, 0));
        let mut stepped = later(14_000_500);
        assert!(matches!(stepped.follow_on(&former), Observation::SteppedForward(by) if by.as_millis() > 9_900));
        assert_eq!(stepped.steps(), 1);
        assert!((stepped.offset_ns() - 11_000_000_000).abs() < 50_000_000);
    }

    #[test]
    fn a_slow_reply_is_no_step() {
        let mut watch = watch();
        // Read right after the sending, arrived five seconds later.
        let late = watch.observe(Instant::from_millis(100), Instant::from_millis(5_100), 1_100_100);
        assert_eq!(late, Observation::Steady);
        let next = watch.observe(Instant::from_millis(5_200), Instant::from_millis(5_201), 6_200_500);
        assert_eq!(next, Observation::Steady);
    }

    #[test]
    fn what_a_fast_clock_gains_while_a_slow_reply_travels_is_no_step() {
        // The clock gains 1 %: 3 ms on the way of a reply that was read right after the sending.
        let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_millis(1), 0);
        let slow = watch.observe(Instant::from_millis(1_000), Instant::from_millis(1_300), 1_010_000);
        assert_eq!(slow, Observation::Steady);
        let quick = watch.observe(Instant::from_millis(1_301), Instant::from_millis(1_302), 1_315_020);
        assert_eq!(quick, Observation::Steady);
    }

    proptest! {
        #[test]
        fn drift_within_bounds_is_never_a_step(
            rate_ppm in -10_000i64..=10_000, samples in prop::collection::vec((1u64..5_000, 0u64..300, 0u64..=100), 1..50),
        ) {
            let instance = |true_ms: u64| (1_000_000_000 + (true_ms as i64) * (1_000_000 + rate_ppm) / 1_000) as u64;
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_millis(1), instance(0));
            let mut now = 1;
            for (pause, trip, percent) in samples {
                let sent = now + pause;
                let read = sent + trip * percent / 100;
                now = sent + trip;
                let seen = watch.observe(Instant::from_millis(sent), Instant::from_millis(now), instance(read));
                prop_assert_eq!(seen, Observation::Steady);
            }
        }

        #[test]
        fn a_step_larger_than_what_drift_and_trip_explain_is_seen(
            quiet in 1u64..2_000, trip in 0u64..100, extra in 10u64..100_000,
        ) {
            let mut watch = ClockWatch::begin(10_000, Instant::ZERO, Instant::from_millis(1), 0);
            let (sent, received) = (1 + quiet, 1 + quiet + trip);
            let explained = (quiet + 2 * trip) / 100 + trip + 2;
            let stepped = (sent + explained + extra) * 1_000;
            let seen = watch.observe(Instant::from_millis(sent), Instant::from_millis(received), stepped);
            prop_assert!(matches!(seen, Observation::SteppedForward(_)));
        }
    }
}
