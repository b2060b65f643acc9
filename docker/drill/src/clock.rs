//! The one clock of all logs: CLOCK_BOOTTIME, which containers share with the machine.

/// Nanoseconds since the machine was started.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MILLI: Nanos = 1_000_000;

pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

pub(crate) fn nanos(duration: std::time::Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
