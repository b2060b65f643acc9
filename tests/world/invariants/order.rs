//! Every later user of a resource has a larger token.

use crate::world::World;

impl World {
    pub(super) fn check_order(&self, number: usize) {
        let at = self.at();
        let mut history = self.history();
        let hold = &history.holds[number];
        let (token, resources, has_holder) = (hold.token, hold.resources, hold.has_holder);
        for key in (0..3).filter(|key| resources & (1 << key) != 0) {
            let (highest, of_holder) = (history.highest[key], history.highest_of_holder[key]);
            // P23: the same holder may have been let in elsewhere, or again, before its user took this.
            let is_succeeded = has_holder && of_holder >= Some(token);
            history.holds[number].is_succeeded |= is_succeeded;
            if highest.is_some_and(|highest| token <= highest) && !is_succeeded {
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
            if has_holder {
                history.highest_of_holder[key] = of_holder.max(Some(token));
            }
        }
    }
}
