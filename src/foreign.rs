//! Code of others that runs inside this library: wakers and futures of callers, and whoever listens to its log and metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of others, and contains its panics. To be called while no mutex is held: it may do what it
/// likes, drop a guard for one.
pub(crate) fn contain(foreign: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(foreign)).is_err() {
        let told =
            || tracing::error!("code that was called from here has panicked: a waker, or what listens to the log");
        drop(catch_unwind(told)); // it may be the very one that panics
    }
}
