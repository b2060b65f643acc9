//! Every later user of a resource has a larger token.
//!
//! After an instance has lost its data the order rests on wall clocks (P13): then it is promised only if
//! these are close together.

use crate::faults::FaultKind;
use crate::world::World;

impl World {
    pub(super) fn check_order(&self, number: usize) {
        let at = self.at();
        let mut history = self.history();
        let hold = &history.holds[number];
        let (token, resources, has_holder) = (hold.token, hold.resources, hold.has_holder);
        let lost_data = |kind: FaultKind| {
            use FaultKind::{FailOver, Flush, Kill, RestartEmpty, RestartOld, Restore, Resynchronise};
            matches!(kind, FailOver | Flush | Kill | Restore | RestartEmpty | RestartOld | Resynchronise)
        };
        let has_lost = history.marks.iter().any(|mark| lost_data(mark.what));
        let is_off = |kind| matches!(kind, FaultKind::StepForward | FaultKind::StepBack | FaultKind::StandStill);
        let are_off = self.scenario.far_wall_clocks || history.marks.iter().any(|mark| is_off(mark.what));
        for key in (0..3).filter(|key| resources & (1 << key) != 0) {
            let (highest, of_holder) = (history.highest[key], history.highest_of_holder[key]);
            // P23: the same holder may have been let in elsewhere, or again, before its user took this.
            let is_succeeded = has_holder && of_holder >= Some(token);
            history.holds[number].is_succeeded |= is_succeeded;
            if highest.is_some_and(|highest| token <= highest) && !is_succeeded {
                if has_lost && are_off {
                    history.stats.uncovered += 1;
                } else {
                    let what = format!("lock {number}, resource {key}: {token} after {highest:?}");
                    history.violate(at, "order of tokens", what);
                }
            }
            history.highest[key] = highest.max(Some(token));
            if has_holder {
                history.highest_of_holder[key] = of_holder.max(Some(token));
            }
        }
    }
}
