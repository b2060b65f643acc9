//! Users of what several have together: readers and writers of one lock, permits of a semaphore, candidates and observers.

use std::time::Duration;

use redquorum::testing::simulation::lease_of;
use redquorum::{AcquireError, Guard, Leadership, LeaseView, Permit, ReadGuard, Redlock};
use tokio::time::{sleep, timeout};

use crate::deeds::Deed;
use crate::demand::{Demand, Way, ask_for};
use crate::invariants::bounds::Watch;
use crate::invariants::told::Listening;
use crate::schedule::{Boxed, Schedule};
use crate::time::{now, since};
use crate::users::User;

/// The lock that is read and written; an ordinary lock has the same name.
pub(crate) const SHARED: &str = "a";
pub(crate) const SEMAPHORE: &str = "s";
pub(crate) const ELECTION: &str = "e";
pub(crate) const PERMITS: u32 = 2;
/// As many as the largest of its users believes, where they do not agree.
pub(crate) const MOST_PERMITS: u32 = 3;

/// Their bits among resources.
pub(crate) const SHARED_BIT: u8 = 1;
const FIRST_PERMIT_BIT: u8 = 1 << 3;
pub(crate) const ELECTION_BIT: u8 = 1 << 5;

/// The bit of a permit.
pub(crate) const fn permit_bit(index: u32) -> u8 {
    if index < PERMITS { FIRST_PERMIT_BIT << index } else { 1 << 6 }
}

/// What one of them has.
pub(crate) enum Held {
    Reader(ReadGuard),
    Writer(Guard),
    Permit(Permit),
    Leader(Leadership),
}

impl Held {
    pub(crate) fn lease(&self) -> LeaseView {
        match self {
            Self::Reader(guard) => lease_of(guard),
            Self::Writer(guard) => guard.lease(),
            Self::Permit(permit) => permit.lease(),
            Self::Leader(leadership) => leadership.lease(),
        }
    }

    async fn extend(&self) -> bool {
        match self {
            Self::Reader(guard) => guard.extend().await.is_ok(),
            Self::Writer(guard) => guard.extend().await.is_ok(),
            Self::Permit(permit) => permit.extend().await.is_ok(),
            Self::Leader(leadership) => leadership.extend().await.is_ok(),
        }
    }

    fn release(self) -> Boxed<bool> {
        Box::pin(async move {
            match self {
                Self::Reader(guard) => guard.release().await.is_ok(),
                Self::Writer(guard) => guard.release().await.is_ok(),
                Self::Permit(permit) => permit.release().await.is_ok(),
                Self::Leader(leadership) => leadership.resign().await.is_ok(),
            }
        })
    }
}

/// How it asks.
macro_rules! ask {
    ($lock:expr, $way:expr, $try:ident or $wait:ident -> $held:ty) => {{
        let (lock, way) = ($lock, $way);
        Box::pin(async move {
            match way {
                Way::Try => lock.$try().await,
                Way::WaitAtMost(limit) => lock.wait_at_most(limit).$wait().await,
                Way::Wait => lock.$wait().await,
            }
        }) as Boxed<Result<$held, AcquireError>>
    }};
}

fn campaign(client: &Redlock, info: String, way: Way) -> Boxed<Result<Leadership, AcquireError>> {
    let election = client.election(ELECTION);
    Box::pin(async move {
        match way {
            Way::WaitAtMost(limit) => election.wait_at_most(limit).campaign(&info).await,
            Way::Try | Way::Wait => election.campaign(&info).await,
        }
    })
}

impl User {
    /// Until faults have ended; and then everybody gets in once more.
    pub(crate) async fn live_together(mut self) {
        if self.index == 1 {
            self.observe().await;
        }
        while self.has_another_turn(8).await {
            match self.rng.below(100) {
                0..2 => self.renew_client().await,
                2..40 => self.read().await,
                40..60 => self.write().await,
                60..66 => self.lock().await,
                66..82 => self.take_permit().await,
                82..95 => self.lead().await,
                _ => self.ask_for_leader().await,
            }
        }
        self.get_in_together().await;
    }

    fn demand_of(&mut self, resources: u8) -> (Demand, Schedule) {
        let way = match self.rng.below(10) {
            0..3 => Way::Try,
            3..7 => Way::WaitAtMost(self.some_time(1) * 2),
            _ => Way::Wait,
        };
        let demand = Demand { resources, has_holder: false, way, max_hold: None };
        let schedule = self.schedule(&demand);
        (demand, schedule)
    }

    pub(crate) async fn read(&mut self) {
        let (demand, schedule) = self.demand_of(SHARED_BIT);
        let (at, way) = ((self.client, self.client), demand.way);
        let read = |client: Redlock| ask!(client.rw_lock(SHARED), way, try_read or read -> ReadGuard);
        let Some((guard, life)) = ask_for(&self.world, at, (&demand, schedule), false, read).await else { return };
        self.world.history().stats.did(Deed::Read);
        let number = self.world.given_to_reader((self.client, life), SHARED_BIT, &lease_of(&guard));
        self.hold_shared(number, Held::Reader(guard)).await;
    }

    pub(crate) async fn write(&mut self) {
        let (demand, schedule) = self.demand_of(SHARED_BIT);
        let (at, way) = ((self.client, self.client), demand.way);
        let write = |client: Redlock| ask!(client.rw_lock(SHARED), way, try_write or write -> Guard);
        let Some((guard, life)) = ask_for(&self.world, at, (&demand, schedule), true, write).await else { return };
        self.world.history().stats.did(Deed::Write);
        let number = self.world.given((self.client, life), SHARED_BIT, false, &guard.lease());
        self.hold_shared(number, Held::Writer(guard)).await;
    }

    async fn take_permit(&mut self) {
        let (demand, schedule) = self.demand_of(FIRST_PERMIT_BIT);
        let (at, way) = ((self.client, self.client), demand.way);
        let acquire =
            |client: Redlock| ask!(client.semaphore(SEMAPHORE, PERMITS), way, try_acquire or acquire -> Permit);
        let Some((permit, life)) = ask_for(&self.world, at, (&demand, schedule), false, acquire).await else { return };
        self.world.history().stats.did(Deed::TakePermit);
        if permit.index() >= PERMITS {
            return self.world.violate("never more permits than there are", format!("permit {}", permit.index()));
        }
        let number = self.world.given((self.client, life), FIRST_PERMIT_BIT << permit.index(), false, &permit.lease());
        self.hold_shared(number, Held::Permit(permit)).await;
    }

    async fn lead(&mut self) {
        let (mut demand, schedule) = self.demand_of(ELECTION_BIT);
        if demand.way == Way::Try {
            demand.way = Way::WaitAtMost(Duration::ZERO);
        }
        let (at, way, info) = ((self.client, self.client), demand.way, self.info());
        let lead = |client: Redlock| campaign(&client, info, way);
        let Some((leadership, life)) = ask_for(&self.world, at, (&demand, schedule), false, lead).await else { return };
        self.world.history().stats.did(Deed::Lead);
        self.world.leads(leadership.info(), leadership.fencing_token());
        let number = self.world.given((self.client, life), ELECTION_BIT, false, &leadership.lease());
        self.hold_shared(number, Held::Leader(leadership)).await;
    }

    /// What no other campaign says of itself.
    pub(crate) fn info(&mut self) -> String {
        format!("user {}: {}", self.index, self.rng.next())
    }

    async fn ask_for_leader(&mut self) {
        let Some((client, _)) = self.world.client(self.client) else { return };
        let (asked, watch) = (now(), Watch::begin(&self.world, self.client));
        let leader = client.election(ELECTION).leader().await;
        watch.round("a leader is told in time");
        self.world.history().stats.did(Deed::AskForLeader);
        if let Ok(Some(leader)) = leader {
            self.world.check_leader(&leader, asked);
        }
    }

    /// Sees one leader after the other, until faults end.
    async fn observe(&mut self) {
        while !self.world.is_calm() {
            let Some((client, _)) = self.world.client(self.client) else { return };
            let Ok(mut leaders) = client.election(ELECTION).observe() else { return };
            let (mut last, rounds) = (None, self.rng.between(5, 30));
            for _ in 0..rounds {
                let asked = now();
                let Ok(leader) = timeout(self.world.scenario.ttl / 2, leaders.next()).await else { continue };
                self.world.history().stats.did(Deed::Observe);
                if last.is_some_and(|last| leader.token <= last) {
                    self.world.violate("an observer never goes back", format!("{leader:?} after {last:?}"));
                }
                self.world.check_leader(&leader, asked);
                last = Some(leader.token);
            }
        }
    }

    /// Holds it for a while, and lets it go in one way or another.
    async fn hold_shared(&mut self, number: usize, held: Held) {
        let view = held.lease();
        let mut rounds = self.rng.below(4);
        while rounds > 0 && view.is_valid() {
            rounds -= 1;
            let time = self.some_time(1) * 2;
            self.world.machines[self.client].awake().await;
            match self.rng.below(10) {
                0..3 => {
                    let watch = Watch::begin(&self.world, self.client);
                    let extended = held.extend().await;
                    watch.round("an extend ends in time");
                    self.world.note("extended", [number as u64, 0], || format!("lock {number}: {extended}"));
                }
                3..6 => {
                    let _listening = Listening::begin(&self.world, number);
                    tokio::select! {
                        biased;
                        loss = view.lost() => {
                            self.world.note("told", [number as u64, 0], || format!("lock {number}: {loss}"));
                        }
                        () = sleep(time) => {}
                    }
                }
                _ => sleep(time).await,
            }
        }
        self.world.machines[self.client].awake().await;
        self.world.let_go(number);
        if self.rng.percent(30) {
            drop(held);
            self.world.gone(number);
        } else {
            let schedule = Schedule::draw(&mut self.rng, self.world.scenario.ttl / 16);
            let watch = Watch::begin(&self.world, self.client);
            if schedule == Schedule::Steadily {
                self.world.gone(number);
            }
            let released = schedule.carry_out(held.release()).await;
            if schedule == Schedule::Steadily {
                watch.round("a release ends in time");
            }
            self.world.note("released", [number as u64, 0], || format!("lock {number}: {released:?}"));
        }
        self.world.check_not_relied_on(number, &view);
    }
}

/// After the faults.
impl User {
    /// One writes beside others who read all the time; and everybody gets a permit, and leads.
    pub(crate) async fn get_in_together(&mut self) {
        let limit = self.world.time_to_get_in();
        if self.index == 0 {
            let what = "a writer beside constant readers gets in";
            let got = self.must_get(
                what,
                limit,
                |client| ask!(client.rw_lock(SHARED), Way::Wait, try_write or write -> Guard),
            );
            let got = got.await;
            self.world.history().is_written = true;
            if let Some((guard, life)) = got {
                let number = self.world.given((self.client, life), SHARED_BIT, false, &guard.lease());
                sleep(Duration::from_millis(5)).await;
                self.world.let_go(number);
            }
        } else {
            self.read_until_written(limit).await;
        }
        let acquire =
            |client: Redlock| ask!(client.semaphore(SEMAPHORE, PERMITS), Way::Wait, try_acquire or acquire -> Permit);
        let got = self.must_get("all get in after the faults", limit, acquire).await;
        if let Some((permit, life)) = got {
            let bit = FIRST_PERMIT_BIT << permit.index().min(PERMITS - 1);
            let number = self.world.given((self.client, life), bit, false, &permit.lease());
            self.world.let_go(number);
        }
        let info = self.info();
        let lead = |client: Redlock| campaign(&client, info.clone(), Way::Wait);
        let got = self.must_get("all get in after the faults", limit, lead).await;
        if let Some((leadership, life)) = got {
            self.world.leads(leadership.info(), leadership.fencing_token());
            let number = self.world.given((self.client, life), ELECTION_BIT, false, &leadership.lease());
            self.world.let_go(number);
        }
    }

    /// Each reads again at once, so that some always do.
    async fn read_until_written(&mut self, limit: Duration) {
        let begun = now();
        while !self.world.history().is_written && since(begun) < limit * 2 {
            let read = |client: Redlock| ask!(client.rw_lock(SHARED), Way::Wait, try_read or read -> ReadGuard);
            let got = self.must_get("all get in after the faults", limit, read).await;
            let Some((guard, life)) = got else { return };
            let number = self.world.given_to_reader((self.client, life), SHARED_BIT, &lease_of(&guard));
            let time = self.world.scenario.ttl / 8 + self.some_time(4);
            sleep(time).await;
            self.world.let_go(number);
            drop(guard);
            self.world.gone(number);
        }
    }

    pub(crate) async fn must_get<T>(
        &self,
        invariant: &'static str,
        limit: Duration,
        ask: impl Fn(Redlock) -> Boxed<Result<T, AcquireError>>,
    ) -> Option<(T, u64)> {
        let begun = now();
        loop {
            let (client, life) = self.world.client(self.client)?;
            match timeout(limit, ask(client)).await {
                Ok(Ok(got)) => return Some((got, life)),
                // By a user that had begun to do so before; another has taken its place.
                Ok(Err(AcquireError::ClientUnusable(_))) if since(begun) < limit => {}
                Ok(Err(error)) => self.world.violate(invariant, error.to_string()),
                Err(_) => {
                    self.world.violate(invariant, format!("client {} waits since {:?}", self.client, since(begun)));
                }
            }
            if since(begun) >= limit || self.world.history().violation.is_some() {
                return None;
            }
        }
    }
}
