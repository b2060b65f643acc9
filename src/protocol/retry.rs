//! When to try again, and when to connect again.

use std::time::Duration;

/// Pauses are no longer than this after any number of failures, unless they were to be from the first.
const LONGEST: Duration = Duration::from_secs(1);

/// After so many failures the pause is twice as long.
const DOUBLED_AFTER: u32 = 4;

/// The pause between two rounds of a waiting acquire: evenly spread between two bounds, so that
/// clients that collided do not collide again, and longer after every few failures, so that thousands of
/// waiters do not keep the instances from the holder. It stays a fraction of the time that
/// was waited before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelay {
    least: Duration,
    most: Duration,
}

impl RetryDelay {
    /// Pauses between `least` and `most`; bounds in the wrong order are swapped.
    pub fn new(least: Duration, most: Duration) -> Self {
        Self { least: least.min(most), most: least.max(most) }
    }

    /// The shortest pause.
    pub const fn least(self) -> Duration {
        self.least
    }

    /// The pause after so many failures before the last; `random` as for [`next`](Self::next).
    pub fn after(self, failures: u32, random: u32) -> Duration {
        let times = 1u32.checked_shl(failures / DOUBLED_AFTER).unwrap_or(u32::MAX);
        let most = self.most.saturating_mul(times).min(self.most.max(LONGEST));
        // The lower bound stays behind, so that there is always something to spread over.
        let least = self.least.saturating_mul(times).min(self.least.max(most / 2));
        Self { least, most }.next(random)
    }

    /// The next pause; `random` is a number drawn evenly from all of `u32`.
    pub fn next(self, random: u32) -> Duration {
        let spread = self.most.saturating_sub(self.least).as_nanos();
        let part = spread.saturating_mul(u128::from(random)) / u128::from(u32::MAX);
        self.least.saturating_add(Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)))
    }
}

/// The pause before the next attempt to reconnect: doubled from `least` to `most`, each cut by up
/// to half at random so that clients do not return in step.
pub fn reconnect_delay(attempt: u32, least: Duration, most: Duration, random: u32) -> Duration {
    let full = least.saturating_mul(1u32.checked_shl(attempt.min(16)).unwrap_or(u32::MAX)).min(most);
    RetryDelay::new(full / 2, full).next(random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_with_every_fourth_failure_up_to_a_second() {
        let bounds = |delay: RetryDelay, failures| (delay.after(failures, 0), delay.after(failures, u32::MAX));
        let delay = RetryDelay::new(10 * MS, 100 * MS);
        for (failures, expected) in [
            (0, (10 * MS, 100 * MS)),
            (3, (10 * MS, 100 * MS)),
            (4, (20 * MS, 200 * MS)),
            (12, (80 * MS, 800 * MS)),
            (16, (160 * MS, 1_000 * MS)),
            (24, (500 * MS, 1_000 * MS)),
            (u32::MAX, (500 * MS, 1_000 * MS)),
        ] {
            assert_eq!(bounds(delay, failures), expected, "{failures}");
        }
        let slow = RetryDelay::new(2_000 * MS, 3_000 * MS);
        assert_eq!(bounds(slow, 0), bounds(slow, 100), "longer from the first");
        let none = RetryDelay::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(none.after(100, u32::MAX), Duration::ZERO);
    }

    #[test]
    fn the_bounds_are_reached() {
        let delay = RetryDelay::new(10 * MS, 100 * MS);
        assert_eq!((delay.next(0), delay.next(u32::MAX)), (10 * MS, 100 * MS));
        assert_eq!(RetryDelay::new(Duration::ZERO, Duration::ZERO).next(7), Duration::ZERO);
        assert_eq!(reconnect_delay(0, 50 * MS, 1000 * MS, u32::MAX), 50 * MS);
        assert_eq!(reconnect_delay(40, 50 * MS, 1000 * MS, u32::MAX), 1000 * MS);
    }

    proptest! {
        #[test]
        fn a_pause_is_always_within_its_bounds(a: u32, b: u32, random: u32, attempt: u32) {
            let (a, b) = (Duration::from_micros(a.into()), Duration::from_micros(b.into()));
            let pause = RetryDelay::new(a, b).next(random);
            prop_assert!(a.min(b) <= pause && pause <= a.max(b));
            prop_assert!(reconnect_delay(attempt, a, b, random) <= b);
        }
    }
}
