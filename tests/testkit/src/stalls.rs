//! Whether the machine kept a process from running: then no lease can be blamed for having run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::now;

const TICK: Duration = Duration::from_millis(20);

/// Watches, in a thread of its own, for how long this process did not run although it wanted to.
///
/// A lease of two seconds outlives a machine that is busy, and none that stands still for as long. A test that asks
/// whether a lease lived asks this as well, so that it tells a defect from a machine that was taken away.
#[derive(Debug)]
pub struct Stalls {
    longest_ms: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Stalls {
    /// Watches from now on, until it is dropped.
    #[must_use]
    pub fn watch() -> Self {
        let (longest_ms, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let stalls = Self { longest_ms: Arc::clone(&longest_ms), ends: Arc::clone(&ends) };
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let before = now();
                thread::sleep(TICK);
                let late = before.elapsed().saturating_sub(TICK).as_millis();
                longest_ms.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        stalls
    }

    /// The longest so far.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}
