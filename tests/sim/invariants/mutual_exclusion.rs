//! In true time, no two clients rely on the same resource.
//!
//! With clock steps only where P17 promises it: where every instance whose clock was stepped forward
//! lately was seen, before the step, over the connection by which it voted. The rest is counted.

use crate::scenario::MS;
use crate::world::World;

impl World {
    pub(super) fn check_mutual_exclusion(&mut self, c: usize) {
        let Some(keys) = self.relied_on(c) else { return };
        for other in (0..self.clients.len()).filter(|other| *other != c) {
            let shared = self.relied_on(other).unwrap_or(0) & keys;
            if shared != 0 && !self.steps_were_watched(c) {
                self.stats.uncovered += 1;
            } else if shared != 0 {
                self.violate("mutual exclusion", format!("clients {c} and {other} both rely on {shared:03b}"));
            }
        }
    }

    /// The resources that a client may rely on at this instant, by its own clock.
    fn relied_on(&self, c: usize) -> Option<u8> {
        let held = self.clients[c].held.as_ref()?;
        held.lease.is_valid(self.client_now(c)).then_some(held.ticket.keys)
    }

    fn steps_were_watched(&self, c: usize) -> bool {
        let lately = 3 * self.scenario.max_ttl_ms * MS;
        (0..self.servers.len()).all(|i| {
            let stepped_at = self.servers[i].stepped_at;
            stepped_at + lately < self.now || self.link(c, i).sampled_at < stepped_at
        })
    }
}
