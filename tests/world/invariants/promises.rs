//! What is not promised: the only excuses there are, each with the assumption of `docs/safety.md` that is broken. What is excused is
//! counted by its excuse.

use std::time::Duration;

use crate::faults::FaultKind;
use crate::history::{History, Hold};
use crate::world::World;

/// How long a fault lasts at most.
const LONGEST_FAULT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// A8: nobody deletes keys by hand. (A forced release is of that kind.)
    TakenAway,
    /// A3 and A4: steps of clocks are seen, and no majority is stepped together.
    ClockStep,
    /// A2: the client's clock counts suspended time.
    ClockStoodStill,
    /// A7: old data comes back only while a connected client notices.
    OldCopyUnseen,
    /// A10: all clients have admission on.
    AdmissionOff,
    /// A13: wall clocks agree, after instances lost tokens.
    WallClocksApart,
    /// A10 for tokens: with admission off nothing is waited out.
    OrderWithoutAdmission,
}

impl Excuse {
    pub(crate) const ALL: [Self; 7] = [
        Self::TakenAway,
        Self::ClockStep,
        Self::ClockStoodStill,
        Self::OldCopyUnseen,
        Self::AdmissionOff,
        Self::WallClocksApart,
        Self::OrderWithoutAdmission,
    ];
}

pub(crate) const fn loses_data(kind: FaultKind) -> bool {
    use FaultKind::{FailOver, Flush, Kill, LoadNothing, RestartEmpty, RestartOld, Restore, Resynchronise};
    matches!(kind, FailOver | Flush | Kill | LoadNothing | Restore | RestartEmpty | RestartOld | Resynchronise)
}

pub(crate) const fn is_about_a_clock(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::StepForward | FaultKind::StepBack | FaultKind::StandStill)
}

impl World {
    /// Why two may rely on a resource at this time, if they may.
    pub(super) fn excuses_overlap(&self, at: Duration, history: &History, [old, new]: [&Hold; 2]) -> Option<Excuse> {
        // Keys and quarantines of then are over, as instances count time whose clocks were set back meanwhile.
        let lately = self.scenario.max_ttl * 3 + self.set_back_in(history) + LONGEST_FAULT;
        let clients = [old.client, new.client];
        let mut taken = history.taken.iter().filter(|taken| taken.at + lately >= at);
        if taken.any(|taken| taken.may_be(old) || taken.may_be(new)) {
            return Some(Excuse::TakenAway);
        }
        history.marks.iter().filter(|mark| mark.at + lately >= at).find_map(|mark| match mark.what {
            FaultKind::StepForward => Some(Excuse::ClockStep),
            FaultKind::Delete => Some(Excuse::TakenAway),
            FaultKind::StandStill if clients.contains(&mark.client) => Some(Excuse::ClockStoodStill),
            FaultKind::LoadNothing | FaultKind::Restore | FaultKind::Resynchronise
                if clients.iter().any(|client| mark.witnesses & (1 << client) == 0) =>
            {
                Some(Excuse::OldCopyUnseen)
            }
            what if !self.scenario.admission && loses_data(what) => Some(Excuse::AdmissionOff),
            _ => None,
        })
    }

    /// Why a later token may be smaller, if it may.
    pub(super) fn excuses_order(&self, at: Duration, history: &History, hold: &Hold) -> Option<Excuse> {
        // A grant from before it stood still, or a lease of then, is taken for valid when others were given larger tokens.
        if self.stood_still_lately(at, history, hold.client) {
            return Some(Excuse::ClockStoodStill);
        }
        let has = |is_of: fn(FaultKind) -> bool| history.marks.iter().any(|mark| is_of(mark.what));
        // A deletion lets a user in beside the holder, who may be given the lock later; a token that is set by hand takes the
        // place of the one that was stored.
        if has(|what| matches!(what, FaultKind::Delete | FaultKind::OddToken)) {
            return Some(Excuse::TakenAway);
        }
        if !has(loses_data) {
            return None;
        }
        let are_apart = self.scenario.far_wall_clocks || has(is_about_a_clock);
        are_apart
            .then_some(Excuse::WallClocksApart)
            .or((!self.scenario.admission).then_some(Excuse::OrderWithoutAdmission))
    }

    /// Whether the clock of a client stood still so lately that it may take a lease that is over for valid.
    pub(super) fn stood_still_lately(&self, at: Duration, history: &History, client: usize) -> bool {
        let lately = self.scenario.max_ttl * 3 + LONGEST_FAULT;
        let of_client = history.marks.iter().filter(|mark| mark.what == FaultKind::StandStill && mark.client == client);
        of_client.into_iter().any(|mark| mark.at + lately >= at)
    }

    /// How far servers' clocks were set back, in all.
    pub(crate) fn set_back_in(&self, history: &History) -> Duration {
        let steps = history.marks.iter().filter(|mark| mark.what == FaultKind::StepBack).count();
        crate::chaos::LONGEST_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }
}
