//! Every later user of a resource has a larger token.

use super::promises::Excuse;
use crate::demand::NAMES;
use crate::world::World;

impl World {
    pub(super) fn check_order(&self, number: usize) {
        self.absorb(); // an excuse is found in the votes
        let at = self.at();
        let mut history = self.history();
        let hold = &history.holds[number];
        if hold.reads {
            return; // readers have no token
        }
        // P23, P32: the guards of one lease have one token.
        let (token, resources, shares) = (hold.token, hold.resources, hold.shares || hold.attached.is_some());
        // One that is over when it is given, as its user was not polled in time, is nobody's.
        let is_over = !hold.is_valid();
        let is_late = hold.attached.is_some_and(|attached| attached.is_late);
        for key in (0..NAMES.len()).filter(|key| resources & (1 << key) != 0) {
            let highest = history.highest[key];
            let is_same = shares && highest == Some(token);
            if highest.is_some_and(|highest| token <= highest) && !is_same && !is_over {
                // Locks of other resources may have the same token.
                let mut before = history.holds[..number].iter().filter(|hold| hold.resources & (1 << key) != 0);
                let former = before.find(|hold| Some(hold.token) == highest);
                let excuse = former.and_then(|former| self.excuses_order([former, &history.holds[number]]));
                let excuse = excuse.or(is_late.then_some(Excuse::AttachedLate));
                if let Some(excuse) = excuse {
                    history.stats.excused[excuse as usize] += 1;
                } else {
                    let told = former.map(|former| self.judge().told(&former.value));
                    let told = [told.unwrap_or_default(), self.judge().told(&history.holds[number].value)];
                    let what =
                        format!("lock {number}, resource {key}: {token} after {highest:?}: {}", told.join(" / "));
                    history.violate(at, "order of tokens", what);
                }
            }
            history.highest[key] = highest.max(Some(token));
        }
    }
}
