//! The only place that reads a clock (P3).
#![expect(clippy::disallowed_methods, reason = "clocks are read here and nowhere else")]

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::protocol::Instant;

/// The clocks that a client goes by.
pub(crate) trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The clock that decides about validity. It counts time during which the machine slept.
    fn now(&self) -> Instant;

    /// The wall clock in microseconds since the Unix epoch; only proposes fencing tokens (P12).
    fn wall_us(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// The clocks of the machine.
#[derive(Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Instant {
        // P3: CLOCK_MONOTONIC stands still while the machine sleeps, the instances' clocks do not.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Instant {
        // The standard library's clock: on macOS it stops while the machine sleeps, on Windows it
        // does not. See the limits in docs/safety.md.
        use std::sync::OnceLock;
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let start = *START.get_or_init(std::time::Instant::now);
        Instant::ZERO.saturating_add(start.elapsed())
    }
}

/// The runtime's clock, which a test can pause and move. Read from any thread, it is the clock of
/// the runtime in which it was started.
#[cfg(feature = "testing")]
#[derive(Clone, Debug)]
pub(crate) struct RuntimeClock {
    start: tokio::time::Instant,
    wall_us_at_start: u64,
    runtime: Option<tokio::runtime::Handle>,
}

#[cfg(feature = "testing")]
impl RuntimeClock {
    pub(crate) fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall_us_at_start: SystemClock.wall_us(),
            runtime: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// The same clock with a wall clock that is behind.
    pub(crate) fn with_wall_clock_behind(&self, by: std::time::Duration) -> Self {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Self { wall_us_at_start: self.wall_us_at_start.saturating_sub(by), ..self.clone() }
    }

    fn elapsed(&self) -> std::time::Duration {
        use tokio::runtime::Handle;
        // A paused clock can be read only within its runtime; a thread that is ending has none.
        let ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        let _within = self.runtime.as_ref().filter(|_| !ending).map(Handle::enter);
        self.start.elapsed()
    }
}

#[cfg(feature = "testing")]
impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        Instant::ZERO.saturating_add(self.elapsed())
    }

    fn wall_us(&self) -> u64 {
        let elapsed = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.wall_us_at_start.saturating_add(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_does_not_go_back() {
        let readings: Vec<Instant> = (0..1000).map(|_| SystemClock.now()).collect();
        assert!(readings.is_sorted());
        assert!(SystemClock.wall_us() > 1_735_689_600_000_000);
    }
}
