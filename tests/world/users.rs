//! What people do with locks.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{AcquireError, Guard, Holder, LeaseView, Redlock, RunError};
use tokio::time::{sleep, timeout};

use crate::invariants::bounds::Watch;
use crate::net::now;
use crate::rng::Rng;
use crate::scenario::Part;
use crate::schedule::{Boxed, Schedule};
use crate::world::World;

/// The keys of the resources; the last one is reached through a namespace, too.
const NAMES: [&str; 3] = ["a", "b", "space:c"];

/// One user, on the machine of one client.
pub(crate) struct User {
    world: Arc<World>,
    client: usize,
    rng: Rng,
}

/// What it wants to lock, and how it asks.
#[derive(Clone, Debug)]
struct Demand {
    resources: u8,
    has_holder: bool,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Try,
    WaitAtMost(Duration),
    Wait,
}

type Acquired = Result<Guard, AcquireError>;

impl User {
    pub(crate) fn new(world: &Arc<World>, index: usize) -> Self {
        let client = index % world.machines.len();
        Self { world: Arc::clone(world), client, rng: world.scenario.rng(Part::User(index)) }
    }

    /// Until faults have ended; and then everybody gets in once more.
    pub(crate) async fn live(mut self) {
        while !self.world.is_calm() {
            let pause = self.some_time(4);
            sleep(pause).await;
            self.world.machines[self.client].awake().await;
            match self.rng.below(100) {
                0..3 => self.renew_client().await,
                3..15 => self.run().await,
                _ => self.lock().await,
            }
        }
        self.get_in().await;
    }

    /// Up to a ttl divided by so much.
    fn some_time(&mut self, part: u64) -> Duration {
        let ttl_ms = u64::try_from(self.world.scenario.ttl.as_millis()).unwrap_or(1_000);
        Duration::from_millis(self.rng.below(ttl_ms / part + 2))
    }

    fn demand(&mut self) -> Demand {
        let resources = self.rng.pick(&[1, 1, 1, 1, 2, 3, 4, 5, 7]);
        let way = match self.rng.below(10) {
            0..4 => Way::Try,
            4..7 => Way::WaitAtMost(self.some_time(1) * 2),
            _ => Way::Wait,
        };
        Demand { resources, has_holder: self.rng.percent(25), way }
    }

    /// Asks, and does something with what it gets.
    async fn lock(&mut self) {
        let demand = self.demand();
        if let Some((guard, life)) = self.ask(&demand).await {
            self.hold(guard, life, &demand).await;
        }
    }

    async fn ask(&mut self, demand: &Demand) -> Option<(Guard, u64)> {
        let (client, life) = self.world.client(self.client)?;
        let mut schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 8);
        if demand.way == Way::Wait && schedule == Schedule::Steadily && self.rng.percent(30) {
            schedule = Schedule::Dropped(1_000, self.some_time(1) * 3); // somebody has lost patience
        }
        let number = u64::from(demand.resources);
        self.world.history().stats.asked += 1;
        self.world
            .note("asks", [self.client as u64, number], || format!("client {}: {demand:?}, {schedule:?}", self.client));
        let limit = match demand.way {
            Way::Try => Some(Duration::ZERO),
            Way::WaitAtMost(limit) => Some(limit),
            Way::Wait => None,
        };
        let watch = Watch::begin(&self.world, self.client);
        let result = schedule.carry_out(acquire(client, demand.clone())).await;
        if demand.has_holder && !matches!(&result, Some(Err(error)) if is_clean(error)) {
            self.world.may_have_succeeded((self.client, life), demand.resources);
        }
        if let (Schedule::Steadily, Some(limit)) = (schedule, limit) {
            watch.acquire(limit);
        }
        match result {
            Some(Ok(guard)) => return Some((guard, life)),
            Some(Err(error)) => self.world.note("refused", [self.client as u64, number], || error.to_string()),
            None => self.world.history().stats.abandoned += 1,
        }
        None
    }

    /// Holds a lock for a while and lets it go in one way or another.
    async fn hold(&mut self, mut guard: Guard, life: u64, demand: &Demand) {
        let number = self.world.given((self.client, life), demand.resources, demand.has_holder, &guard.lease());
        self.look_after(number, guard.lease());
        let mut rounds = self.rng.below(4);
        while rounds > 0 && guard.is_valid() {
            rounds -= 1;
            let time = self.some_time(1) * 2;
            self.world.machines[self.client].awake().await;
            match self.rng.below(10) {
                0..3 => {
                    let watch = Watch::begin(&self.world, self.client);
                    let extended = guard.extend().await;
                    watch.round("an extend ends in time");
                    self.world.history().stats.extended += u64::from(extended.is_ok());
                    self.world.note("extended", [number as u64, 0], || format!("lock {number}: {extended:?}"));
                }
                3..6 => {
                    // As it is written by hand: whatever comes first.
                    tokio::select! {
                        biased;
                        loss = guard.lost() => {
                            self.world.note("told", [number as u64, 0], || format!("lock {number}: {loss}"));
                        }
                        () = sleep(time) => {}
                    }
                }
                _ => sleep(time).await,
            }
        }
        self.end(number, guard, demand).await;
    }

    async fn end(&mut self, number: usize, guard: Guard, demand: &Demand) {
        self.world.machines[self.client].awake().await;
        self.world.let_go(number);
        let view = guard.lease();
        let keys = self.world.keys_of(self.client, demand.resources);
        match self.rng.below(10) {
            0 => drop(guard.keep_until_expiry()),
            1..4 => drop(guard),
            _ => {
                let schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 16);
                let watch = Watch::begin(&self.world, self.client);
                let release: Boxed<_> = Box::pin(guard.release());
                let released = schedule.carry_out(release).await;
                if schedule == Schedule::Steadily {
                    watch.round("a release ends in time");
                }
                self.world.history().stats.released += u64::from(matches!(released, Some(Ok(_))));
                self.world.note("released", [number as u64, 0], || format!("lock {number}: {released:?}"));
            }
        }
        if !demand.has_holder {
            self.world.check_not_relied_on(number, &view);
            self.world.check_goes(keys);
        }
    }

    /// Work under a lock.
    async fn run(&mut self) {
        let demand = Demand { has_holder: false, ..self.demand() };
        let Some((client, life)) = self.world.client(self.client) else { return };
        let (world, index, resources, time) =
            (Arc::clone(&self.world), self.client, demand.resources, self.some_time(1) * 2);
        let limit = self.some_time(1) * 2;
        self.world.note("runs", [index as u64, u64::from(resources)], || format!("client {index}: {demand:?}"));
        let work = move |lease: LeaseView| async move {
            let number = world.given((index, life), resources, false, &lease);
            let _over = Over(Arc::clone(&world), number);
            sleep(time).await;
            if !lease.is_valid() {
                world.check_polled_work(index, &lease);
            }
        };
        let future: Boxed<_> =
            Box::pin(async move { client.lock(names(resources)).wait_at_most(limit).run(work).await.map(drop) });
        let schedule = Schedule::draw(&mut self.rng, time);
        let ended = schedule.carry_out(future).await;
        self.world.history().stats.lost += u64::from(matches!(ended, Some(Err(RunError::Lost(_)))));
        self.world.note("ran", [index as u64, 0], || format!("client {index}: {ended:?}"));
    }

    /// The client is shut down, or just dropped, and another takes its place.
    async fn renew_client(&mut self) {
        let Some(old) = self.world.begin_client(self.client) else { return };
        let client = self.client;
        if self.rng.percent(50) {
            let (limit, watch) = (self.some_time(1), Watch::begin(&self.world, client));
            let ended = old.shutdown(limit).await;
            watch.shutdown(limit);
            self.world.note("shut down", [client as u64, 0], || format!("client {client}: {ended:?}"));
        } else {
            drop(old);
            self.world.note("dropped", [client as u64, 0], || format!("client {client}"));
        }
    }

    /// Watches over a lock beside its user.
    fn look_after(&mut self, number: usize, lease: LeaseView) {
        let (world, client, pause) = (Arc::clone(&self.world), self.client, self.rng.between(5, 60));
        let listens = self.rng.percent(60);
        tokio::spawn(async move {
            while lease.is_valid() && !world.has_ended(number) {
                let pause = sleep(Duration::from_millis(pause));
                if listens {
                    let _ = timeout(Duration::ZERO, lease.lost()).await;
                }
                pause.await;
            }
            world.check_over(number, client, &lease).await;
        });
    }

    /// After all faults everybody gets in, in time.
    async fn get_in(&mut self) {
        let limit = self.world.time_to_get_in();
        let resources = self.rng.pick(&[1, 2, 4, 7]);
        let Some((client, life)) = self.world.client(self.client) else { return };
        let demand = Demand { resources, has_holder: false, way: Way::Wait };
        let begun = now();
        match timeout(limit, acquire(client, demand.clone())).await {
            // By somebody who had begun to do so before; another has taken its place.
            Ok(Err(AcquireError::ShutDown)) => Box::pin(self.get_in()).await,
            Ok(Ok(guard)) => {
                let number = self.world.given((self.client, life), resources, false, &guard.lease());
                sleep(Duration::from_millis(5)).await;
                self.world.let_go(number);
            }
            Ok(Err(error)) => self.world.violate("everybody gets in after the faults", error.to_string()),
            Err(_) => {
                let status = self.world.client(self.client).map(|(client, _)| client.instances());
                let what = format!("client {} waits since {:?}: {status:?}", self.client, begun.elapsed());
                self.world.violate("everybody gets in after the faults", what);
            }
        }
    }
}

/// The end of work under a lock, however it ends.
struct Over(Arc<World>, usize);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.let_go(self.1);
    }
}

/// Errors after which nothing can have been taken over.
const fn is_clean(error: &AcquireError) -> bool {
    matches!(error, AcquireError::Contended(_) | AcquireError::SplitVote(_) | AcquireError::QueueTimeout)
}

pub(crate) fn names(resources: u8) -> Vec<&'static str> {
    NAMES.iter().enumerate().filter(|(bit, _)| resources & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

fn acquire(client: Redlock, demand: Demand) -> Boxed<Acquired> {
    Box::pin(async move {
        let spaced = client.namespace("space:");
        let lock = if demand.resources == 4 { spaced.lock("c") } else { client.lock(names(demand.resources)) };
        let lock = if demand.has_holder { lock.holder(Holder::from("me")) } else { lock };
        match demand.way {
            Way::Try => lock.try_acquire().await,
            Way::WaitAtMost(limit) => lock.wait_at_most(limit).acquire().await,
            Way::Wait => lock.acquire().await,
        }
    })
}
