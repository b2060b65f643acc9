//! Keeps the leases of one client alive and notices when one is lost: one task for all of them (P19, P20).

mod table;
mod task;

use std::sync::Arc;

use tokio::sync::mpsc;

use super::held_lease::{EndNotice, GuardNumber, HeldLease, HeldLeaseState};
use super::observed::Observed;
use crate::protocol::{InstanceSet, Instant, RenewalSchedule};
use crate::resource::Resource;
use table::SharedLeaseTable;
pub(crate) use task::KeepAliveParts;
use task::{KeepAliveTask, TaskMessage};

/// Registers leases with the task. Never blocks for long and needs no runtime.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    table: Arc<SharedLeaseTable>,
    messages: mpsc::UnboundedSender<TaskMessage>,
    observed: Arc<Observed>,
}

impl KeepAlive {
    /// Starts the task. It ends when the client and its guards are gone.
    pub(crate) fn start(parts: KeepAliveParts) -> Self {
        let (messages, receiver) = mpsc::unbounded_channel();
        let table = Arc::new(SharedLeaseTable::new(parts.most_watched));
        let observed = Arc::new(Observed::new(parts.most_watched > 0));
        tokio::spawn(KeepAliveTask::new(parts, Arc::clone(&table), Arc::clone(&observed), receiver).run());
        Self { table, messages, observed }
    }

    /// The keys of others at which callers look: what instances push of them comes this way too.
    pub(crate) fn observed(&self) -> &Observed {
        &self.observed
    }

    /// How many leases are scheduled, and how many keys are watched.
    #[cfg(feature = "testing")]
    pub(crate) fn table_sizes(&self) -> (usize, usize) {
        self.table.lock_send_order().sizes()
    }

    /// How many leases callers have guards of.
    pub(crate) fn held(&self) -> usize {
        self.table.lock_send_order().collected()
    }

    /// How many of these are of readers.
    pub(crate) fn read(&self) -> usize {
        self.table.lock_send_order().read()
    }

    /// Whether this holder has the lock as a reader, in this client.
    pub(crate) fn is_read_by(&self, resource: &Resource, holder: &str) -> bool {
        self.table.lock_send_order().is_read_by(resource, holder)
    }

    /// Takes care of a lease for a guard whose tenure has begun; `false` if the client was shut down.
    #[must_use = "after a shutdown no caller gets a lease"]
    pub(super) fn adopt(&self, held: &Arc<HeldLease>) -> bool {
        let is_adopted = self.table.lock_send_order().adopt(held);
        if is_adopted {
            held.take_untold().notify();
            self.schedule_if(held, |state, due| state.schedule_key.is_none_or(|planned| due < planned.due));
        }
        is_adopted
    }

    /// Ends every lease, and adopts no more. After this no extend of them is sent by itself.
    pub(super) fn shut_down(&self) -> Vec<Arc<HeldLease>> {
        let mut table = self.table.lock_send_order();
        let leases = table.shut_down();
        let notices: Vec<_> = leases.iter().map(|held| held.shut_down()).collect();
        leases.iter().for_each(|held| table.remove(held));
        drop(table);
        notices.into_iter().for_each(EndNotice::notify);
        leases
    }

    /// Drops one guard. If it was the last no extend of the lease is sent after this, and it gives where to release it.
    pub(crate) fn drop_guard(&self, held: &HeldLease, guard: Option<GuardNumber>) -> Option<InstanceSet> {
        let mut table = self.table.lock_send_order();
        let (targets, notice) = held.drop_guard(guard);
        if held.state().has_ended() {
            table.remove(held);
        }
        drop(table);
        notice.notify();
        targets
    }

    /// `send`s an extend of a lease that has not ended: until it is queued no guard of any lease is dropped.
    pub(super) fn send_before_release<T>(&self, send: impl FnOnce() -> T) -> T {
        let _order = self.table.lock_send_order();
        send()
    }

    /// What is left of a lease that is lost, and `send`s its release. No extend of it is sent behind that.
    pub(super) fn release_after_loss(&self, held: &HeldLease, send: impl FnOnce(InstanceSet)) {
        let mut table = self.table.lock_send_order();
        table.remove(held);
        if let Some(targets) = held.release_after_loss() {
            send(targets);
        }
    }

    /// Schedules the next renewal anew: after an extend by hand, or when a guard needs the
    /// lease for longer. Not of a lease that no caller has collected yet.
    pub(super) fn reschedule(&self, held: &Arc<HeldLease>) {
        self.schedule_if(held, |state, _| state.schedule_key.is_some());
    }

    fn schedule_if(&self, held: &Arc<HeldLease>, wanted: impl FnOnce(&HeldLeaseState, Instant) -> bool) {
        let mut table = self.table.lock_send_order();
        let mut state = held.state();
        if state.has_ended() {
            drop(state);
            table.remove(held);
            return;
        }
        let (terms, valid_until) = (state.lease.terms(), state.lease.valid_until());
        let started_at = valid_until.saturating_sub(terms.ttl().saturating_sub(terms.drift()));
        let renewal = RenewalSchedule::new(terms.ttl()).after_success(started_at);
        let due = if state.is_renewed() { renewal } else { valid_until };
        if !wanted(&state, due) {
            return;
        }
        table.schedule(held, &mut state, due);
        let wake = table.needs_wake(due);
        drop((state, table));
        if wake {
            // An error means that the runtime is gone, and with it the connections.
            let _ = self.messages.send(TaskMessage::Wake);
        }
    }

    /// Requests pushes of changes of the lease's keys, where instances offer that.
    pub(crate) fn watch(&self, held: &Arc<HeldLease>) {
        let is_watched = held.state().is_watched;
        if !is_watched && self.table.lock_send_order().has_room_to_watch() {
            let _ = self.messages.send(TaskMessage::Watch(Arc::clone(held)));
        }
    }

    /// Checks the keys of a watched lease on instances that have extended it: that ended their watch.
    pub(super) fn recheck(&self, held: &Arc<HeldLease>, instances: InstanceSet) {
        if !instances.is_empty() && held.state().is_watched {
            let _ = self.messages.send(TaskMessage::Recheck(Arc::clone(held), instances));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::protocol::{InstanceId, Quorum};
    use crate::runtime::counters::Counters;
    use crate::runtime::held_lease::tests::won_and_counted;
    use crate::runtime::held_lease::{RENEWED_FOR_EVER, Wish};

    const TTL: Duration = Duration::from_secs(10);

    fn keep_alive(quorum: Quorum, counters: &Arc<Counters>) -> KeepAlive {
        KeepAlive::start(KeepAliveParts {
            instances: Arc::from([]),
            quorum,
            clock: Arc::new(SystemClock),
            clock_moved: Arc::default(),
            invalidations: mpsc::channel(1).1,
            most_watched: 0,
            counters: Arc::clone(counters),
        })
    }

    #[tokio::test]
    async fn a_loss_counts_as_one_as_soon_as_a_task_has_the_lease_that_was_lost() {
        let (quorum, counters) = (Quorum::majority(3).unwrap(), Arc::new(Counters::default()));
        let keep_alive = keep_alive(quorum, &counters);
        let held = won_and_counted(3, TTL, &counters);
        InstanceId::all(3).for_each(|id| held.note_missing(id, None, SystemClock.now()));
        assert!(held.is_gone());
        assert_eq!(counters.gone.get(), 0, "no guard has it");
        assert!(keep_alive.adopt(&held));
        assert!(keep_alive.adopt(&held));
        assert_eq!(counters.gone.get(), 1);
    }

    #[tokio::test]
    async fn two_callers_who_collect_a_lease_at_once_both_have_it_for_as_long_as_they_asked() {
        let (quorum, counters) = (Quorum::majority(3).unwrap(), Arc::new(Counters::default()));
        let keep_alive = keep_alive(quorum, &counters);
        let held = won_and_counted(3, TTL, &counters);
        assert!(held.add_guard());
        let (without_end, bounded) = (RENEWED_FOR_EVER, SystemClock.now());
        let terms = held.terms();
        let tenures = [without_end, bounded].map(|renewed_until| {
            let wish = Wish { terms, renewed_until, ends_at: None };
            let tenure = held.begin_tenure(wish, &SystemClock).unwrap();
            assert!(keep_alive.adopt(&held));
            tenure
        });
        assert_eq!(held.state().renewed_until(), without_end);
        let _ = keep_alive.drop_guard(&held, Some(tenures[0].guard));
        assert_eq!(held.state().renewed_until(), bounded);
    }
}
