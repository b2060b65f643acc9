//! Every later holder of a resource has a larger token.
//!
//! After an instance has lost its data the order rests on wall clocks (P13): then it is checked
//! only if these are close together. Who sets tokens by hand where two quorums meet has undone it.

use crate::instance::keys;
use crate::world::World;

impl World {
    pub(super) fn check_fencing_order(&mut self, c: usize) {
        let Some(held) = &self.clients[c].held else { return };
        let (token, mask) = (held.lease.token(), held.ticket.keys);
        let all_is_kept = self.servers.iter().all(|server| !server.lost_data);
        let poisoned = self.servers.iter().filter(|server| server.poisoned).count();
        let quorum = self.scenario.quorum;
        let promised = match poisoned {
            0 => !self.scenario.far_wall_clocks || all_is_kept,
            poisoned => all_is_kept && quorum.instances() + poisoned < 2 * quorum.votes(),
        };
        for key in keys(mask) {
            let (highest, of_holder) = (self.history.highest[key], self.history.highest_of_holder[key]);
            // P23: the same holder may have been let in elsewhere between the grants and the verdict.
            let is_succeeded = self.scenario.holder_of(c).is_some() && of_holder > Some(token);
            if highest.is_some_and(|highest| token <= highest) && !is_succeeded {
                if promised {
                    let last = highest.map_or(0, |highest| highest.get());
                    self.violate("fencing order", format!("resource {key}: {token} after {last}"));
                } else {
                    self.stats.uncovered += 1;
                }
            }
            self.history.highest[key] = highest.max(Some(token));
            if self.scenario.holder_of(c).is_some() {
                self.history.highest_of_holder[key] = of_holder.max(Some(token));
            }
        }
    }
}
