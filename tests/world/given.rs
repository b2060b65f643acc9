//! Locks that are given to users and let go.

use std::time::Duration;

use redquorum::testing::simulation::value_of;
use redquorum::{AllLeases, Guard, LeaseView};

use crate::demand::Demand;
use crate::history::{Attached, Hold};
use crate::world::World;

impl World {
    /// A user was given a lock: gives its number. All that must be true then is checked.
    pub(crate) fn given(
        &self,
        (client, life): (usize, u64),
        resources: u8,
        has_holder: bool,
        lease: &LeaseView,
    ) -> usize {
        self.given_for((client, life), (resources, has_holder, None), lease)
    }

    /// The same, for a user that wants it renewed for so long only.
    pub(crate) fn given_for(
        &self,
        client: (usize, u64),
        what: (u8, bool, Option<Duration>),
        lease: &LeaseView,
    ) -> usize {
        self.give(client, what, false, None, lease)
    }

    /// The same, for a user that reads.
    pub(crate) fn given_to_reader(&self, client: (usize, u64), resources: u8, lease: &LeaseView) -> usize {
        self.give(client, (resources, false, None), true, None, lease)
    }

    /// `attached` if it was moved here.
    pub(crate) fn give(
        &self,
        (client, life): (usize, u64),
        (resources, has_holder, max_hold): (u8, bool, Option<Duration>),
        reads: bool,
        attached: Option<Attached>,
        lease: &LeaseView,
    ) -> usize {
        let at = self.at();
        let value = value_of(lease);
        let mut judge = self.judge();
        let rounds = judge.rounds_of(&value);
        rounds.given += 1;
        rounds.let_go = None;
        rounds.not_after = max_hold.map(|longest| self.machines[client].clock.reading() + longest);
        drop(judge);
        let since_won = (self.scenario.ttl * 9 / 10).saturating_sub(lease.remaining());
        let mut history = self.history();
        let number = history.holds.len();
        history.stats.given += 1;
        let what = || format!("lock {number} on {resources:03b} to client {client}, token {}", lease.fencing_token());
        history.note(at, "given", [client as u64, lease.fencing_token().get()], what);
        let mut hold = Hold {
            client,
            life,
            resources,
            has_holder,
            token: lease.fencing_token(),
            given_at: at,
            won_by: at.saturating_sub(since_won),
            value,
            lease: Some(lease.clone()),
            reads,
            shares: false,
            attached,
            was_over: false,
            is_listened_to: false,
            over_at: None,
        };
        if let Some(first) = history.holds.iter().find(|other| other.shares_with(&hold)) {
            (hold.shares, hold.won_by) = (true, hold.won_by.min(first.won_by));
        }
        history.holds.push(hold);
        drop(history);
        self.check_given(number);
        self.given.notify_waiters();
        number
    }

    /// The same, for each of several that are held together.
    pub(crate) fn given_all(&self, client: (usize, u64), demand: &Demand, leases: &AllLeases) -> Vec<usize> {
        let bits = (0..3).map(|bit| 1 << bit).filter(|bit| demand.resources & bit != 0);
        let given = |(bit, lease)| self.given_for(client, (bit, demand.has_holder, demand.max_hold), lease);
        bits.zip(leases.leases()).map(given).collect()
    }

    /// Its user extends a lease for longer than it was to be renewed.
    pub(crate) fn extends(&self, lease: &LeaseView) {
        self.judge().rounds_of(&value_of(lease)).not_after = None;
    }

    /// Waits until this lock is given; for how long it is valid then.
    pub(crate) async fn lock_given(&self, number: usize) -> Duration {
        loop {
            let given = self.given.notified();
            if self.history().holds.len() > number {
                break;
            }
            given.await;
        }
        let history = self.history();
        let lease = history.holds.get(number).and_then(|hold| hold.lease.as_ref());
        lease.map_or(Duration::ZERO, LeaseView::remaining)
    }

    /// Its user relies on it no more.
    pub(crate) fn let_go(&self, number: usize) {
        let mut history = self.history();
        history.holds[number].lease = None;
        history.note(self.at(), "let go", [number as u64, 0], || format!("lock {number}"));
    }

    /// Nobody has it any more from now on.
    pub(crate) fn gone(&self, number: usize) {
        let history = self.history();
        let value = history.holds.get(number).map(|hold| hold.value.clone());
        drop(history);
        if let Some(value) = value {
            self.judge().rounds_of(&value).let_go = Some(self.at());
        }
    }

    /// Its user is done with it.
    pub(crate) fn drop_held(&self, number: usize, guard: Guard) {
        self.let_go(number);
        drop(guard);
    }
}
