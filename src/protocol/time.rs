//! Time as plain data: nothing in `protocol` reads a clock, so every rule can be tested at any instant.

use std::time::Duration;

/// A reading of one process's clock, in nanoseconds from an arbitrary start.
///
/// Readings of different processes must not be compared. In production it is a reading of the
/// clock that counts suspended time (P3); in tests it is set by the test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The reading that is `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The reading that is `millis` milliseconds after the clock's start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant moved forward; stops at the end of time instead of wrapping.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// This instant moved back; stops at the start of the clock instead of wrapping.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The duration in nanoseconds, at most `u64::MAX` (584 years).
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_both_ends() {
        let one = Instant::from_nanos(1);
        assert_eq!(one.saturating_sub(Duration::from_secs(1)), Instant::ZERO);
        assert_eq!(one.saturating_add(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(Instant::ZERO.saturating_since(one), Duration::ZERO);
        assert_eq!(Instant::from_millis(3).saturating_since(Instant::from_millis(1)), Duration::from_millis(2));
    }
}
