//! What people do with locks.

use std::sync::Arc;
use std::time::Duration;

use redquorum::{AcquireError, AllGuard, AllLeases, Guard, LeaseView, RunError};
use tokio::time::{sleep, timeout};

use crate::deeds::Deed;
use crate::demand::{Demand, Way, acquire, acquire_all, ask_at, names, note_demand};
use crate::invariants::bounds::Watch;
use crate::invariants::kept::Kept;
use crate::invariants::nobody::Together;
use crate::invariants::told::Listening;
use crate::rng::Rng;
use crate::scenario::Part;
use crate::schedule::{Boxed, Schedule};
use crate::time::{now, since};
use crate::world::World;

/// One user, on the machine of one client.
pub(crate) struct User {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
    pub(crate) client: usize,
    pub(crate) rng: Rng,
}

impl User {
    pub(crate) fn new(world: &Arc<World>, index: usize) -> Self {
        let client = index % world.machines.len();
        Self { world: Arc::clone(world), index, client, rng: world.scenario.rng(Part::User(index)) }
    }

    /// Until faults have ended; and then everybody gets in once more.
    pub(crate) async fn live(mut self) {
        if self.world.scenario.is_cut {
            return self.live_cut().await;
        }
        if self.world.scenario.is_narrow {
            return self.live_narrowly().await;
        }
        if self.world.scenario.is_moved {
            return self.live_moved().await;
        }
        if self.world.scenario.is_together {
            return self.live_together().await;
        }
        while self.has_another_turn(4).await {
            match self.rng.below(100) {
                0..3 => self.renew_client().await,
                3..15 => self.run().await,
                15..25 => self.retry().await,
                _ => self.lock().await,
            }
        }
        self.get_in().await;
    }

    /// Nothing but locks.
    async fn live_narrowly(mut self) {
        loop {
            let pause = self.some_time(8);
            sleep(if self.world.scenario.is_steady { pause - pause_in_step(pause) } else { pause }).await;
            self.world.machines[self.client].awake().await;
            if self.rng.percent(1) && !self.world.scenario.is_steady {
                self.renew_client().await;
            } else {
                self.lock().await;
            }
        }
    }

    /// Waits for a part of a ttl, and for its machine; false once faults have ended.
    pub(crate) async fn has_another_turn(&mut self, part: u64) -> bool {
        if self.world.is_calm() {
            return false;
        }
        let pause = self.some_time(part);
        sleep(pause).await;
        self.world.machines[self.client].awake().await;
        true
    }

    /// Up to a ttl divided by so much.
    pub(crate) fn some_time(&mut self, part: u64) -> Duration {
        let ttl_ms = u64::try_from(self.world.scenario.ttl.as_millis()).unwrap_or(1_000);
        Duration::from_millis(self.rng.below(ttl_ms / part + 2))
    }

    fn demand(&mut self) -> Demand {
        let resources = if self.world.scenario.is_steady {
            self.rng.pick(&[1, 1, 1, 1, 1, 2, 2])
        } else if self.world.scenario.is_narrow {
            self.rng.pick(&[1, 1, 1, 1, 1, 2, 2, 3])
        } else if self.world.scenario.is_together {
            1
        } else {
            self.rng.pick(&[1, 1, 1, 1, 2, 3, 4, 5, 7])
        };
        let way = match self.rng.below(10) {
            _ if self.world.scenario.is_steady => Way::Try,
            0..4 => Way::Try,
            4..7 => Way::WaitAtMost(self.some_time(1) * 2),
            _ => Way::Wait,
        };
        let ttl = self.world.scenario.ttl;
        let max_hold = self.rng.percent(15).then(|| ttl * self.rng.pick(&[1, 2]) / 2);
        let has_holder = self.rng.percent(25) && !self.world.scenario.is_narrow && !self.world.scenario.is_together;
        Demand { resources, has_holder, way, max_hold }
    }

    /// Asks, and does something with what it gets.
    pub(crate) async fn lock(&mut self) {
        let demand = self.demand();
        if demand.is_of_several() {
            if let Some((guard, life)) = self.ask_for_several(&demand).await {
                self.hold_several(guard, life, &demand).await;
            }
        } else if let Some((guard, life)) = self.ask(&demand).await {
            self.hold(guard, life, &demand).await;
        }
    }

    async fn ask_for_several(&mut self, demand: &Demand) -> Option<(AllGuard, u64)> {
        let schedule = self.schedule(demand);
        let (client, life) = self.world.client(self.client)?;
        note_demand(&self.world, demand, schedule);
        let asks = [self.client as u64, u64::from(demand.resources)];
        self.world.note("asks for several", asks, || format!("client {}: {demand:?}, {schedule:?}", self.client));
        let together = Together::begin(&self.world, (self.client, life), demand.resources);
        let acquired = schedule.carry_out(acquire_all(client, demand.clone())).await;
        drop(together);
        match acquired {
            Some(Ok(guard)) => return Some((guard, life)),
            Some(Err(error)) => self.world.note("refused", asks, || error.to_string()),
            None => self.world.history().stats.abandoned += 1,
        }
        None
    }

    /// Holds locks together for a while, and lets them go.
    async fn hold_several(&mut self, guard: AllGuard, life: u64, demand: &Demand) {
        let leases = guard.leases();
        let numbers = self.world.given_all((self.client, life), demand, &leases);
        let time = self.some_time(1) * 2;
        match self.rng.below(3) {
            0 => {
                leases.leases().iter().for_each(|lease| self.world.extends(lease));
                let extended = guard.extend().await;
                self.world.history().stats.did(Deed::Extend);
                self.world.note("extended", [numbers[0] as u64, 0], || format!("locks {numbers:?}: {extended:?}"));
                sleep(time / 2).await;
            }
            1 => tokio::select! {
                biased;
                loss = guard.lost() => {
                    self.world.note("told", [numbers[0] as u64, 0], || format!("locks {numbers:?}: {loss}"));
                }
                () = sleep(time) => {}
            },
            _ => sleep(time).await,
        }
        self.world.machines[self.client].awake().await;
        numbers.iter().for_each(|number| self.world.let_go(*number));
        if self.rng.percent(30) {
            self.world.history().stats.did(Deed::DropGuard);
            drop(guard);
            numbers.iter().for_each(|number| self.world.gone(*number));
        } else {
            self.world.history().stats.did(Deed::Release);
            let schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 16);
            if schedule == Schedule::Steadily {
                numbers.iter().for_each(|number| self.world.gone(*number));
            }
            let release: Boxed<_> = Box::pin(guard.release());
            let released = schedule.carry_out(release).await;
            self.world.history().stats.released += u64::from(matches!(released, Some(Ok(_))));
            self.world.note("released", [numbers[0] as u64, 0], || format!("locks {numbers:?}: {released:?}"));
        }
        for (number, lease) in numbers.iter().zip(leases.leases()) {
            self.world.check_not_relied_on(*number, lease);
        }
    }

    /// How it polls.
    pub(crate) fn schedule(&mut self, demand: &Demand) -> Schedule {
        let schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 8);
        match schedule {
            _ if self.world.scenario.is_steady => Schedule::Steadily,
            // The user has lost patience.
            Schedule::Steadily if demand.way == Way::Wait && self.rng.percent(30) => {
                Schedule::Dropped(1_000, self.some_time(1) * 3)
            }
            schedule => schedule,
        }
    }

    async fn ask(&mut self, demand: &Demand) -> Option<(Guard, u64)> {
        let schedule = self.schedule(demand);
        if let (Schedule::Unpolled(_, time), Some((client, _)), false) =
            (schedule, self.world.client(self.client), self.world.scenario.is_narrow)
        {
            tokio::spawn(Arc::clone(&self.world).check_unpolled(self.client, client, time / 2));
        }
        ask_at(&self.world, (self.client, self.client), demand, schedule).await
    }

    /// Holds a lock for a while and lets it go in one way or another.
    async fn hold(&mut self, guard: Guard, life: u64, demand: &Demand) {
        let what = (demand.resources, demand.has_holder, demand.max_hold);
        let number = self.world.given_for((self.client, life), what, &guard.lease());
        if !self.world.scenario.is_narrow {
            self.look_after(number, guard.lease());
        }
        let mut rounds = self.rng.below(4);
        while rounds > 0 && guard.is_valid() {
            rounds -= 1;
            let time = self.some_time(1) * 2;
            self.world.machines[self.client].awake().await;
            match self.rng.below(10) {
                0..3 => {
                    let watch = Watch::begin(&self.world, self.client);
                    self.world.extends(&guard.lease());
                    let extended = guard.extend().await;
                    watch.round("an extend ends in time");
                    self.world.history().stats.did(Deed::Extend);
                    self.world.history().stats.extended += u64::from(extended.is_ok());
                    self.world.note("extended", [number as u64, 0], || format!("lock {number}: {extended:?}"));
                }
                3..6 => {
                    // As it is written by hand: whatever comes first.
                    self.world.history().stats.did(Deed::Select);
                    let _listening = Listening::begin(&self.world, number);
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
        match self.rng.below(10) {
            0 if number.is_multiple_of(2) => {
                self.world.history().stats.did(Deed::Keep);
                let _ = guard.keep_for(Duration::ZERO).await;
            }
            0 => self.keep_for(number, guard, demand.resources).await,
            1..4 => {
                self.world.history().stats.did(Deed::DropGuard);
                drop(guard);
                self.world.gone(number);
            }
            _ => {
                self.world.history().stats.did(Deed::Release);
                let schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 16);
                let watch = Watch::begin(&self.world, self.client);
                if schedule == Schedule::Steadily {
                    self.world.gone(number);
                }
                let release: Boxed<_> = Box::pin(guard.release());
                let released = schedule.carry_out(release).await;
                if schedule == Schedule::Steadily {
                    watch.round("a release ends in time");
                }
                self.world.history().stats.released += u64::from(matches!(released, Some(Ok(_))));
                self.world.note("released", [number as u64, 0], || format!("lock {number}: {released:?}"));
            }
        }
        self.world.check_not_relied_on(number, &view);
    }

    /// Leaves a mark that lives for longer than a lease may.
    pub(crate) async fn keep_for(&self, number: usize, guard: Guard, resources: u8) {
        self.world.history().stats.did(Deed::KeepFor);
        let (since, time) = (now(), self.world.scenario.max_ttl * 3 / 2);
        self.world.extends(&guard.lease());
        let kept = guard.keep_for(time).await;
        self.world.note("kept", [number as u64, 0], || format!("lock {number} for {time:?}: {kept:?}"));
        if kept.is_ok() {
            self.world.check_mark(number, time);
            let value = self.world.history().holds[number].value.clone();
            self.world.kept(Kept { resources, value, since, time });
        }
    }

    /// The holder whose name several users share tries again: before its first try has ended, while it has the lock, or
    /// afterwards; from the same client, where it shares its lease, or from another, where it is refused like anybody.
    async fn retry(&mut self) {
        let demand = self.demand().of_one();
        let demand = Demand { has_holder: true, max_hold: None, way: Way::WaitAtMost(self.some_time(2)), ..demand };
        let elsewhere = self.rng.index(self.world.machines.len());
        let (when, pause, held) = (self.rng.below(3), self.some_time(20), self.some_time(2));
        let schedules = [(); 2].map(|()| Schedule::draw(&mut self.rng, self.world.scenario.ttl / 8));
        if elsewhere != self.client {
            self.world.history().stats.did(Deed::RetryElsewhere);
        }
        let first = ask_at(&self.world, (self.client, self.client), &demand, schedules[0]);
        let second = async {
            sleep(pause).await;
            ask_at(&self.world, (self.client, elsewhere), &demand, schedules[1]).await
        };
        let (when, guards) = match when {
            0 => {
                // Each is noted when it is given, not when the other has ended too.
                let given = tokio::join!(async { self.given_at(self.client, &demand, first.await) }, async {
                    self.given_at(elsewhere, &demand, second.await)
                });
                (Deed::RetryDuring, <[_; 2]>::from(given))
            }
            1 => {
                let first = self.given_at(self.client, &demand, first.await);
                sleep(held).await;
                let second = self.given_at(elsewhere, &demand, second.await);
                sleep(held).await;
                self.world.history().stats.did(Deed::RetryWhileHeld);
                let mut held = [first, second];
                if self.rng.percent(50) {
                    held.reverse();
                }
                held.into_iter().flatten().for_each(|(number, guard)| self.world.drop_held(number, guard));
                return;
            }
            _ => {
                if let Some((number, guard)) = self.given_at(self.client, &demand, first.await) {
                    self.world.drop_held(number, guard);
                }
                (Deed::RetryAfterwards, [None, self.given_at(elsewhere, &demand, second.await)])
            }
        };
        self.world.history().stats.did(when);
        sleep(held).await;
        guards.into_iter().flatten().for_each(|(number, guard)| self.world.drop_held(number, guard));
    }

    /// Notes what was given to a user of a client.
    fn given_at(&self, client: usize, demand: &Demand, got: Option<(Guard, u64)>) -> Option<(usize, Guard)> {
        let (guard, life) = got?;
        let number = self.world.given((client, life), demand.resources, demand.has_holder, &guard.lease());
        let pause = self.world.scenario.ttl / 20;
        tokio::spawn(Arc::clone(&self.world).look_on((number, client), guard.lease(), pause, true));
        Some((number, guard))
    }

    /// Work under a lock.
    async fn run(&mut self) {
        let demand = Demand { has_holder: false, max_hold: None, ..self.demand() };
        let Some((client, life)) = self.world.client(self.client) else { return };
        let (world, index, time) = (Arc::clone(&self.world), self.client, self.some_time(1) * 2);
        let limit = self.some_time(1) * 2;
        self.world.history().stats.did(Deed::Run);
        self.world.note("runs", [index as u64, u64::from(demand.resources)], || format!("client {index}: {demand:?}"));
        let (asked, together) = (demand.clone(), Together::begin(&self.world, (index, life), demand.resources));
        let work = move |leases: AllLeases| async move {
            drop(together);
            let numbers = world.given_all((index, life), &asked, &leases);
            let _over = Over(Arc::clone(&world), numbers);
            let mut time = std::pin::pin!(sleep(time));
            std::future::poll_fn(|cx| {
                // Polled: what is lost does not go on.
                leases.leases().iter().filter(|lease| !lease.is_valid()).for_each(|lease| {
                    world.check_polled_work(index, lease);
                });
                time.as_mut().poll(cx)
            })
            .await;
        };
        let future: Boxed<_> =
            Box::pin(async move { client.lock_all(names(demand.resources)).wait_at_most(limit).run(work).await });
        let schedule = Schedule::draw(&mut self.rng, time);
        let ended = schedule.carry_out(future).await;
        self.world.history().stats.lost += u64::from(matches!(ended, Some(Err(RunError::Lost(_)))));
        self.world.note("ran", [index as u64, 0], || format!("client {index}: {ended:?}"));
    }

    /// The client is shut down, or just dropped, and another takes its place.
    pub(crate) async fn renew_client(&mut self) {
        let client = self.client;
        let Some((_, life)) = self.world.client(client) else { return };
        let Some(old) = self.world.begin_client(client) else { return };
        if self.rng.percent(50) {
            let (limit, watch) = (self.some_time(1), Watch::begin(&self.world, client));
            self.world.history().stats.did(Deed::ShutDown);
            let ended = old.shutdown(limit).await;
            watch.shutdown(limit);
            self.world.note_shut_down((client, life)).await;
            self.world.note("shut down", [client as u64, 0], || format!("client {client}: {ended:?}"));
        } else {
            drop(old);
            self.world.history().stats.did(Deed::DropClient);
            self.world.note("dropped", [client as u64, 0], || format!("client {client}"));
        }
    }

    /// Watches over a lock beside its user.
    fn look_after(&mut self, number: usize, lease: LeaseView) {
        let (world, pause) = (Arc::clone(&self.world), Duration::from_millis(self.rng.between(5, 60)));
        let listens = self.rng.percent(60);
        self.world.history().stats.did(Deed::LookOn);
        tokio::spawn(world.look_on((number, self.client), lease, pause, listens));
    }

    /// After all faults everybody gets in, in time.
    async fn get_in(&mut self) {
        let limit = self.world.time_to_get_in();
        let resources = self.rng.pick(&[1, 2, 4, 7]);
        let Some((client, life)) = self.world.client(self.client) else { return };
        let demand = Demand { resources, has_holder: false, way: Way::Wait, max_hold: None };
        let begun = now();
        let acquired = if demand.is_of_several() {
            let _together = Together::begin(&self.world, (self.client, life), demand.resources);
            timeout(limit, acquire_all(client, demand.clone())).await.map(|won| won.map(Won::Several))
        } else {
            timeout(limit, acquire(client, demand.clone())).await.map(|won| won.map(Won::One))
        };
        match acquired {
            // By a user that had begun to do so before; another has taken its place.
            Ok(Err(AcquireError::ClientUnusable(_))) => Box::pin(self.get_in()).await,
            Ok(Ok(won)) => {
                let numbers = match &won {
                    Won::One(guard) => vec![self.world.given((self.client, life), resources, false, &guard.lease())],
                    Won::Several(guard) => self.world.given_all((self.client, life), &demand, &guard.leases()),
                };
                sleep(Duration::from_millis(5)).await;
                numbers.into_iter().for_each(|number| self.world.let_go(number));
            }
            Ok(Err(error)) => self.world.violate("all get in after the faults", error.to_string()),
            Err(_) => {
                let status = self.world.client(self.client).map(|(client, _)| client.instances());
                let what = format!("client {} waits since {:?}: {status:?}", self.client, since(begun));
                self.world.violate("all get in after the faults", what);
            }
        }
    }
}

/// By how much it is more than a whole number of steps: those who go in step ask at the same moment more often.
fn pause_in_step(pause: Duration) -> Duration {
    Duration::from_millis(u64::try_from(pause.as_millis() % 5).unwrap_or(0))
}

/// What a user got in by.
enum Won {
    One(Guard),
    Several(AllGuard),
}

/// The end of work under locks, however it ends.
struct Over(Arc<World>, Vec<usize>);

impl Drop for Over {
    fn drop(&mut self) {
        for number in &self.1 {
            self.0.let_go(*number);
            self.0.gone(*number);
        }
    }
}
