//! Whether a process that ran for long took more and more of memory or descriptors.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Violation;
use crate::clock::{Nanos, nanos};
use crate::event::{Event, EventKind};

pub(crate) const GROWS: &str = "grows";

/// A process that ran for less says nothing: buffers and tables grow at first.
const LONG: Duration = Duration::from_secs(600);

/// How much more of it may be used at the end: half, and this.
const MORE_KIB: u64 = 4 * 1024;
const MORE_DESCRIPTORS: u64 = 16;

/// When it was, the memory in KiB, and the descriptors.
type Look = (Nanos, u64, u64);

/// What one process of a client used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Usage {
    pub(crate) client: String,
    /// From the first look to the last.
    pub(crate) seconds: f64,
    pub(crate) resident_kib: Course,
    pub(crate) descriptors: Course,
    #[serde(skip)]
    until: Nanos,
}

/// How a figure went while a process ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Course {
    /// The median of the second sixth.
    pub(crate) early: u64,
    /// The median of the last sixth.
    pub(crate) late: u64,
    pub(crate) most: u64,
}

impl Usage {
    /// Of the processes that ran for long.
    pub(crate) fn of(history: &[Event]) -> Vec<Self> {
        let mut looks: BTreeMap<(&str, Nanos), Vec<Look>> = BTreeMap::new();
        for event in history {
            if let EventKind::Uses { since, resident_kib, descriptors } = event.kind {
                looks.entry((&event.who, since)).or_default().push((event.at, resident_kib, descriptors));
            }
        }
        looks.into_iter().filter_map(|((client, _), looks)| Self::of_one(client, &looks)).collect()
    }

    fn of_one(client: &str, looks: &[Look]) -> Option<Self> {
        let (first, last) = (looks.first()?.0, looks.last()?.0);
        let ran = last.saturating_sub(first);
        if ran < nanos(LONG) {
            return None;
        }
        let course = |figure: fn(&Look) -> u64| {
            let part = |from: u64, to: u64| {
                let within = first + ran / 6 * from..=first + ran / 6 * to;
                median(looks.iter().filter(|look| within.contains(&look.0)).map(figure).collect())
            };
            let most = looks.iter().map(figure).max()?;
            Some(Course { early: part(1, 2)?, late: part(5, 6)?, most })
        };
        Some(Self {
            client: client.to_owned(),
            seconds: Duration::from_nanos(ran).as_secs_f64(),
            resident_kib: course(|look| look.1)?,
            descriptors: course(|look| look.2)?,
            until: last,
        })
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        let judged = [
            ("resident memory in KiB", self.resident_kib, MORE_KIB),
            ("descriptors", self.descriptors, MORE_DESCRIPTORS),
        ];
        let grown = judged.into_iter().filter(|(_, course, more)| course.late > course.early + course.early / 2 + more);
        grown.map(|(what, course, _)| self.grew(what, course)).collect()
    }

    fn grew(&self, what: &str, Course { early, late, .. }: Course) -> Violation {
        let Self { client, seconds, .. } = self;
        let text = format!("{what} of {client} went from {early} to {late} in {seconds:.0} s");
        Violation { rule: GROWS, at: self.until, text }
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLI;

    /// One process of a client, looked at each 5 s.
    fn process(since: u64, looks: u64, figures: impl Fn(u64) -> (u64, u64)) -> Vec<Event> {
        let look = |at: u64| {
            let (resident_kib, descriptors) = figures(at);
            let kind = EventKind::Uses { since: since * 1_000 * MILLI, resident_kib, descriptors };
            Event { at: (since + 5 * at) * 1_000 * MILLI, who: "c1".to_owned(), kind }
        };
        (1..=looks).map(look).collect()
    }

    fn found(history: &[Event]) -> Vec<String> {
        Usage::of(history).iter().flat_map(Usage::violations).map(|violation| violation.text).collect()
    }

    #[test]
    fn what_grows_all_the_time_is_found_and_what_grows_at_first_is_not() {
        let leaks = process(0, 720, |look| (8_000 + 40 * look, 30));
        assert_eq!(found(&leaks), ["resident memory in KiB of c1 went from 15240 to 34400 in 3595 s"]);
        let forgets_to_close = process(0, 720, |look| (8_000, 30 + look / 10));
        assert_eq!(found(&forgets_to_close), ["descriptors of c1 went from 48 to 96 in 3595 s"]);
        assert!(found(&process(0, 720, |look| (8_000 + 400 * look.min(60), 30 + look % 8))).is_empty());
    }

    #[test]
    fn each_process_is_seen_by_itself_and_only_one_that_ran_for_long() {
        let mut history = process(0, 100, |_| (8_000, 30));
        history.extend(process(1_000, 200, |_| (90_000, 900)));
        let seen: Vec<u64> = Usage::of(&history).iter().map(|usage| usage.resident_kib.early).collect();
        assert_eq!(seen, [90_000]);
        assert!(found(&history).is_empty(), "one may use more than another");
    }
}
