//! Every operation that is polled ends in its bound, also beside futures that are not polled.

use std::time::Duration;

use crate::time::{now, since};
use crate::world::World;

/// What timers and tasks may take beside the network.
const SLACK: Duration = Duration::from_millis(60);

/// The time that one operation takes.
pub(crate) struct Watch<'a> {
    world: &'a World,
    client: usize,
    /// The machine of the waiter.
    user: usize,
    begun: Duration,
}

impl<'a> Watch<'a> {
    pub(crate) fn begin(world: &'a World, client: usize) -> Self {
        Self::begin_for(world, client, client)
    }

    /// For a user on another machine: if that is blocked, it hears late.
    pub(crate) fn begin_for(world: &'a World, client: usize, user: usize) -> Self {
        Self { world, client, user, begun: now() }
    }

    /// One round, repeated once.
    pub(crate) fn round(&self, invariant: &'static str) {
        self.check(invariant, self.world.scenario.instance_timeout * 2 + SLACK);
    }

    /// An acquire: its first try may wait for its turn, and have its token repeated.
    pub(crate) fn acquire(&self, limit: Duration) {
        self.check("an acquire ends in time", limit + self.world.scenario.instance_timeout * 6 + SLACK);
    }

    /// A try: where votes split it asks again up to eight times, each after a pause of an instance timeout and two rounds at
    /// most (P31).
    pub(crate) fn try_acquire(&self) {
        self.check("a try ends in time", self.world.scenario.instance_timeout * (1 + 9 + 8 * 3) + SLACK);
    }

    pub(crate) fn shutdown(&self, limit: Duration) {
        self.check("a shutdown ends in time", limit + SLACK);
    }

    fn check(&self, invariant: &'static str, most: Duration) {
        let took = since(self.begun);
        // By the client's clock, which may be slower by the drift.
        let is_disturbed = |client: usize| self.world.machines[client].was_disturbed_since(self.begun);
        if took > most + most / 50 && !is_disturbed(self.client) && !is_disturbed(self.user) {
            self.world.violate(invariant, format!("client {}: {took:?} instead of {most:?}", self.client));
        }
    }
}
