//! Keeps the log short where the same event happens again and again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::Instant;

/// For how long lines about an event count.
const PERIOD: Duration = Duration::from_secs(10);

/// Limits the lines about one kind of event: at most `MOST` in ten seconds. The next line has the count of what was left out.
#[derive(Debug, Default)]
pub(crate) struct LogLimit<const MOST: u32 = 1>(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the present ten seconds began, and how many lines were written in them.
    period: Option<(Instant, u32)>,
    not_logged: u64,
}

impl<const MOST: u32> LogLimit<MOST> {
    /// Counts the event. Returns the count since the last line, with this event, if it may be written now.
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.not_logged = state.not_logged.saturating_add(1);
        let (since, lines) =
            state.period.filter(|(since, _)| now.saturating_since(*since) < PERIOD).unwrap_or((now, 0));
        if lines >= MOST {
            return None;
        }
        state.period = Some((since, lines + 1));
        Some(std::mem::take(&mut state.not_logged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn what_happens_all_the_time_is_said_every_ten_seconds_with_its_count() {
        let limit = LogLimit::<1>::default();
        let said: Vec<u64> = (0..=20_000).step_by(10).filter_map(|millis| limit.note(at(millis))).collect();
        assert_eq!(said, [1, 1000, 1000]);
        assert_eq!(limit.note(at(60_000)), Some(1));
    }

    #[test]
    fn of_what_happens_to_many_locks_at_once_sixteen_are_said_and_the_others_are_counted() {
        let limit = LogLimit::<16>::default();
        let said: Vec<u64> = (0..200).filter_map(|millis| limit.note(at(millis))).collect();
        assert_eq!(said, [1; 16]);
        assert_eq!(limit.note(at(10_000)), Some(185));
        assert_eq!(limit.note(at(10_001)), Some(1));
    }
}
