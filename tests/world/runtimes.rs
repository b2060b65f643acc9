//! The runtimes of the simulated world, whose clocks go on together: one for nearly everything, and in some runs
//! one for a client alone, whose thread is blocked while all others go on, or which ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance};

use crate::runner::live;
use crate::scenario::Scenario;
use crate::time::{self, shown, sleep_until};
use crate::world::World;

/// By how much the clocks differ at most: as fine as timers are.
const TICK: Duration = Duration::from_millis(1);

/// The same when nobody does anything any more.
const LONG_TICK: Duration = Duration::from_millis(200);

/// A runtime whose clock goes on only where everybody in it waits.
struct PausedRuntime {
    runtime: Runtime,
    began: Instant,
}

impl PausedRuntime {
    /// One that begins when the world is this old.
    fn new(at: Duration) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        #[expect(clippy::disallowed_methods, reason = "the true time of the simulated world")]
        let began = runtime.block_on(async { Instant::now() }) - at;
        Self { runtime, began }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        time::enter(self.began);
        self.runtime.block_on(future)
    }
}

impl Drop for PausedRuntime {
    fn drop(&mut self) {
        time::enter(self.began); // tasks that are dropped with it read their clocks
    }
}

/// Lives a world to its end.
pub(crate) fn run_world(scenario: Scenario, told: bool) -> Arc<World> {
    time::begin();
    let main = PausedRuntime::new(Duration::ZERO);
    let world = main.block_on(async { World::new(scenario, told) });
    match world.scenario.apart {
        None => main.block_on(live(Arc::clone(&world))),
        Some(client) => run_apart(&main, &world, client),
    }
    world
}

/// A world in which this happens and nothing else.
pub(crate) fn with_world(scenario: Scenario, happens: impl AsyncFnOnce(Arc<World>)) -> Arc<World> {
    time::begin();
    let main = PausedRuntime::new(Duration::ZERO);
    main.block_on(async {
        let world = World::new(scenario, false);
        happens(Arc::clone(&world)).await;
        world
    })
}

fn run_apart(main: &PausedRuntime, world: &Arc<World>, client: usize) {
    time::enter(main.began);
    let mut lives = main.runtime.spawn(live(Arc::clone(world)));
    let mut apart = Apart::begin(world, client, Duration::ZERO);
    let mut at = Duration::ZERO;
    loop {
        at += if world.is_over() { LONG_TICK } else { TICK };
        let ended = main.block_on(async {
            tokio::select! {
                biased;
                ended = &mut lives => Some(ended),
                () = sleep_until(at) => None,
            }
        });
        if let Some(ended) = ended {
            return main.block_on(async {
                world.check_tasks_of(apart.paused.runtime.handle(), 0);
                if let Err(error) = ended {
                    world.violate("nothing panics", error.to_string());
                }
            });
        }
        let shown = main.block_on(async { shown() });
        // Where the thread of all others was blocked, so was this one: else its timers would run while true time stands still.
        apart.is_blocked |= shown > at + TICK;
        at = at.max(shown);
        apart.go_on(main, world, at);
    }
}

/// The client with a runtime of its own.
struct Apart {
    client: usize,
    paused: PausedRuntime,
    is_blocked: bool,
}

impl Apart {
    fn begin(world: &Arc<World>, client: usize, at: Duration) -> Self {
        let paused = PausedRuntime::new(at);
        paused.block_on(async {
            drop(world.begin_client(client));
            world.begin_users(client);
        });
        Self { client, paused, is_blocked: false }
    }

    /// Until its clock shows this.
    fn go_on(&mut self, main: &PausedRuntime, world: &Arc<World>, at: Duration) {
        if world.apart.is_blocked(at) {
            self.is_blocked = true;
            return;
        }
        if world.apart.shall_end() {
            let old = self.paused.block_on(async { world.end_client(self.client) });
            // All that it did ends with it, before another begins.
            drop(std::mem::replace(&mut self.paused, PausedRuntime::new(at)));
            main.block_on(async {
                if let Some(old) = old {
                    tokio::spawn(Arc::clone(world).check_ended(old));
                }
            });
            *self = Self::begin(world, self.client, at);
        }
        let was_blocked = std::mem::take(&mut self.is_blocked);
        self.paused.block_on(async {
            if was_blocked {
                advance(at.saturating_sub(shown())).await;
            }
            sleep_until(at).await;
        });
    }
}
