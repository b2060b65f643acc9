//! For each invariant that no planted bug breaks, a scene that does: what a server is said to have done, a history of leases, or a
//! network and servers that are broken, while the library is as it ships. So each is known to see what it is about.

mod histories;
mod requests;
mod troubles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::seed_this_thread;
use redquorum::{Guard, Redlock};

use crate::runtimes::with_world;
use crate::scenario::{Delays, NARROW, Scenario};
use crate::schedule::Boxed;
use crate::world::World;

/// What happens in one, and what it breaks.
struct Scene {
    breaks: &'static str,
    plays: fn(Arc<World>) -> Boxed<()>,
}

/// A scene: the invariant that it breaks, and what is done to the world.
macro_rules! scene {
    ($breaks:literal, |$world:ident| $plays:expr) => {
        super::Scene { breaks: $breaks, plays: |$world| Box::pin(async move { $plays }) }
    };
}
use scene;

/// Three servers and two clients, with nothing in their way and nobody who uses them.
fn quiet() -> Scenario {
    let scenario = Scenario::new(NARROW, Some(&[]));
    let ttl = Duration::from_millis(300);
    Scenario {
        clients: 2,
        ttl,
        max_ttl: ttl,
        instance_timeout: ttl / 5,
        delays: Delays::CALM,
        clocks: vec![(0, scenario.clocks[0].1); 5],
        in_order: Some(1),
        grain_us: 1,
        pushes: true,
        has_left_behind: false,
        is_steady: false,
        ..scenario
    }
}

/// What is broken in a scene where one invariant is off.
fn play(scene: &Scene, off: Option<&'static str>) -> BTreeSet<&'static str> {
    seed_this_thread(0);
    let plays = scene.plays;
    let world = with_world(quiet(), async |world: Arc<World>| {
        world.history().off = off;
        for client in 0..world.machines.len() {
            world.redlock(client).wait_connected(Duration::from_secs(1)).await.expect("servers that are there");
        }
        plays(world).await;
    });
    world.history().broken.clone()
}

fn all() -> Vec<Scene> {
    [requests::scenes(), histories::scenes(), troubles::scenes()].into_iter().flatten().collect()
}

/// The invariants that are broken by one.
pub(crate) fn broken() -> BTreeSet<&'static str> {
    all().iter().map(|scene| scene.breaks).collect()
}

/// Whether each scene breaks what it is about, and whether the run in which that is off loses this scene and no other.
pub(crate) fn are_seen() -> bool {
    let scenes = all();
    let broken: Vec<_> = scenes.iter().map(|scene| play(scene, None)).collect();
    let mut wrong = Vec::new();
    for (scene, broken) in scenes.iter().zip(&broken) {
        if !broken.contains(scene.breaks) {
            wrong.push(format!("the scene of \"{}\" breaks only {broken:?}", scene.breaks));
        }
    }
    let names: BTreeSet<_> = scenes.iter().map(|scene| scene.breaks).collect();
    for off in &names {
        for (scene, all) in scenes.iter().zip(&broken).filter(|(_, all)| all.contains(off)) {
            let mut rest = all.clone();
            rest.remove(off);
            let left = play(scene, Some(off));
            if left != rest {
                wrong.push(format!(
                    "\"{off}\" is off: {left:?} in the scene of \"{}\" instead of {rest:?}",
                    scene.breaks
                ));
            }
        }
    }
    let alone = broken.iter().filter(|broken| broken.len() == 1).count();
    println!("{} invariants are broken by scenes, {alone} of them alone in theirs", names.len());
    wrong.iter().for_each(|wrong| println!("  NOT SEEN: {wrong}"));
    wrong.is_empty()
}

impl World {
    fn redlock(&self, client: usize) -> Redlock {
        self.client(client).expect("a client").0
    }

    /// A lock that a user of the client is given, under the number that the judge has for it.
    async fn gives(&self, client: usize, name: &str, resources: u8) -> (usize, Guard) {
        let (redlock, life) = self.client(client).expect("a client");
        let guard = redlock.lock(name).acquire().await.expect("a lock that is free");
        (self.given((client, life), resources, false, &guard.lease()), guard)
    }
}
