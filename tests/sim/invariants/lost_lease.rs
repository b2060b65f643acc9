//! A lost lease is never valid again, a won one is valid, and validity never shrinks.

use redquorum::protocol::Instant;

use crate::world::World;

impl World {
    pub(super) fn check_won_in_time(&mut self, c: usize) {
        let Some(held) = &self.clients[c].held else { return };
        let left = held.lease.remaining(self.client_now(c));
        if left < held.lease.terms().min_remaining() {
            self.violate("a won lease has the least validity left", format!("client {c} has {left:?}"));
        }
    }

    pub(super) fn check_never_revived(&mut self, c: usize, was_valid: bool, was_until: Instant) {
        let Some(held) = &self.clients[c].held else { return };
        let (is_valid, until) = (held.lease.is_valid(self.client_now(c)), held.lease.valid_until());
        if is_valid && !was_valid {
            self.violate("a lost lease is never valid again", format!("client {c}"));
        }
        if until < was_until {
            self.violate("validity never shrinks", format!("client {c}"));
        }
    }

    /// A renewed lease survives when the instances are restarted one after the other (P10).
    pub(crate) fn note_loss(&mut self, c: usize) {
        if self.scenario.kind == crate::scenario::Kind::RollingRestart && !self.calm {
            self.violate("a renewed lease survives a rolling restart", format!("client {c} lost it"));
        }
    }
}
