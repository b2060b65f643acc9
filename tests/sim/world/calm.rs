//! The end of a run: faults stop, everybody lets go, and one client tries alone.

use super::{Event, World, tell};
use crate::client::RoundInFlight;
use crate::scenario::MS;

/// A round trip of the calm network for each instance, with room: below any instance timeout.
const PROGRESS_BOUND: u64 = 4 * MS;

impl World {
    /// From here on nothing goes wrong any more, except that some instances may stay hung.
    pub(super) fn begin_calm(&mut self) {
        tell!(self, "faults end");
        self.calm = true;
        for i in 0..self.servers.len() {
            self.restart(i, 0);
            self.servers[i].lies = false;
        }
        self.heal_links();
        for c in 0..self.clients.len() {
            self.resume(c);
            self.reborn(c);
            self.stop(c);
        }
        for i in 0..self.scenario.hung_at_the_end {
            for c in 0..self.clients.len() {
                let link = self.link_mut(c, i);
                (link.cut_to, link.cut_from) = (u64::MAX / 2, u64::MAX / 2);
            }
        }
        let settle = 3 * self.scenario.max_ttl_ms + 5 * self.scenario.ttl_ms;
        self.schedule(settle * MS * 9 / 10, Event::Heartbeat);
        if self.scenario.changes_max_ttl() {
            // Who waits for longer has written records anew (P29), perhaps behind somebody who had read them.
            self.schedule(settle * MS * 19 / 20, Event::Heartbeat);
        }
        self.schedule(settle * MS, Event::Probe);
    }

    /// In production a record that changes is pushed to the clients.
    pub(super) fn heartbeat(&mut self) {
        for c in 0..self.clients.len() {
            for i in 0..self.servers.len() {
                self.begin_admission(c, i, false);
            }
        }
    }

    pub(super) fn probe(&mut self) {
        self.check_nothing_left();
        let c = self.rng.index(self.clients.len());
        let c = if self.clients[c].is_apart { 0 } else { c };
        tell!(self, "client {c} tries alone");
        self.probing = Some(c);
        self.begin_acquire(c);
        self.schedule(PROGRESS_BOUND, Event::End);
    }

    /// A stale proposal and hung instances together: the round waits for the deadline, as the hung
    /// ones could still grant, and is repeated after it.
    fn may_take_longer(&self) -> bool {
        let Some(c) = self.probing else { return false };
        let hung = self.scenario.hung_at_the_end > 0;
        let stale = self.clients[c].rounds_in_flight.iter().any(RoundInFlight::has_stale);
        hung && stale && !self.history.probe_won && !self.history.probe_prolonged
    }

    pub(super) fn end(&mut self) {
        if self.may_take_longer() {
            self.history.probe_prolonged = true;
            return self.schedule(2 * self.scenario.timeout, Event::End);
        }
        self.check_progress();
        self.mix(self.now);
        self.ended = true;
    }
}
