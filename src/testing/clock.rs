//! Clocks that a test moves.
#![expect(clippy::disallowed_methods, reason = "a clock of the runtime, which tests can pause, is read here")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::{Clock, SystemClock};
use crate::protocol::Instant;

/// How much time has passed since this was called, by the clock of the runtime in which it was: a test can pause and move
/// that. Outside of any runtime by the machine's.
pub(crate) fn elapsed() -> impl Fn() -> Duration + Send + Sync + 'static {
    let (start, runtime) = (tokio::time::Instant::now(), Handle::try_current().ok());
    move || {
        // A paused clock can be read only within its runtime; a thread that is ending has none.
        let ending = || Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        let _within = runtime.as_ref().filter(|_| !ending()).map(Handle::enter);
        start.elapsed()
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
