//! Clocks that a test moves.
#![expect(clippy::disallowed_methods, reason = "a clock of the runtime, which tests can pause, is read here")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::protocol::Instant;

/// The runtime's clock, which a test can pause and move. Read from any thread, it is the clock of
/// the runtime in which it was started.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeClock {
    start: tokio::time::Instant,
    wall_us_at_start: u64,
    runtime: Option<tokio::runtime::Handle>,
}

impl RuntimeClock {
    pub(crate) fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall_us_at_start: SystemClock.wall_us(),
            runtime: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// The same clock with a wall clock that is ahead and then behind by so much.
    pub(crate) fn with_wall_clock_off(&self, ahead: Duration, behind: Duration) -> Self {
        let us = |by: Duration| u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let wall_us_at_start = self.wall_us_at_start.saturating_add(us(ahead)).saturating_sub(us(behind));
        Self { wall_us_at_start, ..self.clone() }
    }

    /// What its wall clock showed when it began.
    pub(crate) const fn wall_us_at_start(&self) -> u64 {
        self.wall_us_at_start
    }

    /// How much time has passed since it began.
    pub(crate) fn elapsed(&self) -> Duration {
        use tokio::runtime::Handle;
        // A paused clock can be read only within its runtime; a thread that is ending has none.
        let ending = || Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        let _within = self.runtime.as_ref().filter(|_| !ending()).map(Handle::enter);
        self.start.elapsed()
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        // No machine's clock shows its start.
        Instant::from_millis(3_600_000).saturating_add(self.elapsed())
    }

    fn wall_us(&self) -> u64 {
        let elapsed = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.wall_us_at_start.saturating_add(elapsed)
    }
}

/// The machine's clock, which a test can hold back as if the machine had been paused unnoticed.
#[derive(Debug, Default)]
pub(crate) struct LaggingClock(AtomicU64);

impl LaggingClock {
    pub(crate) fn stand_still(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

/// Since when it has counted: it must not arrive at its beginning, and stop there, on a machine that was just started.
const LONG_AGO: Duration = Duration::from_secs(100 * 24 * 60 * 60);

impl Clock for LaggingClock {
    fn now(&self) -> Instant {
        SystemClock.now().saturating_add(LONG_AGO).saturating_sub(Duration::from_nanos(self.0.load(Ordering::Acquire)))
    }
}
