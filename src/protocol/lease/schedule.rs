//! When a lease is renewed (P19).

use std::time::Duration;

use crate::protocol::time::Instant;

/// When a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalSchedule {
    ttl: Duration,
}

/// The coarsest grid of renewal times.
const TICK_MOST: Duration = Duration::from_millis(25);

impl RenewalSchedule {
    /// The plan for leases of this ttl.
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    /// When to renew after a round that was begun at `started_at` and won: a third of the ttl later.
    pub fn after_success(self, started_at: Instant) -> Instant {
        self.on_grid(started_at.saturating_add(self.ttl / 3))
    }

    /// When to try again after a round that was begun at `started_at`: a tenth of the ttl later.
    /// Never sooner, however the round ends, so that this is also the fastest pace.
    pub fn after_failure(self, started_at: Instant) -> Instant {
        started_at.saturating_add(self.ttl / 10)
    }

    /// Down to a multiple of a twelfth of the ttl at most, so that leases that are due at nearly the
    /// same time are due together, and share their commands.
    fn on_grid(self, at: Instant) -> Instant {
        let tick = u64::try_from((self.ttl / 12).min(TICK_MOST).as_nanos()).unwrap_or(1).max(1);
        Instant::from_nanos(at.as_nanos() / tick * tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn leases_that_are_won_together_are_renewed_together_after_about_a_third() {
        let plan = RenewalSchedule::new(1200 * MS);
        let at = |millis| Instant::ZERO.saturating_add(millis * MS);
        assert_eq!(plan.after_success(at(1000)), at(1400));
        assert_eq!(plan.after_success(at(1024)), at(1400));
        assert_eq!(plan.after_success(at(1025)), at(1425));
        assert_eq!(plan.after_failure(at(1024)), at(1144));
        assert_eq!(RenewalSchedule::new(24 * MS).after_success(at(101)), at(108)); // 109, on a grid of 2 ms
    }
}
