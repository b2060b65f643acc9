//! In true time, no two users of different holders rely on the same resource.
//!
//! Where `docs/safety.md` does not promise it, the overlap is counted: with a clock that was stepped
//! forward, an old copy of the data that somebody was not told of, a machine whose clock stood still, an
//! earlier lease of the same holder.

use std::time::Duration;

use crate::faults::FaultKind;
use crate::history::{History, Hold};
use crate::world::World;

impl World {
    pub(super) fn check_exclusion(&self, number: usize) {
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
            if old.has_holder && new.has_holder {
                old.is_succeeded |= (old.client, old.life) != (new.client, new.life);
            } else if old.is_valid() {
                overlaps.push(other);
            } else {
                old.was_over = true;
            }
        }
        for other in overlaps {
            if self.is_promised(at, history, &history.holds[other], &history.holds[number]) {
                let (one, new) = (&history.holds[other], &history.holds[number]);
                let what = format!("locks {other} (client {}) and {number} (client {})", one.client, new.client);
                history.violate(at, "exclusion", what);
            } else {
                history.stats.uncovered += 1;
            }
        }
    }

    fn is_promised(&self, at: Duration, history: &History, old: &Hold, new: &Hold) -> bool {
        if old.is_succeeded || new.is_succeeded {
            return false;
        }
        let lately = self.scenario.max_ttl * 3 + self.set_back_in(history);
        let clients = [old.client, new.client];
        !history.marks.iter().filter(|mark| mark.at + lately + LONGEST_FAULT >= at).any(|mark| match mark.what {
            // P17 promises more than this; see there.
            FaultKind::StepForward => true,
            FaultKind::StandStill => clients.contains(&mark.client),
            FaultKind::Restore | FaultKind::Resynchronise => {
                clients.iter().any(|client| mark.witnesses & (1 << client) == 0)
            }
            _ => false,
        })
    }
}

/// How long a fault lasts at most.
pub(super) const LONGEST_FAULT: Duration = Duration::from_secs(3);
