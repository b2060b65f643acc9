//! Users who move leases, take permits of semaphores of two sizes, try in bursts, and whose processes crash.

use std::sync::Arc;
use std::time::Duration;

use redquorum::testing::simulation::value_of;
use redquorum::{Admission, DetachedLease, Guard, Permit, Redlock};
use tokio::time::sleep;

use crate::deeds::Deed;
use crate::demand::{Demand, Way, ask_at, ask_for};
use crate::history::Attached;
use crate::net::Way as Direction;
use crate::schedule::{Boxed, Schedule};
use crate::sharers::{Held, MOST_PERMITS, SEMAPHORE, SHARED, SHARED_BIT, permit_bit};
use crate::time::now;
use crate::users::User;
use crate::world::World;

/// The lock that is tried in bursts.
const TRIED: &str = "b";
const TRIED_BIT: u8 = 1 << 1;

impl User {
    /// Until faults have ended; and then everybody gets in once more.
    pub(crate) async fn live_moved(mut self) {
        while self.has_another_turn(8).await {
            match self.rng.below(100) {
                0..4 if self.world.scenario.is_operated => self.keep_as_recorded().await,
                0..45 => self.move_lease().await,
                45..52 => self.crash().await,
                52..60 => self.try_at_once().await,
                60..75 => self.take_permit_of_some_size().await,
                75..90 => self.read().await,
                _ => self.write().await,
            }
        }
        self.get_in_together().await;
        self.get_in_beside_a_crowd().await;
    }

    /// A tool that goes by the records leaves a mark for longer than they allow.
    async fn keep_as_recorded(&mut self) {
        let tool = self.world.builder((self.client, 0), None).admission(Admission::AsRecorded);
        let client = tool.max_ttl(self.world.scenario.max_ttl).build().expect("settings that fit each other");
        let limit = self.some_time(1) * 2;
        let Ok(guard) = client.lock(TRIED).wait_at_most(limit).acquire().await else { return };
        self.world.history().stats.did(Deed::KeepAsRecorded);
        let number = self.world.given((self.client, 0), TRIED_BIT, false, &guard.lease());
        self.world.extends(&guard.lease());
        self.world.let_go(number);
        self.keep_for(number, guard, TRIED_BIT).await;
    }

    /// A lock is detached here and attached there, in time or late, and sometimes a copy of it after that.
    async fn move_lease(&mut self) {
        let way = Way::WaitAtMost(self.some_time(1) * 2);
        let demand = Demand { resources: SHARED_BIT, has_holder: false, way, max_hold: None };
        let asked = ask_at(&self.world, (self.client, self.client), &demand, Schedule::Steadily).await;
        let Some((guard, life)) = asked else { return };
        let number = self.world.given((self.client, life), SHARED_BIT, false, &guard.lease());
        let held = self.some_time(2);
        sleep(held).await;
        self.world.machines[self.client].awake().await;
        self.world.detaches((self.client, life), number);
        let (lease, value) = (guard.detach(), self.world.history().holds[number].value.clone());
        let ttl = self.world.scenario.ttl;
        let is_late = self.rng.percent(25);
        let pause = if is_late { ttl * 3 / 2 } else { self.some_time(2) };
        sleep(pause).await;
        if is_late {
            self.world.history().stats.did(Deed::AttachLate);
        }
        let first = self.attach((&lease, &value), is_late).await;
        let copy = if self.rng.percent(30) {
            self.world.history().stats.did(Deed::AttachCopy);
            self.attach((&lease, &value), is_late).await
        } else {
            None
        };
        let held = self.some_time(1) * 2;
        sleep(held).await;
        for (number, guard) in [first, copy].into_iter().flatten() {
            self.world.let_go(number);
            let released = guard.release().await;
            self.world.note("released", [number as u64, 0], || format!("lock {number}: {released:?}"));
        }
    }

    async fn attach(&mut self, (lease, value): (&DetachedLease, &[u8]), is_late: bool) -> Option<(usize, Guard)> {
        let there = self.rng.index(self.world.machines.len());
        self.world.machines[there].awake().await;
        let (client, life) = self.world.client(there)?;
        self.world.judge().rounds_of(value).moved.take_if(|moved| moved.by == (there, life));
        let waits = self.world.history().waiting.iter().any(|waiting| waiting.is_in(there));
        self.world.history().stats.add_deeds(Deed::AttachBesideWaiters, waits.into());
        let attached = Attached { since: now(), is_late };
        match client.attach(lease).await {
            Ok(guard) => {
                self.world.history().stats.did(Deed::Attach);
                Some((self.world.attached((there, life), attached, &guard), guard))
            }
            Err(error) => {
                self.world.note("not attached", [there as u64, life], || error.to_string());
                None
            }
        }
    }

    /// The process of a reader, or of a writer that has the lock or waits, is gone from one moment to the next.
    async fn crash(&mut self) {
        let Some((client, life)) = self.world.client(self.client) else { return };
        let (reads, time) = (self.rng.percent(50), self.some_time(1));
        let lock = client.rw_lock(SHARED);
        let asks: Boxed<Option<Held>> = Box::pin(async move {
            if reads { lock.read().await.ok().map(Held::Reader) } else { lock.write().await.ok().map(Held::Writer) }
        });
        let mut asks = std::pin::pin!(asks);
        let held = tokio::select! {
            biased;
            held = asks.as_mut() => held,
            () = sleep(time) => None,
        };
        let number = held.as_ref().map(|held| match held {
            Held::Reader(_) => self.world.given_to_reader((self.client, life), SHARED_BIT, &held.lease()),
            _ => self.world.given((self.client, life), SHARED_BIT, false, &held.lease()),
        });
        self.world.history().stats.did(Deed::Crash);
        self.world.crash(self.client, life);
        if let Some(number) = number {
            self.world.let_go(number);
        }
    }

    /// Several tries at one moment: one of them gets the lock at most.
    async fn try_at_once(&mut self) {
        let Some((client, life)) = self.world.client(self.client) else { return };
        self.world.history().stats.did(Deed::Burst);
        let one = || client.lock(TRIED).try_acquire();
        let (first, second, third, fourth) = tokio::join!(one(), one(), one(), one());
        let got: Vec<Guard> = [first, second, third, fourth].into_iter().flatten().collect();
        let given = |guard: &Guard| self.world.given((self.client, life), TRIED_BIT, false, &guard.lease());
        let numbers: Vec<usize> = got.iter().map(given).collect();
        let time = self.some_time(4);
        sleep(time).await;
        for (number, guard) in numbers.into_iter().zip(got) {
            self.world.let_go(number);
            drop(guard);
            self.world.gone(number);
        }
    }

    /// Users of one semaphore do not agree how many permits it has: then the largest number counts.
    async fn take_permit_of_some_size(&mut self) {
        let size = self.rng.pick(&[MOST_PERMITS - 1, MOST_PERMITS]);
        let limit = self.some_time(1) * 2;
        let demand =
            Demand { resources: permit_bit(0), has_holder: false, way: Way::WaitAtMost(limit), max_hold: None };
        let acquire = |client: Redlock| {
            let semaphore = client.semaphore(SEMAPHORE, size).wait_at_most(limit);
            Box::pin(async move { semaphore.acquire().await }) as Boxed<_>
        };
        let at = (self.client, self.client);
        let asked = ask_for(&self.world, at, (&demand, Schedule::Steadily), false, acquire).await;
        let Some((permit, life)): Option<(Permit, u64)> = asked else { return };
        self.world.history().stats.did(if size == MOST_PERMITS { Deed::TakeOfMore } else { Deed::TakeOfFewer });
        if permit.index() >= size {
            self.world.violate("never more permits than there are", format!("permit {} of {size}", permit.index()));
        }
        let number = self.world.given((self.client, life), permit_bit(permit.index()), false, &permit.lease());
        let time = self.some_time(1);
        sleep(time).await;
        self.world.let_go(number);
        drop(permit);
        self.world.gone(number);
    }
}

/// A lease that was moved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    /// Who detached it, and when.
    pub(crate) by: (usize, u64),
    pub(crate) at: Duration,
}

impl World {
    /// A user is about to detach it: nobody relies on it until it is attached.
    pub(crate) fn detaches(&self, client: (usize, u64), number: usize) {
        self.let_go(number);
        let (at, value) = (self.at(), self.history().holds[number].value.clone());
        self.history().stats.did(Deed::Detach);
        self.history().detached.push(value.clone());
        let mut judge = self.judge();
        let rounds = judge.rounds_of(&value);
        (rounds.moved, rounds.has_copies) = (Some(Moved { by: client, at }), true);
    }

    /// P32: it is one lease, and a quorum has stored it all the time.
    pub(crate) fn attached(&self, client: (usize, u64), attached: Attached, guard: &Guard) -> usize {
        let (lease, value) = (guard.lease(), value_of(&guard.lease()));
        self.absorb();
        let mut judge = self.judge();
        judge.rounds_of(&value).attached.push(client);
        let is_back = judge.rounds.get(&value).is_some_and(|rounds| rounds.client == Some(client));
        let kept_by = judge.kept_by(&value, client);
        let is_whole = is_back || kept_by >= self.scenario.quorum;
        let what = format!("on {kept_by}: {}", judge.told(&value));
        drop(judge);
        if !is_whole {
            self.violate("what is attached was stored by a quorum", what);
        }
        self.give(client, (SHARED_BIT, false, None), false, Some(attached), &lease)
    }

    /// The process of this client is gone, with all that it has; another takes its place.
    fn crash(self: &Arc<Self>, client: usize, life: u64) {
        self.note("crashed", [client as u64, life], || format!("client {client}"));
        self.history().crashed.push((client, life));
        let late = self.scenario.ttl / 20;
        self.links[client].iter().for_each(|link| link.break_after(Direction::Up, 0, late));
        let is_present = self.client(client).is_some_and(|(_, present)| present == life);
        let Some(old) = is_present.then(|| self.begin_client(client)).flatten() else { return };
        // Users of it go on in the simulation alone: nothing reaches a server any more.
        tokio::spawn(async move { drop(old.shutdown(Duration::ZERO).await) });
    }
}
