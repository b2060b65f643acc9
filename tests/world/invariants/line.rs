//! Those of one client who wait for the same locks get them in the order in which they came (P24).

use std::time::Duration;

use crate::demand::{Demand, Way};
use crate::history::Hold;
use crate::schedule::Schedule;
use crate::time::now;
use crate::world::World;

/// A user in a line that is polled all along.
pub(crate) struct Waiting {
    place: u64,
    client: (usize, u64),
    resources: u8,
    begun: Duration,
}

impl Waiting {
    pub(crate) fn is_in(&self, client: usize) -> bool {
        self.client.0 == client
    }
}

/// A place in a line, until its user knows what has come of it.
pub(crate) struct Place<'a> {
    world: &'a World,
    place: u64,
    client: (usize, u64),
    resources: u8,
}

impl<'a> Place<'a> {
    /// `None` for those who stand in no line, as they try once, and for a holder, which may pass by (P23).
    pub(crate) fn join(world: &'a World, client: (usize, u64), demand: &Demand, schedule: Schedule) -> Option<Self> {
        if demand.way == Way::Try || demand.has_holder {
            return None;
        }
        let mut history = world.history();
        history.places += 1;
        let (place, resources) = (history.places, demand.resources);
        // A user that is not polled may be passed over, and a user that is polled late joins late.
        if schedule == Schedule::Steadily {
            history.waiting.push(Waiting { place, client, resources, begun: now() });
        }
        Some(Self { world, place, client, resources })
    }

    /// It was given the locks.
    pub(crate) fn check(&self) {
        let (at, machine) = (self.world.at(), &self.world.machines[self.client.0]);
        let is_before = |other: &Waiting| {
            let is_same = (other.client, other.resources) == (self.client, self.resources);
            is_same && other.place < self.place && !machine.was_disturbed_since(other.begun)
        };
        let Some(passed) = self.world.history().waiting.iter().find(|other| is_before(other)).map(|other| other.place)
        else {
            return;
        };
        if self.may_have_been_lost() {
            return self.world.history().waiting.retain(|other| !is_before(other));
        }
        let what = format!("client {}: {passed} came before {}", self.client.0, self.place);
        self.world.history().violate(at, "a line is served in its order", what);
    }

    /// Whether the lease that its client had before may have been lost. Then the waiter that it was handed to has found that when
    /// it was polled, and waits anew (P22).
    fn may_have_been_lost(&self) -> bool {
        let history = self.world.history();
        let is_of_it = |hold: &&Hold| ((hold.client, hold.life), hold.resources) == (self.client, self.resources);
        let Some(former) = history.holds.iter().rfind(is_of_it).map(|hold| hold.value.clone()) else { return false };
        drop(history);
        self.world.may_be_found_lost(&former)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.world.history().waiting.retain(|other| other.place != self.place);
    }
}
