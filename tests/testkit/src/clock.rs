//! The kit's only look at a clock.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(3);

#[expect(clippy::disallowed_methods, reason = "the kit runs real servers in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks `probe` every few milliseconds until it says true, for `limit` at most; false when it never did.
///
/// The probe is asked at least once, and once more after the limit.
pub fn wait_until(limit: Duration, mut probe: impl FnMut() -> bool) -> bool {
    let start = now();
    loop {
        let late = start.elapsed() >= limit;
        if probe() {
            return true;
        }
        if late {
            return false;
        }
        thread::sleep(PAUSE);
    }
}
