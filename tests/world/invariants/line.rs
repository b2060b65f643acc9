//! Those of one client who wait for the same locks get them in the order in which they came (P24).

use std::collections::HashSet;
use std::time::Duration;

use redquorum::testing::simulation::{Said, Server, StepKind};

use crate::demand::{Demand, Way};
use crate::judge::Vote;
use crate::schedule::Schedule;
use crate::time::now;
use crate::world::World;

/// Somebody in a line who is polled all along.
pub(crate) struct Waiting {
    place: u64,
    client: (usize, u64),
    resources: u8,
    begun: Duration,
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
        // Whoever is not polled may be passed over, and whoever is polled late joins late.
        if schedule == Schedule::Steadily {
            history.waiting.push(Waiting { place, client, resources, begun: now() });
        }
        Some(Self { world, place, client, resources })
    }

    /// It was given the locks.
    pub(crate) fn check(&self) {
        let (at, machine) = (self.world.at(), &self.world.machines[self.client.0]);
        let mut history = self.world.history();
        let is_before = |other: &&Waiting| {
            let is_same = (other.client, other.resources) == (self.client, self.resources);
            is_same && other.place < self.place && !machine.was_disturbed_since(other.begun)
        };
        if let Some(other) = history.waiting.iter().find(is_before) {
            let what = format!("client {}: {} came before {}", self.client.0, other.place, self.place);
            history.violate(at, "a line is served in its order", what);
        }
    }
}

impl World {
    /// A lease that its client may find lost (P20) is handed over: the next finds that when it polls, and waits anew (P22).
    /// So nobody who waits now can be said to be passed.
    pub(crate) fn excuse_lost_hand_over(&self, number: usize) {
        let mut history = self.history();
        let Some(hold) = history.holds.get(number) else { return };
        let (client, resources, value) = ((hold.client, hold.life), hold.resources, hold.value.clone());
        let is_for_it = |waiting: &Waiting| (waiting.client, waiting.resources) == (client, resources);
        if !history.waiting.iter().any(is_for_it) {
            return;
        }
        let mut judge = self.judge();
        let was_missing =
            |vote: &Vote| matches!((vote.kind, vote.said), (_, Said::Repaired) | (StepKind::Extend, Said::No));
        let votes = judge.rounds_of(&value).votes.iter();
        let mut without: HashSet<_> = votes.filter(|vote| was_missing(vote)).map(|vote| vote.server).collect();
        drop(judge);
        let has_it = |server: &Server| server.locks().iter().any(|(_, stored)| *stored == value);
        without.extend((0..self.servers.len()).filter(|at| !has_it(&self.servers[*at])));
        if without.len() > self.servers.len() - self.scenario.quorum {
            history.waiting.retain(|waiting| !is_for_it(waiting));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.world.history().waiting.retain(|other| other.place != self.place);
    }
}
