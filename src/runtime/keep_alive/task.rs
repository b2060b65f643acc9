//! The task that renews leases when they are due and checks their keys when an instance pushes a change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::renew::Renewer;
use super::table::SharedLeaseTable;
use super::watch::KeyWatcher;
use crate::clock::Clock;
use crate::instance::Invalidation;
use crate::instance::redis::RedisInstance;
use crate::protocol::{InstanceSet, Quorum};
use crate::runtime::counters::Counters;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::lasting_task::ran_to_its_end;
use crate::runtime::observed::Observed;

/// The longest sleep while a lease is held: timers stand still while the machine sleeps, so the
/// clock is read this often to notice a lease that ended meanwhile (P3).
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What others ask of the task.
#[derive(Debug)]
pub(super) enum TaskMessage {
    /// A lease is due earlier than the task would wake.
    Wake,
    /// Somebody waits for the loss of this lease.
    Watch(Arc<HeldLease>),
    /// These instances have extended a lease that is watched, which ended their watch of its keys.
    Recheck(Arc<HeldLease>, InstanceSet),
}

pub(super) struct KeepAliveTask {
    clock: Arc<dyn Clock>,
    renewer: Renewer,
    watcher: KeyWatcher,
}

impl KeepAliveTask {
    pub(super) fn new(
        instances: Arc<[RedisInstance]>,
        quorum: Quorum,
        clock: Arc<dyn Clock>,
        table: Arc<SharedLeaseTable>,
        counters: Arc<Counters>,
    ) -> Self {
        let watcher = KeyWatcher::new(Arc::clone(&instances), Arc::clone(&clock), Arc::clone(&table));
        Self { renewer: Renewer::new(instances, quorum, Arc::clone(&clock), table, counters), watcher, clock }
    }

    pub(super) async fn run(
        mut self,
        mut messages: mpsc::UnboundedReceiver<TaskMessage>,
        mut invalidations: mpsc::Receiver<Invalidation>,
        (clock_moved, observed): (Arc<Notify>, Arc<Observed>),
    ) {
        let told = (&*clock_moved, &*observed);
        while !ran_to_its_end("renews leases", self.serve(&mut messages, &mut invalidations, told)).await {
            self.renewer.recover();
        }
    }

    async fn serve(
        &mut self,
        messages: &mut mpsc::UnboundedReceiver<TaskMessage>,
        invalidations: &mut mpsc::Receiver<Invalidation>,
        (clock_moved, observed): (&Notify, &Observed),
    ) {
        loop {
            let next = self.renewer.renew_due();
            let pause = next.map(|next| next.saturating_since(self.clock.now()).min(LONGEST_SLEEP));
            tokio::select! {
                biased; // answers first, and what leads to more questions last
                replies = self.renewer.next_replies() => {
                    for confirmed in self.renewer.on_replies(replies) {
                        self.watcher.watch_again(confirmed.leases, confirmed.by);
                        self.watcher.check_everywhere(confirmed.repaired);
                    }
                }
                Some(checked) = self.watcher.next_checked() => {
                    for held in self.watcher.on_checked(checked) {
                        self.renewer.renew_soon(&held); // a renewal repairs what an instance has lost
                    }
                }
                message = messages.recv() => match message {
                    Some(TaskMessage::Wake) => {}
                    Some(TaskMessage::Watch(held)) => self.watcher.watch(&held),
                    Some(TaskMessage::Recheck(held, instances)) => self.watcher.check_on(&held, instances),
                    None => return,
                },
                Some(invalidation) = invalidations.recv() => {
                    observed.changed(&invalidation.keys);
                    self.watcher.on_invalidation(&invalidation);
                }
                () = clock_moved.notified() => {} // P17: what has ended by that is told at once
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }
}
