//! Once faults end and quarantine has passed, a lone acquire succeeds within a stated bound, even
//! if as many instances are hung as a quorum can do without.

use crate::world::World;

impl World {
    pub(crate) fn check_progress(&mut self) {
        if let Some(c) = self.probing
            && !self.history.probe_won
            && self.scenario.kind != crate::scenario::Kind::Steps
        {
            self.violate("a lone acquire succeeds in time", format!("client {c} has not won"));
        }
        // With every instance there and a plain majority, what the first replies say is enough.
        let plain = self.scenario.hung_at_the_end == 0
            && self.scenario.quorum.votes() == self.servers.len() / 2 + 1
            && self.scenario.kind != crate::scenario::Kind::Steps;
        if plain && self.history.probe_repeats > 1 {
            self.violate("a stale proposal is repeated once", format!("{} times", self.history.probe_repeats));
        }
    }
}
