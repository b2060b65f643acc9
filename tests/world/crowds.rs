//! P24, P25, P34, P35: after the faults one of any kind gets in beside a crowd of any kind that comes again and again, in its client
//! and in others.

use std::time::Duration;

use redquorum::testing::simulation::lease_of;
use redquorum::{AcquireError, AllGuard, AllLeases, Redlock};
use tokio::time::sleep;

use crate::deeds::Deed;
use crate::invariants::nobody::Together;
use crate::scenario::Part;
use crate::schedule::Boxed;
use crate::sharers::{Held, SEMAPHORE, permit_bit};
use crate::time::{now, since};
use crate::users::User;

/// What all of them want: a lock, the only permit of a semaphore, an election.
const NAME: &str = "s#0";
/// What is locked together with it.
const OTHER: &str = "b";
const OTHER_BIT: u8 = 1 << 1;

/// Each wait is over within this (`docs/safety.md`), and what a network that is slow now and then adds.
const BOUND: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Lock,
    All,
    Permit,
    Lead,
}

const KINDS: [Kind; 6] = [Kind::Read, Kind::Write, Kind::Lock, Kind::All, Kind::Permit, Kind::Lead];

enum Turn {
    One(Held),
    All(AllGuard),
}

fn ask(kind: Kind, client: Redlock, info: String) -> Boxed<Result<Turn, AcquireError>> {
    Box::pin(async move {
        Ok(Turn::One(match kind {
            Kind::Read => Held::Reader(client.rw_lock(NAME).read().await?),
            Kind::Write => Held::Writer(client.rw_lock(NAME).write().await?),
            Kind::Lock => Held::Writer(client.lock(NAME).acquire().await?),
            Kind::Permit => Held::Permit(client.semaphore(SEMAPHORE, 1).acquire().await?),
            Kind::Lead => Held::Leader(client.election(NAME).campaign(&info).await?),
            Kind::All => return Ok(Turn::All(client.lock_all([NAME, OTHER]).acquire().await?)),
        }))
    })
}

impl User {
    pub(crate) async fn get_in_beside_a_crowd(&mut self) {
        if self.world.scenario.in_order.is_none() {
            return; // then nothing is promised
        }
        let mut rng = self.world.scenario.rng(Part::Crowd);
        let (one, crowd) = (rng.pick(&KINDS), rng.pick(&KINDS));
        let (begun, limit) = (now(), self.world.time_to_get_in());
        self.world.history().in_crowd += 1;
        while self.world.history().in_crowd < self.world.scenario.users && since(begun) < limit {
            sleep(self.world.scenario.ttl / 20).await;
        }
        if self.index == 0 {
            self.world.note("beside a crowd", [one as u64, crowd as u64], || format!("{one:?} beside {crowd:?}"));
            sleep(self.world.scenario.ttl / 4).await;
            self.world.history().stats.did(Deed::WaitBesideCrowd);
            self.take_turn(one, BOUND).await;
            self.world.history().is_beside_crowd = true;
        }
        while !self.world.history().is_beside_crowd && since(begun) < limit * 2 {
            self.take_turn(crowd, limit).await;
        }
    }

    async fn take_turn(&mut self, kind: Kind, limit: Duration) {
        let info = self.info();
        let asks = |client: Redlock| ask(kind, client, info.clone());
        let present = self.world.client(self.client).filter(|_| matches!(kind, Kind::All));
        let together =
            present.map(|(_, life)| Together::begin(&self.world, (self.client, life), OTHER_BIT | permit_bit(0)));
        let Some((turn, life)) = self.must_get("nobody starves beside a crowd", limit, asks).await else { return };
        drop(together);
        let client = (self.client, life);
        let bit = permit_bit(0);
        let numbers = match &turn {
            Turn::One(Held::Reader(guard)) => vec![self.world.given_to_reader(client, bit, &lease_of(guard))],
            Turn::One(held) => vec![self.world.given(client, bit, false, &held.lease())],
            // In the order of their keys.
            Turn::All(guard) => {
                let leases: AllLeases = guard.leases();
                let given = |(bit, lease)| self.world.given(client, bit, false, lease);
                [OTHER_BIT, bit].into_iter().zip(leases.leases()).map(given).collect()
            }
        };
        sleep(Duration::from_millis(3 + self.rng.below(5))).await;
        numbers.iter().for_each(|number| self.world.let_go(*number));
        drop(turn);
        numbers.iter().for_each(|number| self.world.gone(*number));
    }
}
