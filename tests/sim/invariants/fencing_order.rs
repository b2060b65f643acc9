//! Every later holder of a resource has a larger token.
//!
//! After an instance has lost its data the order rests on wall clocks (P13): then it is checked
//! only if these are close together.

use crate::instance::keys;
use crate::world::World;

impl World {
    pub(super) fn check_fencing_order(&mut self, c: usize) {
        let Some(held) = &self.clients[c].held else { return };
        let (token, mask) = (held.lease.token(), held.ticket.keys);
        let promised = !self.scenario.far_wall_clocks || self.servers.iter().all(|server| !server.lost_data);
        for key in keys(mask) {
            let highest = self.history.highest[key];
            if highest.is_some_and(|highest| token <= highest) {
                if promised {
                    let last = highest.map_or(0, |highest| highest.get());
                    self.violate("fencing order", format!("resource {key}: {token} after {last}"));
                } else {
                    self.stats.uncovered += 1;
                }
            }
            self.history.highest[key] = highest.max(Some(token));
        }
    }
}
