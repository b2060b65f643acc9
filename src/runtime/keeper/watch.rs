//! Looks at leases when an instance hints that their keys changed (P20). A hint is no proof: tables
//! overflow, connections break. What counts is what the instance has when it is asked.

use std::sync::Arc;

use super::{Landed, Task};
use crate::instance::{Hint, Sight, portions};
use crate::protocol::{InstanceId, InstanceSet, Instant};
use crate::runtime::hold::Hold;

/// The most leases in one look.
const MAX_LOOK: usize = 128;

/// What goes into one look each.
fn looks(holds: &[Arc<Hold>]) -> impl Iterator<Item = &[Arc<Hold>]> {
    portions(holds, MAX_LOOK, |hold| hold.claim().load())
}

/// What one instance has of some leases.
pub(super) struct Looked {
    holds: Vec<Arc<Hold>>,
    id: InstanceId,
    sent: Instant,
    sights: Vec<Sight>,
}

impl Task {
    /// Watches a lease on every instance, if not too many are watched already.
    pub(super) fn watch(&self, hold: &Arc<Hold>) {
        let watched = self.book().watch(hold);
        if watched {
            for id in InstanceId::all(self.instances.len()) {
                self.look(vec![Arc::clone(hold)], id);
            }
        }
    }

    /// After a renewal, which ended the watch: watches again, and what was not watched yet.
    pub(super) fn look_again(&self, holds: Vec<Arc<Hold>>, id: InstanceId) {
        let mut book = self.book();
        let watched: Vec<_> = holds.into_iter().filter(|hold| book.watch(hold)).collect();
        drop(book);
        looks(&watched).for_each(|holds| self.look(holds.to_vec(), id));
    }

    /// After an extend that was asked for, which ended the watch as well.
    pub(super) fn look_again_at(&self, hold: Arc<Hold>, ids: InstanceSet) {
        for id in ids.iter() {
            self.look(vec![Arc::clone(&hold)], id);
        }
    }

    /// An instance says that keys changed.
    pub(super) fn follow_up(&self, hint: Hint) {
        let holds = self.book().watched(hint.keys.as_deref());
        looks(&holds).for_each(|holds| self.look(holds.to_vec(), hint.instance));
    }

    fn look(&self, holds: Vec<Arc<Hold>>, id: InstanceId) {
        let Some(instance) = self.instances.get(id.index()) else { return };
        let sent = self.now();
        let look = instance.look(holds.iter().map(|hold| hold.claim()).collect());
        self.going.push(Box::pin(async move { Landed::Looked(Looked { holds, id, sent, sights: look.await }) }));
    }

    pub(super) fn take_in_look(&mut self, looked: Looked) {
        let Looked { holds, id, sent, sights } = looked;
        for (hold, sight) in holds.into_iter().zip(sights) {
            let value = match sight {
                Sight::Gone(value) => value,
                Sight::Own => {
                    hold.state().lease.note_there(id, sent);
                    continue;
                }
                Sight::Unknown => continue,
            };
            hold.note_missing(id, value, sent);
            if hold.state().has_ended() {
                self.book().strike(&hold);
            } else {
                self.renew_soon(&hold); // a lease repairs itself
            }
        }
    }
}
