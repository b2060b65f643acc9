//! Keeps the log short where the same thing happens again and again.

use std::time::Duration;

use crate::protocol::{Cause, Instant};

/// How long something that was said is not said again.
const PAUSE: Duration = Duration::from_secs(10);

/// Says the same thing at once and then seldom, with how often it happened meanwhile.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    said_at: Option<Instant>,
    unsaid: u64,
}

impl LogLimit {
    /// It happened: how often by now, if it is to be said.
    pub(super) fn note(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.said_at.is_some_and(|said_at| now.saturating_since(said_at) < PAUSE) {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// What the log says of a connection: that it is there or not, and seldom that it still is not.
#[derive(Debug, Default)]
pub(super) struct ConnectionLog {
    said_up: bool,
    failures: LogLimit,
}

impl ConnectionLog {
    /// It is there, and is going to stay.
    pub(super) fn up(&mut self, instance: &str) {
        if !self.said_up {
            tracing::info!(instance, "connected");
        }
        *self = Self { said_up: true, failures: LogLimit::default() };
    }

    /// It is not there, or not any more.
    pub(super) fn down(&mut self, instance: &str, cause: &Cause, now: Instant) {
        let was_up = std::mem::take(&mut self.said_up);
        match self.failures.note(now) {
            Some(_) if was_up => tracing::warn!(instance, %cause, "disconnected"),
            Some(times) => tracing::warn!(instance, %cause, times, "not connected"),
            None => tracing::debug!(instance, %cause, "not connected"),
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
