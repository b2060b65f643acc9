//! What the log says of one connection.

use crate::log_limit::LogLimit;
use crate::protocol::{Cause, Instant};

/// The lines about one connection: connected, disconnected, and now and then that it still is not connected.
#[derive(Debug, Default)]
pub(super) struct ConnectionLog {
    logged_up: bool,
    failures: LogLimit,
}

impl ConnectionLog {
    /// It is up, and seems to last.
    pub(super) fn up(&mut self, instance: &str) {
        if !self.logged_up {
            tracing::info!(instance, "connected");
        }
        *self = Self { logged_up: true, failures: LogLimit::default() };
    }

    /// It is down.
    pub(super) fn down(&mut self, instance: &str, cause: &Cause, now: Instant) {
        let was_up = std::mem::take(&mut self.logged_up);
        match self.failures.note(now) {
            Some(_) if was_up => tracing::warn!(instance, %cause, "disconnected"),
            Some(times) => tracing::warn!(instance, %cause, times, "not connected"),
            None => tracing::debug!(instance, %cause, "not connected"),
        }
    }
}
