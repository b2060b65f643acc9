//! A mark that was left with `keep_for` keeps everybody out for its time, as long as no instance forgets it.

use std::time::Duration;

use super::promises::{is_about_a_clock, loses_data};
use crate::faults::FaultKind;
use crate::world::World;

/// A mark that a quorum has confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) resources: u8,
    /// When it was asked for, in true time.
    pub(crate) since: Duration,
    pub(crate) time: Duration,
}

impl Kept {
    /// Until when it keeps others out: instances' clocks may be fast, and count in milliseconds.
    fn until(&self) -> Duration {
        self.since + self.time * 99 / 100 - Duration::from_millis(2)
    }
}

impl World {
    /// A mark for so long, of which a user was told after it was asked for at this time.
    pub(crate) fn kept(&self, kept: Kept) {
        self.history().kept.push(kept);
    }

    /// It was confirmed: a quorum has said so.
    pub(crate) fn check_mark(&self, number: usize, time: Duration) {
        self.absorb();
        let value = self.history().holds.get(number).map(|hold| hold.value.clone()).unwrap_or_default();
        let is_confirmed =
            self.judge().certified(&value, self.scenario.quorum, |vote| vote.ttl == time) > Duration::ZERO;
        if !is_confirmed {
            let what = format!("lock {number} for {time:?}: {}", self.judge().told(&value));
            self.violate("a mark is confirmed by a quorum", what);
        }
    }

    pub(super) fn check_marks(&self, number: usize) {
        self.absorb();
        let value = self.history().holds[number].value.clone();
        let granted_by = self.judge().granted_by(&value, self.scenario.quorum);
        let mut history = self.history();
        let hold = &history.holds[number];
        // When it was won is told by what is left, which says little where answers were slow, or time has passed that nobody saw.
        let (resources, won_by) = (hold.resources, hold.won_by.max(granted_by.unwrap_or_default()));
        let is_disturbed = self.machines[hold.client].was_disturbed_since(won_by);
        if is_disturbed || self.stood_still_lately(self.at(), &history, hold.client) {
            return;
        }
        // Whatever an instance has forgotten since, and however long before it was asked.
        let is_forgotten = |kept: &Kept| {
            let matters = |what| loses_data(what) || is_about_a_clock(what) || what == FaultKind::Delete;
            let mut faults = history.marks.iter().filter(|mark| matters(mark.what));
            faults.any(|mark| mark.at + self.scenario.max_ttl >= kept.since)
        };
        let is_taken = |kept: &Kept| {
            let mut taken = history.taken.iter().filter(|taken| taken.is_about(kept.resources));
            taken.any(|taken| taken.at + self.scenario.max_ttl >= kept.since)
        };
        let stands = |kept: &&Kept| kept.resources & resources != 0 && kept.since < won_by && won_by < kept.until();
        let broken = history.kept.iter().filter(stands).find(|kept| !is_forgotten(kept) && !is_taken(kept)).copied();
        if let Some(kept) = broken {
            history.violate(self.at(), "a mark keeps others out", format!("lock {number} beside {kept:?}"));
        }
    }
}
