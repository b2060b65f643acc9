//! Every later user of a resource has a larger token.

use crate::demand::NAMES;
use crate::world::World;

impl World {
    pub(super) fn check_order(&self, number: usize) {
        let at = self.at();
        let mut history = self.history();
        let hold = &history.holds[number];
        if hold.reads {
            return; // readers have no token
        }
        let (token, resources, shares) = (hold.token, hold.resources, hold.shares);
        for key in (0..NAMES.len()).filter(|key| resources & (1 << key) != 0) {
            let highest = history.highest[key];
            // P23: the guards of one lease have one token.
            let is_same = shares && highest == Some(token);
            if highest.is_some_and(|highest| token <= highest) && !is_same {
                let hold = &history.holds[number];
                let former = history.holds[..number].iter().find(|hold| Some(hold.token) == highest);
                // Taken late, it was won before: both had the lock at once, which is a matter of exclusion.
                let overlap = former.filter(|former| hold.won_by < former.given_at);
                let excuse = self.excuses_order(at, &history, hold);
                let excuse = excuse.or_else(|| self.excuses_overlap(at, &history, [overlap?, hold]));
                if let Some(excuse) = excuse {
                    history.stats.excused[excuse as usize] += 1;
                } else {
                    let what = format!("lock {number}, resource {key}: {token} after {highest:?}");
                    history.violate(at, "order of tokens", what);
                }
            }
            history.highest[key] = highest.max(Some(token));
        }
    }
}
