//! Checks the keys of leases when an instance pushes that they changed (P20). A push is no proof: tables
//! overflow, connections break. What counts is what the instance has when it is asked.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::table::SharedLeaseTable;
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Invalidation, KeyState, split_into_commands};
use crate::protocol::{InstanceId, InstanceSet, Instant};
use crate::runtime::held_lease::HeldLease;

/// The most leases in one key check.
const MAX_CHECKED: usize = 128;

/// What one instance has of some leases.
pub(super) struct CheckedKeys {
    leases: Vec<Arc<HeldLease>>,
    instance: InstanceId,
    sent: Instant,
    /// By lease.
    keys: Vec<KeyState>,
}

pub(super) struct KeyWatcher {
    instances: Arc<[RedisInstance]>,
    clock: Arc<dyn Clock>,
    table: Arc<SharedLeaseTable>,
    checks: FuturesUnordered<BoxFuture<'static, CheckedKeys>>,
}

impl KeyWatcher {
    pub(super) fn new(instances: Arc<[RedisInstance]>, clock: Arc<dyn Clock>, table: Arc<SharedLeaseTable>) -> Self {
        Self { instances, clock, table, checks: FuturesUnordered::new() }
    }

    /// The next key check that was answered; `None` if none is in flight.
    pub(super) async fn next_checked(&mut self) -> Option<CheckedKeys> {
        self.checks.next().await
    }

    /// Watches a lease on every instance, if not too many keys are watched already.
    pub(super) fn watch(&self, held: &Arc<HeldLease>) {
        let is_watched = self.table.lock_send_order().watch(held);
        if is_watched {
            self.check_on(held, InstanceSet::first(self.instances.len()));
        }
    }

    /// After a renewal, which ended the watch of the instance: watches again, and what was not watched yet.
    pub(super) fn watch_again(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let mut table = self.table.lock_send_order();
        let watched: Vec<_> = leases.into_iter().filter(|held| table.watch(held)).collect();
        drop(table);
        self.check_all(&watched, id);
    }

    /// After keys were set again: until the others are asked, they may have lost theirs before (P20).
    pub(super) fn check_everywhere(&self, mut leases: Vec<Arc<HeldLease>>) {
        leases.retain(|held| held.state().is_watched);
        InstanceId::all(self.instances.len()).for_each(|id| self.check_all(&leases, id));
    }

    /// Checks the keys of one lease on these instances; they push the next change of them.
    pub(super) fn check_on(&self, held: &Arc<HeldLease>, instances: InstanceSet) {
        for id in instances.iter() {
            self.check(vec![Arc::clone(held)], id);
        }
    }

    /// An instance says that keys changed.
    pub(super) fn on_invalidation(&self, invalidation: &Invalidation) {
        let leases = self.table.lock_send_order().watched_under(&invalidation.keys);
        self.check_all(&leases, invalidation.instance);
    }

    fn check_all(&self, leases: &[Arc<HeldLease>], id: InstanceId) {
        split_into_commands(leases, MAX_CHECKED, |held| held.claim().command_size())
            .for_each(|leases| self.check(leases.to_vec(), id));
    }

    fn check(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let Some(instance) = self.instances.get(id.index()) else { return };
        let sent = self.clock.now();
        let check = instance.check_keys(leases.iter().map(|held| held.claim()).collect());
        self.checks.push(Box::pin(async move { CheckedKeys { leases, instance: id, sent, keys: check.await } }));
    }

    /// Takes in what an instance has. Returns the leases that it does not have, but that are still held.
    pub(super) fn on_checked(&self, checked: CheckedKeys) -> Vec<Arc<HeldLease>> {
        let CheckedKeys { leases, instance, sent, keys } = checked;
        let mut missing = Vec::new();
        for (held, key) in leases.into_iter().zip(keys) {
            let value = match key {
                KeyState::NotOwn(value) => value,
                KeyState::Own => {
                    held.state().lease.note_present(instance, sent, self.clock.now());
                    continue;
                }
                KeyState::Unknown => continue,
            };
            held.note_missing(instance, value, sent);
            if held.state().has_ended() {
                self.table.lock_send_order().remove(&held);
            } else {
                missing.push(held);
            }
        }
        missing
    }
}
