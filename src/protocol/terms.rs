//! How long a won lease may be relied on (P2).

use std::fmt;
use std::time::Duration;

use crate::protocol::time::Instant;

/// The drift that is allowed by default, in parts per million: 1 %.
pub const DEFAULT_DRIFT_PPM: u32 = 10_000;

/// Added to the drift of every ttl: instances expire keys with a resolution of one
/// millisecond, and so do both ends of a measurement.
pub const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// A lease must have at least this part of its ttl left when it is won, or it is released.
const MIN_REMAINING_DIVISOR: u32 = 5;

/// The ttl of a lease and what clocks may do to it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    ttl: Duration,
    drift: Duration,
}

/// Why a ttl was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlError {
    /// The ttl is below one millisecond, the least that an instance can keep.
    ZeroTtl,
    /// The drift would eat at least half of the ttl.
    TtlBelowDrift {
        /// The ttl in the settings.
        ttl: Duration,
        /// The least ttl for the configured drift.
        least: Duration,
    },
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroTtl => {
                write!(f, "the ttl is below one millisecond; a lock that expires at once protects nothing")
            }
            Self::TtlBelowDrift { ttl, least } => {
                write!(f, "a ttl of {ttl:?} is below {least:?}, twice the allowed clock drift; use a longer one")
            }
        }
    }
}

impl std::error::Error for TtlError {}

impl LeaseTerms {
    /// A lease of `ttl` while clocks may differ in rate by `drift_ppm` parts per million.
    ///
    /// The ttl is cut to whole milliseconds, as instances keep no finer time; the drift is rounded
    /// up. Both make the validity shorter, never longer.
    ///
    /// # Errors
    /// When the ttl is zero, or less than twice its drift.
    pub fn new(ttl: Duration, drift_ppm: u32) -> Result<Self, TtlError> {
        let ttl = Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 1_000_000));
        if ttl.is_zero() {
            return Err(TtlError::ZeroTtl);
        }
        let drift = drift_of(ttl, drift_ppm);
        let least = drift.saturating_mul(2);
        if ttl < least {
            return Err(TtlError::TtlBelowDrift { ttl, least });
        }
        Ok(Self { ttl, drift })
    }

    /// The ttl of the keys, in whole milliseconds.
    pub const fn ttl(self) -> Duration {
        self.ttl
    }

    /// What is taken off the ttl for clocks that run at different rates.
    pub const fn drift(self) -> Duration {
        self.drift
    }

    /// Those of the two with the longer ttl.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        if other.ttl > self.ttl { other } else { self }
    }

    /// Until when a lease may be relied on whose round was begun at `started_at`.
    pub fn valid_until(self, started_at: Instant) -> Instant {
        // P2: from before the first send, so that time on the way is never counted as validity.
        started_at.saturating_add(self.ttl.saturating_sub(self.drift))
    }

    /// The validity that a lease must still have when it is won.
    pub fn min_remaining(self) -> Duration {
        self.ttl / MIN_REMAINING_DIVISOR
    }
}

/// `ttl * ppm / 1e6 + 2 ms`, rounded up to a whole nanosecond.
fn drift_of(ttl: Duration, ppm: u32) -> Duration {
    let exact = ttl.as_nanos().saturating_mul(u128::from(ppm)).div_ceil(1_000_000);
    Duration::from_nanos(u64::try_from(exact).unwrap_or(u64::MAX)).saturating_add(DRIFT_FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_drift_is_one_percent_and_two_milliseconds() {
        let terms = LeaseTerms::new(Duration::from_secs(10), DEFAULT_DRIFT_PPM).unwrap();
        assert_eq!(terms.drift(), Duration::from_millis(102));
        assert_eq!(terms.valid_until(Instant::ZERO), Instant::from_millis(9_898));
        assert_eq!(terms.min_remaining(), Duration::from_secs(2));
    }

    #[test]
    fn ttls_that_protect_nothing_are_refused() {
        assert_eq!(LeaseTerms::new(Duration::ZERO, 0), Err(TtlError::ZeroTtl));
        assert_eq!(LeaseTerms::new(Duration::from_micros(999), 0), Err(TtlError::ZeroTtl));
        assert!(matches!(
            LeaseTerms::new(Duration::from_millis(4), DEFAULT_DRIFT_PPM),
            Err(TtlError::TtlBelowDrift { .. })
        ));
        assert!(LeaseTerms::new(Duration::from_millis(5), DEFAULT_DRIFT_PPM).is_ok());
        assert!(matches!(LeaseTerms::new(Duration::from_secs(1), 500_000), Err(TtlError::TtlBelowDrift { .. })));
    }

    proptest! {
        #[test]
        fn validity_is_never_longer_than_the_slowest_instance_keeps_the_key(
            ttl_us in 0u64..100_000_000_000, ppm in 0u32..600_000, start in any::<u64>(),
        ) {
            if let Ok(terms) = LeaseTerms::new(Duration::from_micros(ttl_us), ppm) {
                let start = Instant::from_nanos(start / 2);
                let valid = terms.valid_until(start).saturating_since(start);
                // An instance whose clock runs fast by `ppm` drops the key after ttl / (1 + ppm).
                let kept = terms.ttl().as_nanos() * 1_000_000 / (1_000_000 + u128::from(ppm));
                prop_assert!(valid.as_nanos() + DRIFT_FLOOR.as_nanos() <= kept);
                prop_assert!(terms.min_remaining() < valid);
                prop_assert!(terms.ttl() <= Duration::from_micros(ttl_us));
            }
        }
    }
}
