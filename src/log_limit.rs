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
pub(crate) mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::Arc;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::with_default;
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            match field.name() {
                "message" => write!(self.0, " {value:?}"),
                name => write!(self.0, " {name}={value:?}"),
            }
            .unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// What this thread logs meanwhile: the level, the message, and then each field as `name=value`.
    pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        with_default(lines.clone(), work);
        std::mem::take(&mut *lines.0.lock().unwrap())
    }

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
