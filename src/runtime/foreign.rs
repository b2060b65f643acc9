//! Code of callers: what their wakers and futures do when the library wakes them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes somebody. One who panics keeps nobody else from being woken, and ends no task of the client.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// Runs what may wake callers, and contains their panics. To be called while no mutex is held: they may do what they
/// like, drop a guard for one.
pub(crate) fn contain(wakes: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(wakes)).is_err() {
        tracing::error!("somebody who was woken has panicked");
    }
}
