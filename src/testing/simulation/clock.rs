//! Clocks of machines of their own, in the time of a runtime that a test has paused.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::protocol::Instant;

/// What every machine's clock showed when its runtime's clock began: no machine's clock shows its start.
const UP_SINCE_NS: i128 = 3_600_000_000_000;

/// They do not stand still.
const GOES: u64 = u64::MAX;

/// The clocks of one machine. They run at a rate of their own; the wall clock can be stepped too.
pub struct MachineClock {
    /// True time, as the world counts it in which the machine is.
    true_time: Box<dyn Fn() -> Duration + Send + Sync>,
    rate_ppm: i64,
    wall_us_at_start: u64,
    /// The wall clock shows multiples of this alone.
    grain_us: u64,
    /// How far the wall clock was stepped, in all.
    stepped_us: AtomicI64,
    /// How much of the time both clocks have not counted.
    missed_ns: AtomicU64,
    /// Since when they stand still, in ns of true time; `u64::MAX` if they go.
    stopped_at_ns: AtomicU64,
}

impl MachineClock {
    /// Clocks that run faster than the runtime's by `rate_ppm`, with a wall clock that shows
    /// `wall_us` when `start` is now.
    #[must_use]
    pub fn new(start: tokio::time::Instant, wall_us: u64, rate_ppm: i64) -> Self {
        Self::driven_by(move || start.elapsed(), wall_us, rate_ppm)
    }

    /// The same, by a clock that several runtimes share: how long the world has been there.
    #[must_use]
    pub fn driven_by(true_time: impl Fn() -> Duration + Send + Sync + 'static, wall_us: u64, rate_ppm: i64) -> Self {
        let (stepped_us, missed_ns) = (AtomicI64::new(0), AtomicU64::new(0));
        Self {
            true_time: Box::new(true_time),
            rate_ppm,
            wall_us_at_start: wall_us,
            grain_us: 1,
            stepped_us,
            missed_ns,
            stopped_at_ns: AtomicU64::new(GOES),
        }
    }

    /// The clocks of another machine, which show the same unless one of them is changed.
    #[must_use]
    pub(crate) fn of_another(self: &Arc<Self>) -> Self {
        let world = Arc::clone(self);
        Self::driven_by(move || world.true_time(), self.wall_us_at_start, 0)
    }

    /// The same with a wall clock that is read in steps of so many microseconds, as on systems that count timer ticks.
    #[must_use]
    pub fn coarse(mut self, grain_us: u64) -> Self {
        self.grain_us = grain_us.max(1);
        self
    }

    /// Sets the wall clock forward, or back.
    pub fn step_us(&self, by: i64) {
        self.stepped_us.fetch_add(by, Ordering::AcqRel);
    }

    /// Both clocks stand still, as if the machine were paused without notice.
    pub fn stop(&self) {
        let _ = self.stopped_at_ns.compare_exchange(GOES, self.true_ns(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// They continue from where they stood.
    pub fn go_on(&self) {
        let stopped_at = self.stopped_at_ns.swap(GOES, Ordering::AcqRel);
        if stopped_at != GOES {
            self.missed_ns.fetch_add(self.true_ns().saturating_sub(stopped_at), Ordering::AcqRel);
        }
    }

    /// True time, which no machine knows.
    #[must_use]
    pub fn true_time(&self) -> Duration {
        (self.true_time)()
    }

    /// What the wall clock shows, since the Unix epoch.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Duration::from_micros(self.wall_us())
    }

    /// What the clock shows by which leases go.
    #[must_use]
    pub fn reading(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }

    fn true_ns(&self) -> u64 {
        u64::try_from((self.true_time)().as_nanos()).unwrap_or(GOES - 1)
    }

    /// How much time its clocks have counted, in nanoseconds.
    fn counted_ns(&self) -> i128 {
        let until = self.true_ns().min(self.stopped_at_ns.load(Ordering::Acquire));
        let passed = i128::from(until.saturating_sub(self.missed_ns.load(Ordering::Acquire)));
        passed + passed * i128::from(self.rate_ppm) / 1_000_000
    }
}

impl fmt::Debug for MachineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineClock").field("rate_ppm", &self.rate_ppm).finish_non_exhaustive()
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.counted_ns() + UP_SINCE_NS).unwrap_or(0))
    }

    fn wall_us(&self) -> u64 {
        let since = self.counted_ns() / 1_000 + i128::from(self.stepped_us.load(Ordering::Acquire));
        let shown = u64::try_from(i128::from(self.wall_us_at_start) + since).unwrap_or(0);
        shown - shown % self.grain_us
    }
}
