//! Runs one seed.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redquorum::testing::simulation::seed_this_thread;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::batch::Outcome;
use crate::chaos;
use crate::deeds::Deed;
use crate::faults::{Fault, FaultKind};
use crate::runtimes::run_world;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::World;

/// A run in which a runtime ends runs alone, for its trace to depend on its seed only. The order in which tokio drops the tasks of a
/// runtime depends on their ids, and those are counted in the whole process.
static RUNS: RwLock<()> = RwLock::new(());

/// In so many lists a runtime of one thread keeps its tasks, by their ids.
const TASK_LISTS: u64 = 4;

/// A run to its end.
pub(crate) fn run(seed: u64, plan: Option<&[Fault]>, told: bool) -> Outcome<Stats> {
    seed_this_thread(seed);
    let scenario = Scenario::new(seed, plan);
    let world = if scenario.plan.iter().any(|fault| fault.what == FaultKind::EndRuntime) {
        let _alone = RUNS.write().unwrap_or_else(PoisonError::into_inner);
        align_task_ids();
        run_world(scenario, told)
    } else {
        let _beside = RUNS.read().unwrap_or_else(PoisonError::into_inner);
        run_world(scenario, told)
    };
    let mut history = world.history();
    history.stats.runs = 1;
    history.stats.commands = world.servers.iter().map(|server| server.commands()).sum();
    let hash = history.hash ^ history.stats.commands.rotate_left(32);
    let (violation, log) = (history.violation.take(), history.log.take().unwrap_or_default());
    Outcome { stats: history.stats, hash, violation, log }
}

/// The next task goes into the first of the lists.
fn align_task_ids() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let is_last =
        || runtime.spawn(async {}).id().to_string().parse().is_ok_and(|id: u64| id % TASK_LISTS == TASK_LISTS - 1);
    while !is_last() {}
}

/// What kind of run it is.
fn note_kind(world: &World) {
    let Scenario { admission, quorum, servers, apart, .. } = world.scenario;
    let mut history = world.history();
    let kinds = [
        (Deed::AdmissionOff, !admission),
        (Deed::LargerQuorum, quorum > servers / 2 + 1),
        (Deed::RuntimeApart, apart.is_some()),
    ];
    kinds.iter().filter(|(_, is_so)| *is_so).for_each(|(kind, _)| history.stats.did(*kind));
}

/// Judges all that is held, until nobody holds anything.
async fn look_at_all(world: Arc<World>) {
    loop {
        sleep(world.scenario.ttl / 40).await;
        world.check_held();
    }
}

/// The life of a world, but for what is in a runtime of its own.
pub(crate) async fn live(world: Arc<World>) {
    world.note("begins", [0; 2], || format!("{:?}", world.scenario));
    for fault in world.scenario.plan.clone() {
        tokio::spawn(chaos::carry_out(Arc::clone(&world), fault));
    }
    tokio::spawn(chaos::save(Arc::clone(&world)));
    let recorder = world.begin_recorder().await;
    let here = (0..world.machines.len()).filter(|client| world.scenario.apart != Some(*client));
    here.for_each(|client| world.begin_users(client));
    world.begin_operator(recorder);
    let judged = tokio::spawn(look_at_all(Arc::clone(&world)));
    note_kind(&world);
    sleep(world.scenario.chaos).await;
    if world.scenario.is_narrow {
        judged.abort();
        world.check_held();
        world.check_sent();
        return world.end_users();
    }
    world.check_tables_are_bounded();
    world.calm_down();
    if !world.check_users_end().await {
        return; // nothing else ends either: keys are still kept alive, and clients are waited for
    }
    // Also those whose users have ended with their runtimes: views of leases keep what they are about.
    world.history().holds.clear();
    judged.abort();
    world.absorb();
    world.check_shutdown().await;
    world.set_over();
    // By now all locks have run out, and nobody looks after any.
    sleep(Duration::from_secs(10) + world.set_back() + world.scenario.max_ttl * 3).await;
    world.check_no_keys();
    world.check_tasks();
    let time_ms = u64::try_from(world.at().as_millis()).unwrap_or(0);
    world.history().stats.time_ms = time_ms;
}
