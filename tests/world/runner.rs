//! Runs one seed in a runtime of its own, whose time passes only where everybody waits.

use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::seed_this_thread;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::batch::Outcome;
use crate::chaos;
use crate::faults::Fault;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::users::User;
use crate::world::World;

/// A run to its end.
pub(crate) fn run(seed: u64, plan: Option<&[Fault]>, told: bool) -> Outcome<Stats> {
    seed_this_thread(seed);
    let scenario = Scenario::new(seed, plan);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let world = runtime.block_on(live(scenario, told));
    drop(runtime);
    let mut history = world.history();
    history.stats.runs = 1;
    history.stats.commands = world.servers.iter().map(|server| server.commands()).sum();
    let hash = history.hash ^ history.stats.commands.rotate_left(32);
    let (violation, log) = (history.violation.take(), history.log.take().unwrap_or_default());
    Outcome { stats: history.stats, hash, violation, log }
}

async fn live(scenario: Scenario, told: bool) -> Arc<World> {
    let world = World::new(scenario, told);
    world.note("begins", [0; 2], || format!("{:?}", world.scenario));
    for fault in world.scenario.plan.clone() {
        tokio::spawn(chaos::carry_out(Arc::clone(&world), fault));
    }
    tokio::spawn(chaos::save(Arc::clone(&world)));
    let users: Vec<_> = (0..world.scenario.users).map(|index| tokio::spawn(User::new(&world, index).live())).collect();
    sleep(world.scenario.chaos).await;
    world.calm_down();
    for user in users {
        if let Err(error) = user.await {
            world.violate("nothing panics", error.to_string());
        }
    }
    world.check_shutdown().await;
    world.history().holds.clear();
    // By now all locks have run out, and nobody looks after any.
    sleep(Duration::from_secs(10) + world.set_back() + world.scenario.max_ttl * 3).await;
    world.check_no_keys();
    world.check_tasks();
    let time_ms = u64::try_from(world.at().as_millis()).unwrap_or(0);
    world.history().stats.time_ms = time_ms;
    world
}
