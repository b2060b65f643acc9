//! Looks at leases when an instance hints that their keys changed (P20). A hint is no proof: tables
//! overflow, connections break. What counts is what the instance has when it is asked.

use std::sync::Arc;

use super::{KeepAliveTask, TaskEvent};
use crate::instance::{Hint, Sight, split_into_commands};
use crate::protocol::{InstanceId, InstanceSet, Instant};
use crate::runtime::held_lease::HeldLease;

/// The most leases in one look.
const MAX_CHECK: usize = 128;

/// What goes into one look each.
fn looks(leases: &[Arc<HeldLease>]) -> impl Iterator<Item = &[Arc<HeldLease>]> {
    split_into_commands(leases, MAX_CHECK, |held| held.claim().command_size())
}

/// What one instance has of some leases.
pub(super) struct KeysChecked {
    leases: Vec<Arc<HeldLease>>,
    id: InstanceId,
    sent: Instant,
    sights: Vec<Sight>,
}

impl KeepAliveTask {
    /// Watches a lease on every instance, if not too many are watched already.
    pub(super) fn watch(&self, held: &Arc<HeldLease>) {
        let watched = self.table().watch(held);
        if watched {
            for id in InstanceId::all(self.instances.len()) {
                self.look(vec![Arc::clone(held)], id);
            }
        }
    }

    /// After a renewal, which ended the watch: watches again, and what was not watched yet.
    pub(super) fn recheck(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let mut table = self.table();
        let watched: Vec<_> = leases.into_iter().filter(|held| table.watch(held)).collect();
        drop(table);
        looks(&watched).for_each(|leases| self.look(leases.to_vec(), id));
    }

    /// After an extend that was asked for, which ended the watch as well.
    pub(super) fn recheck_on(&self, held: Arc<HeldLease>, ids: InstanceSet) {
        for id in ids.iter() {
            self.look(vec![Arc::clone(&held)], id);
        }
    }

    /// An instance says that keys changed.
    pub(super) fn on_invalidation(&self, hint: Hint) {
        let leases = self.table().watched(hint.keys.as_deref());
        looks(&leases).for_each(|leases| self.look(leases.to_vec(), hint.instance));
    }

    fn look(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let Some(instance) = self.instances.get(id.index()) else { return };
        let sent = self.now();
        let look = instance.look(leases.iter().map(|held| held.claim()).collect());
        self.in_flight.push(Box::pin(async move {
            TaskEvent::KeysChecked(KeysChecked { leases, id, sent, sights: look.await })
        }));
    }

    pub(super) fn on_keys_checked(&mut self, looked: KeysChecked) {
        let KeysChecked { leases, id, sent, sights } = looked;
        for (held, sight) in leases.into_iter().zip(sights) {
            let value = match sight {
                Sight::Gone(value) => value,
                Sight::Own => {
                    held.state().lease.note_there(id, sent);
                    continue;
                }
                Sight::Unknown => continue,
            };
            held.note_missing(id, value, sent);
            if held.state().has_ended() {
                self.table().remove(&held);
            } else {
                self.renew_soon(&held); // a lease repairs itself
            }
        }
    }
}
