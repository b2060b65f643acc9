//! An operator, who looks at locks from another machine and takes some away from a user that was seen to have them.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{CurrentHolder, Redlock};
use tokio::time::sleep;

use crate::deeds::Deed;
use crate::demand::NAMES;
use crate::invariants::bounds::Watch;
use crate::invariants::taken::Taken;
use crate::rng::Rng;
use crate::scenario::Part;
use crate::world::World;

pub(crate) struct Operator {
    world: Arc<World>,
    rng: Rng,
}

impl Operator {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), rng: world.scenario.rng(Part::Operator) }
    }

    /// Until faults have ended.
    pub(crate) async fn live(mut self) {
        while !self.world.is_calm() {
            let pause = self.some_time(1);
            sleep(pause).await;
            let machine = self.rng.index(self.world.machines.len());
            let resource = self.rng.index(NAMES.len() - 1);
            self.world.machines[machine].awake().await;
            if let Some((client, _)) = self.world.client(machine) {
                self.look(machine, &client, resource).await;
            }
        }
    }

    /// Up to a ttl divided by so much.
    fn some_time(&mut self, part: u64) -> Duration {
        let ttl_ms = u64::try_from(self.world.scenario.ttl.as_millis()).unwrap_or(1_000);
        Duration::from_millis(self.rng.below(ttl_ms / part + 2))
    }

    async fn look(&mut self, machine: usize, client: &Redlock, resource: usize) {
        let watch = Watch::begin(&self.world, machine);
        let seen = client.inspect(NAMES[resource]).await;
        watch.round("an inspection ends in time");
        self.world.history().stats.did(Deed::Inspect);
        let Some(by) = seen.ok().and_then(|seen| seen.holder().map(|holder| holder.by.clone())) else { return };
        // By the time that the operator has made up their mind it may be another user's.
        if self.rng.percent(50) {
            let pause = self.some_time(2);
            sleep(pause).await;
            self.world.machines[machine].awake().await;
        }
        // On its own machine it would send a release beside the holder's own requests.
        if by.label != Some(format!("c{machine}")) {
            self.take_away(machine, client, resource, &by).await;
        }
    }

    async fn take_away(&self, machine: usize, client: &Redlock, resource: usize, by: &CurrentHolder) {
        let world = &self.world;
        let taken = Taken::new(1 << resource, by);
        let held = world.held_by(&taken, by);
        world.history().stats.did(Deed::ForceRelease);
        let watch = Watch::begin(world, machine);
        let Ok(forced) = client.force_release(NAMES[resource], by).await else { return };
        watch.round("a forced release ends in time");
        world.note("taken away", [resource as u64, forced.released_on.len() as u64], || {
            format!("from {by}: {forced:?}")
        });
        world.check_taken(&forced, held).await;
    }
}
