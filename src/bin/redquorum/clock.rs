//! The only place of the program that reads a clock.
#![expect(clippy::disallowed_methods, reason = "the program's clocks are read here and nowhere else")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// The clock that validity is measured by: the same for all processes of a machine. As in the library it counts the time
/// during which the machine slept, where the system has such a clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const VALIDITY: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(target_vendor = "apple")]
const VALIDITY: ClockId = ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
const VALIDITY: ClockId = ClockId::CLOCK_MONOTONIC;

/// Since an instant that all processes of this machine share.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(VALIDITY).map_or(Duration::MAX, Duration::from)
}

/// Since the Unix epoch.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
