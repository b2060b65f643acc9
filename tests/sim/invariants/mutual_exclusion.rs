//! In true time, no two clients of different holders rely on the same resource.
//!
//! With clock steps only where P17 promises it: where every instance whose clock was stepped forward
//! lately was seen, before the step, over the connection by which it voted. With old copies of the
//! data only where P15 promises it: the winner was told over its connection, or had seen a later
//! record. Whoever won first need not be the one who should not have: its quorum may be older than the
//! copy. The rest is counted.

use crate::instance::keys;
use crate::scenario::MS;
use crate::world::World;

impl World {
    pub(super) fn check_mutual_exclusion(&mut self, c: usize) {
        self.note_coverage(c);
        let Some(keys) = self.relied_on(c) else { return };
        let holder = self.scenario.holder_of(c);
        for other in (0..self.clients.len()).filter(|other| *other != c) {
            if holder.is_some() && holder == self.scenario.holder_of(other) {
                continue; // P23: two leases of one holder, ordered by their tokens
            }
            let shared = self.relied_on(other).unwrap_or(0) & keys;
            let is_covered = |c: usize| self.clients[c].held.as_ref().is_some_and(|held| held.is_covered);
            if shared != 0 && !(is_covered(c) && is_covered(other)) {
                self.stats.uncovered += 1;
            } else if shared != 0 {
                self.violate("mutual exclusion", format!("clients {c} and {other} both rely on {shared:03b}"));
            }
        }
    }

    /// The resources that a client may rely on at this instant, by its own clock.
    fn relied_on(&self, c: usize) -> Option<u8> {
        let held = self.clients[c].held.as_ref()?;
        let relies = held.lease.is_valid(self.client_now(c)) && !held.is_succeeded;
        relies.then_some(held.ticket.keys)
    }

    /// Notes which leases of the same holder are earlier ones from now on: those that were won before, and
    /// whatever has a smaller token than one that was.
    pub(super) fn note_succession(&mut self, c: usize) {
        let (Some(holder), Some(won)) = (self.scenario.holder_of(c), self.clients[c].held.as_ref()) else { return };
        let (token, mask) = (won.lease.token(), won.ticket.keys);
        let is_late = keys(mask).any(|key| self.history.highest_of_holder[key] > Some(token));
        for other in 0..self.clients.len() {
            let is_earlier = if other == c { is_late } else { self.scenario.holder_of(other) == Some(holder) };
            if let Some(held) =
                self.clients[other].held.as_mut().filter(|held| is_earlier && held.ticket.keys & mask != 0)
            {
                held.is_succeeded = true;
            }
        }
    }

    /// A lease is promised to its client alone as long as that was so whenever it won a round.
    fn note_coverage(&mut self, c: usize) {
        let is_covered = self.steps_were_watched(c) && self.restores_were_noticed(c);
        if let Some(held) = &mut self.clients[c].held {
            held.is_covered &= is_covered;
        }
    }

    fn restores_were_noticed(&self, c: usize) -> bool {
        let lately = 3 * self.scenario.max_ttl_ms * MS;
        (0..self.servers.len()).all(|i| {
            let (restored_at, link) = (self.servers[i].restored_at, self.link(c, i));
            restored_at == 0 || restored_at + lately < self.now || link.sampled_at < restored_at || link.knows_better
        })
    }

    fn steps_were_watched(&self, c: usize) -> bool {
        let lately = 3 * self.scenario.max_ttl_ms * MS;
        (0..self.servers.len()).all(|i| {
            let stepped_at = self.servers[i].stepped_at;
            stepped_at + lately < self.now || self.link(c, i).sampled_at < stepped_at
        })
    }
}
