//! A mark that was left with `keep_for` keeps everybody out for its time, as long as no instance forgets it.

use std::time::Duration;

use super::promises::loses_data;
use crate::faults::FaultKind;
use crate::history::Hold;
use crate::judge::{Judge, Vote};
use crate::world::World;

/// A mark that a quorum has confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) resources: u8,
    pub(crate) value: Vec<u8>,
    /// When it was asked for, in true time.
    pub(crate) since: Duration,
    pub(crate) time: Duration,
}

impl Kept {
    /// For how long a server keeps it in true time: as long as it was to be, whatever the rate of its clock, which counts in milliseconds.
    fn stands(&self) -> Duration {
        self.time.saturating_sub(Duration::from_millis(2))
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
            self.judge().certified(&value, self.scenario.quorum, |vote| is_mark(vote, time)) > Duration::ZERO;
        if !is_confirmed {
            let what = format!("lock {number} for {time:?}: {}", self.judge().told(&value));
            self.violate("a mark is confirmed by a quorum", what);
        }
    }

    /// On each server that has confirmed the mark and votes for another in its time, something has ended it.
    pub(super) fn check_marks(&self, number: usize) {
        self.absorb();
        let at = self.at();
        let mut history = self.history();
        let hold = &history.holds[number];
        let judge = self.judge();
        let stands = |kept: &&Kept| kept.resources & hold.resources != 0 && kept.value != hold.value;
        let lets_in = |kept: &Kept| self.lets_in(&judge, kept, hold);
        let broken = history.kept.iter().filter(stands).find(|kept| lets_in(kept)).map(|kept| {
            let votes = [&kept.value, &hold.value].map(|value| judge.told(value));
            format!("lock {number} in the {:?} since {:?}: {}", kept.time, kept.since, votes.join(" / "))
        });
        drop(judge);
        if let Some(what) = broken {
            history.violate(at, "a mark keeps others out", what);
        }
    }

    fn lets_in(&self, judge: &Judge, kept: &Kept, hold: &Hold) -> bool {
        let marks =
            judge.votes(&kept.value).iter().filter(|vote| vote.extends() && vote.grants() && is_mark(vote, kept.time));
        let grants =
            || judge.votes(&hold.value).iter().filter(|vote| vote.grants() && vote.is_whole && judge.may_vote(vote));
        marks.into_iter().any(|mark| {
            let mut later = grants().filter(|vote| vote.server == mark.server && vote.command > mark.command);
            let Some(first) = later.next() else { return false };
            let is_ended = judge.is_taken_away(&kept.value, None, [mark, first])
                || judge.accidents_between([mark, first]).any(|accident| ends_marks(accident.what));
            first.at < mark.at + kept.stands() && !is_ended
        })
    }
}

/// Whether it is for so long, and for the drift besides, by which it is longer than a lease of that time.
fn is_mark(vote: &Vote, time: Duration) -> bool {
    vote.ttl >= time + time / 100
}

/// A mark is no lease: no quarantine is as long, and no user is told of its end.
const fn ends_marks(what: FaultKind) -> bool {
    loses_data(what) || matches!(what, FaultKind::StepForward)
}
