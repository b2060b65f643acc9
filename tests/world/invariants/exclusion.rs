//! In true time, no two users rely on the same resource, but readers, and those of a holder that share a lease in their client.

use crate::world::World;

impl World {
    pub(super) fn check_exclusion(&self, number: usize) {
        self.absorb();
        let at = self.at();
        let mut history = self.history();
        let history = &mut *history;
        let (earlier, later) = history.holds.split_at_mut(number);
        let Some(new) = later.first().filter(|new| new.is_valid()) else { return };
        let mut overlaps = Vec::new();
        for (other, old) in earlier.iter_mut().enumerate() {
            if old.lease.is_none() || old.resources & new.resources == 0 {
                continue;
            }
            if !old.is_valid() {
                old.was_over = true;
            } else if !old.may_be_beside(new) {
                overlaps.push(other);
            }
        }
        for other in overlaps {
            let (one, new) = (&history.holds[other], &history.holds[number]);
            if let Some(excuse) = self.excuses_overlap([one, new]) {
                history.stats.excused[excuse as usize] += 1;
                history.excused_pairs.push([other, number]);
            } else {
                let votes = [&one.value, &new.value].map(|value| self.judge().told(value));
                let clients = format!("locks {other} (client {}) and {number} (client {})", one.client, new.client);
                let what = format!("{clients}: {}", votes.join(" / "));
                let is_shared = one.reads || new.reads;
                history.violate(at, if is_shared { "no reader beside a writer" } else { "exclusion" }, what);
            }
        }
    }
}
