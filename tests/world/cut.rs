//! G5: a lease that a quorum keeps is not lost, while the links of its client are cut one after the other, or its servers are full.

use std::time::Duration;

use redquorum::testing::simulation::lease_of;
use redquorum::{LeaseView, ReadGuard, Redlock};
use tokio::time::sleep;

use crate::demand::{Demand, Way, ask_at, ask_for};
use crate::faults::FaultKind;
use crate::schedule::{Boxed, Schedule};
use crate::sharers::SHARED;
use crate::users::User;
use crate::world::World;

/// How often it is looked at.
const TICK: Duration = Duration::from_millis(1);

impl User {
    /// Has one lock for as long as it can.
    pub(crate) async fn live_cut(mut self) {
        let demand = Demand { resources: 1, has_holder: false, way: Way::Wait, max_hold: None };
        let at = (self.client, self.client);
        let (is_full, reads) = (self.world.has_full_servers(), self.rng.percent(50));
        loop {
            if is_full && reads {
                let read = |client: Redlock| {
                    Box::pin(async move { client.rw_lock(SHARED).read().await }) as Boxed<Result<ReadGuard, _>>
                };
                let asked = ask_for(&self.world, at, (&demand, Schedule::Steadily), false, read).await;
                let Some((guard, life)) = asked else { return };
                let number = self.world.given_to_reader((self.client, life), demand.resources, &lease_of(&guard));
                self.world.check_kept_until_lost(number, &lease_of(&guard)).await;
            } else {
                let Some((guard, life)) = ask_at(&self.world, at, &demand, Schedule::Steadily).await else { return };
                let number = self.world.given((self.client, life), demand.resources, false, &guard.lease());
                self.world.check_kept_until_lost(number, &guard.lease()).await;
            }
        }
    }
}

impl World {
    /// Whether nothing else is wrong with them.
    fn has_full_servers(&self) -> bool {
        let plan = &self.scenario.plan;
        !plan.is_empty() && plan.iter().all(|fault| fault.what == FaultKind::MemoryFull)
    }

    pub(crate) async fn check_kept_until_lost(&self, number: usize, lease: &LeaseView) {
        let value = self.history().holds[number].value.clone();
        let (mut is_kept, mut left) = (true, Duration::ZERO);
        while lease.is_valid() {
            let servers = self.servers.iter().filter(|server| server.locks().iter().any(|(_, of)| *of == value));
            is_kept &= servers.count() >= self.scenario.quorum;
            left = lease.remaining();
            sleep(TICK).await;
        }
        let what = || format!("lock {number}, with {left:?} left: {}", self.judge().told(&value));
        // It has not just run out.
        if is_kept && left > TICK * 5 {
            let what = what();
            self.violate("a lease that a quorum keeps is not lost", what);
        }
        if self.has_full_servers() {
            self.check_kept_while_full(number, lease);
        }
        self.let_go(number);
    }

    /// Nothing else is wrong.
    pub(crate) fn check_kept_while_full(&self, number: usize, lease: &LeaseView) {
        if !lease.is_valid() {
            self.violate("what is held is kept where memory is full", format!("lock {number}"));
        }
    }
}
