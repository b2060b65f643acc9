//! True time: how long the simulated world has been there. Each of its runtimes has a clock of its own; they go on in
//! turn, so one of them may be a tick behind. True time never goes back: it is the latest that any of them has shown.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

thread_local! {
    /// What the clock of the runtime that is entered showed when the world began.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The latest time of this world that anybody has seen.
    static LATEST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Another world begins on this thread.
pub(crate) fn begin() {
    LATEST.set(Duration::ZERO);
}

/// From now on this thread is in a runtime whose clock showed this when the world began.
pub(crate) fn enter(began: Instant) {
    BEGAN.set(Some(began));
}

pub(crate) fn now() -> Duration {
    let latest = LATEST.get().max(shown());
    LATEST.set(latest);
    latest
}

/// What the clock of this runtime alone shows.
#[expect(clippy::disallowed_methods, reason = "the true time of the simulated world")]
pub(crate) fn shown() -> Duration {
    let now = Instant::now();
    now.saturating_duration_since(BEGAN.get().unwrap_or(now))
}

pub(crate) fn since(begun: Duration) -> Duration {
    now().saturating_sub(begun)
}

/// What the clock of this runtime shows then.
#[expect(clippy::disallowed_methods, reason = "the true time of the simulated world")]
pub(crate) fn instant(at: Duration) -> Instant {
    BEGAN.get().unwrap_or_else(Instant::now) + at
}

pub(crate) fn sleep_until(at: Duration) -> Sleep {
    tokio::time::sleep_until(instant(at))
}
