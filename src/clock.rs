//! The only place that reads a clock (P3).
#![expect(clippy::disallowed_methods, reason = "clocks are read here and nowhere else")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(unix)]
use nix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

use crate::protocol::Instant;

/// The clocks of a client.
pub(crate) trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The clock that decides about validity. It counts time during which the machine slept.
    fn now(&self) -> Instant;

    /// The wall clock in microseconds since the Unix epoch; only proposes fencing tokens (P12).
    fn wall_us(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// What this clock is not known to do (P3).
    fn limit(&self) -> Option<String> {
        None
    }
}

/// A clock that is put forward when it turns out to have stood still (P17). It never goes back.
#[derive(Debug)]
pub(crate) struct CorrectedClock {
    clock: Arc<dyn Clock>,
    ahead_ns: AtomicU64,
    moved: Arc<Notify>,
}

impl CorrectedClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ahead_ns: AtomicU64::new(0), moved: Arc::default() }
    }

    /// By so much; calls come one after the other.
    pub(crate) fn put_forward(&self, by: Duration) {
        let ahead = u64::try_from(self.ahead().saturating_add(by).as_nanos()).unwrap_or(u64::MAX);
        self.ahead_ns.store(ahead, Ordering::Release);
        self.moved.notify_one();
    }

    /// Notifies one task each time it has been put forward: timers know nothing of that.
    pub(crate) fn moved(&self) -> Arc<Notify> {
        Arc::clone(&self.moved)
    }

    /// How far it has been put forward, in all.
    pub(crate) fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead_ns.load(Ordering::Acquire))
    }
}

impl Clock for CorrectedClock {
    fn now(&self) -> Instant {
        self.clock.now().saturating_add(self.ahead())
    }

    fn wall_us(&self) -> u64 {
        self.clock.wall_us()
    }
}

/// The clocks of the machine.
#[derive(Debug, Default)]
pub(crate) struct SystemClock;

/// P3: the instances' clocks run while this machine is suspended. `CLOCK_MONOTONIC` stands still there.
#[cfg(any(target_os = "linux", target_os = "android"))]
const VALIDITY: (ClockId, &str) = (ClockId::CLOCK_BOOTTIME, "CLOCK_BOOTTIME");
/// `mach_continuous_time`. `CLOCK_MONOTONIC` counts suspended time too, but depends on the wall clock and has gone back.
#[cfg(target_vendor = "apple")]
const VALIDITY: (ClockId, &str) = (ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW), "CLOCK_MONOTONIC_RAW");
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))))]
const VALIDITY: (ClockId, &str) = (ClockId::CLOCK_MONOTONIC, "CLOCK_MONOTONIC");

/// The clock that measures validity on a system, and whether it is known to count the time for which the machine is
/// suspended.
fn clock_of(os: &str) -> (&'static str, bool) {
    match os {
        "linux" | "android" => ("CLOCK_BOOTTIME", true),
        "macos" | "ios" | "tvos" | "visionos" | "watchos" => ("CLOCK_MONOTONIC_RAW", true),
        "openbsd" => ("CLOCK_MONOTONIC", true),
        // What the standard library reads.
        "windows" => ("QueryPerformanceCounter", true),
        // FreeBSD has none that counts it; of the others it is not known.
        _ => ("CLOCK_MONOTONIC", false),
    }
}

impl SystemClock {
    /// A warning about the clock of this system, when a client is built.
    fn limit_on(os: &str) -> Option<String> {
        let (clock, is_sure) = clock_of(os);
        (!is_sure).then(|| {
            format!(
                "{clock} of {os} is not known to count the time for which this machine is suspended: a lock that was held \
                 before may be taken for valid after it, until an instance answers"
            )
        })
    }
}

impl Clock for SystemClock {
    #[cfg(unix)]
    fn now(&self) -> Instant {
        // A clock that cannot be read shows the end of all time: then no lease is valid.
        clock_gettime(VALIDITY.0)
            .map_or(Instant::from_nanos(u64::MAX), |time| Instant::ZERO.saturating_add(time.into()))
    }

    #[cfg(not(unix))]
    fn now(&self) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let start = *START.get_or_init(std::time::Instant::now);
        Instant::ZERO.saturating_add(start.elapsed())
    }

    fn limit(&self) -> Option<String> {
        Self::limit_on(std::env::consts::OS)
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

    /// As the manuals of the systems say; FreeBSD's says it of none.
    #[test]
    fn the_clock_of_each_system_counts_suspended_time_or_is_said_not_to() {
        let known = [
            ("linux", "CLOCK_BOOTTIME"),
            ("android", "CLOCK_BOOTTIME"),
            ("macos", "CLOCK_MONOTONIC_RAW"),
            ("ios", "CLOCK_MONOTONIC_RAW"),
            ("tvos", "CLOCK_MONOTONIC_RAW"),
            ("visionos", "CLOCK_MONOTONIC_RAW"),
            ("watchos", "CLOCK_MONOTONIC_RAW"),
            ("openbsd", "CLOCK_MONOTONIC"),
            ("windows", "QueryPerformanceCounter"),
        ];
        for (os, clock) in known {
            assert_eq!(clock_of(os), (clock, true), "{os}");
            assert_eq!(SystemClock::limit_on(os), None, "{os}");
        }
        for os in ["freebsd", "netbsd", "dragonfly", "illumos", "solaris", "aix", "hurd", "one that is new"] {
            assert_eq!(clock_of(os), ("CLOCK_MONOTONIC", false), "{os}");
            let limit = SystemClock::limit_on(os).unwrap();
            assert!(limit.contains(os) && limit.contains("is suspended"), "{limit}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_clock_that_is_read_here_is_that_of_the_table() {
        assert_eq!(VALIDITY.1, clock_of(std::env::consts::OS).0);
        let read_before = clock_gettime(VALIDITY.0).unwrap();
        assert!(SystemClock.now() >= Instant::ZERO.saturating_add(read_before.into()));
        assert!(SystemClock.now() < Instant::from_nanos(u64::MAX));
    }

    /// `make sim WORLD_REPLAY=6450/0037114f8c` showed it: after a standstill, work went on under a lock that was
    /// over, until a timer woke a task that looked.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_put_forward_wakes_what_waits_for_it() {
        let clock = CorrectedClock::new(Arc::new(SystemClock));
        let moved = clock.moved();
        let brief = Duration::from_millis(1);
        assert!(tokio::time::timeout(brief, moved.notified()).await.is_err());
        clock.put_forward(brief);
        assert!(tokio::time::timeout(brief, moved.notified()).await.is_ok());
    }
}
