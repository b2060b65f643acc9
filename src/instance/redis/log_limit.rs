//! Keeps the log short where the same event happens again and again.

use std::time::Duration;

use crate::foreign::contain;
use crate::protocol::{Cause, Instant};

/// How long an event that was logged is not logged again.
const PAUSE: Duration = Duration::from_secs(10);

/// Limits the lines about one event: the first at once, then one in ten seconds with the count since.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    logged_at: Option<Instant>,
    not_logged: u64,
}

impl LogLimit {
    /// Counts the event. Returns the count since the last line if there is to be one now.
    pub(super) fn note(&mut self, now: Instant) -> Option<u64> {
        self.not_logged += 1;
        if self.logged_at.is_some_and(|logged_at| now.saturating_since(logged_at) < PAUSE) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.not_logged))
    }
}

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
            contain(|| tracing::info!(instance, "connected"));
        }
        *self = Self { logged_up: true, failures: LogLimit::default() };
    }

    /// It is down.
    pub(super) fn down(&mut self, instance: &str, cause: &Cause, now: Instant) {
        let was_up = std::mem::take(&mut self.logged_up);
        match self.failures.note(now) {
            Some(_) if was_up => contain(|| tracing::warn!(instance, %cause, "disconnected")),
            Some(times) => contain(|| tracing::warn!(instance, %cause, times, "not connected")),
            None => contain(|| tracing::debug!(instance, %cause, "not connected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_every_ten_seconds_with_its_count() {
        let mut limit = LogLimit::default();
        let at = |millis| Instant::ZERO.saturating_add(Duration::from_millis(millis));
        let said: Vec<u64> = (0..=20_000).step_by(10).filter_map(|millis| limit.note(at(millis))).collect();
        assert_eq!(said, [1, 1000, 1000]);
        assert_eq!(limit.note(at(60_000)), Some(1));
    }
}
