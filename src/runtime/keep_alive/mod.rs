//! Keeps the leases of one client alive and finds out when one is lost: one task for all of them
//! (P19, P20).

mod renew;
mod table;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::held_lease::{HeldLease, HeldLeaseState, LettingGo};
use crate::clock::Clock;
use crate::instance::{Hint, Instance, Request};
use crate::protocol::{InstanceSet, Instant, Quorum, RenewalPlan};
use table::LeaseTable;

/// The longest sleep while a lease is held: timers stand still while the machine sleeps, so the
/// clock is looked at this often to find out about a lease that ended meanwhile (P3).
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What the task is told.
enum TaskMessage {
    /// Something is due earlier than it knew.
    Wake,
    /// Somebody wants to know at once when this lease is lost.
    Watch(Arc<HeldLease>),
    /// These instances have extended a lease that is watched: they do not tell of it any more.
    Recheck(Arc<HeldLease>, InstanceSet),
}

/// Registers leases with the task. Never blocks for long and needs no runtime.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// Whoever changes or sends for a lease holds this: what was released is not renewed any more.
    table: Arc<Mutex<LeaseTable>>,
    messages: mpsc::UnboundedSender<TaskMessage>,
}

/// What the task works with.
pub(crate) struct KeepAliveParts {
    pub(crate) instances: Arc<[Arc<dyn Instance>]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    /// Pushes of the instances.
    pub(crate) hints: mpsc::Receiver<Hint>,
    /// The most keys that are watched.
    pub(crate) most_watched: usize,
}

impl KeepAlive {
    /// Starts the task. It ends when the client and its guards are gone.
    pub(crate) fn start(tools: KeepAliveParts) -> Self {
        let (messages, receiver) = mpsc::unbounded_channel();
        let table = Arc::new(Mutex::new(LeaseTable::new(tools.most_watched)));
        let KeepAliveParts { instances, quorum, clock, hints, .. } = tools;
        let task =
            KeepAliveTask { instances, quorum, clock, table: Arc::clone(&table), in_flight: FuturesUnordered::new() };
        tokio::spawn(task.run(receiver, hints));
        Self { table, messages }
    }

    /// Takes care of a lease from now on, if nobody has wanted that yet.
    pub(super) fn adopt(&self, held: &Arc<HeldLease>) {
        self.schedule_if(held, |state| state.due.is_none());
    }

    /// One guard lets go. After this no extend of the lease is sent if it was the last.
    pub(crate) fn drop_guard(&self, held: &HeldLease) -> Option<(Request, InstanceSet)> {
        let mut table = self.table();
        let letting_go = held.drop_guard();
        if held.state().has_ended() {
            table.remove(held);
        }
        match letting_go {
            LettingGo::Nothing => None,
            LettingGo::Release(release, ids) => Some((release, ids)),
        }
    }

    /// Plans the next renewal anew: after an extend that a guard asked for, or when a guard needs the
    /// lease for longer. Not of a lease that nobody has taken yet.
    pub(super) fn reschedule(&self, held: &Arc<HeldLease>) {
        self.schedule_if(held, |state| state.due.is_some());
    }

    fn schedule_if(&self, held: &Arc<HeldLease>, wanted: impl FnOnce(&HeldLeaseState) -> bool) {
        let mut table = self.table();
        let mut state = held.state();
        if state.has_ended() {
            drop(state);
            table.remove(held);
            return;
        }
        if !wanted(&state) {
            return;
        }
        let (terms, valid_until) = (state.lease.terms(), state.lease.valid_until());
        let started_at = valid_until.saturating_sub(terms.ttl().saturating_sub(terms.drift()));
        let renewal = RenewalPlan::new(terms.ttl()).after_success(started_at);
        let due = if state.policy.renews { renewal } else { valid_until };
        table.schedule(held, &mut state, due);
        let wake = table.needs_wake(due);
        drop((state, table));
        if wake {
            // An error means that the runtime is gone, and with it the connections.
            let _ = self.messages.send(TaskMessage::Wake);
        }
    }

    /// Wants to know at once when the lease is lost, by push where the instances offer that.
    pub(crate) fn watch(&self, held: &Arc<HeldLease>) {
        let is_watched = held.state().is_watched;
        if !is_watched && self.table().has_room_to_watch() {
            let _ = self.messages.send(TaskMessage::Watch(Arc::clone(held)));
        }
    }

    /// Goes on watching a lease that these instances have extended, if somebody does.
    pub(super) fn recheck(&self, held: &Arc<HeldLease>, ids: InstanceSet) {
        if !ids.is_empty() && held.state().is_watched {
            let _ = self.messages.send(TaskMessage::Recheck(Arc::clone(held), ids));
        }
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes in while the task works.
enum TaskEvent {
    BatchReplies(renew::BatchReplies),
    KeysChecked(watch::KeysChecked),
}

struct KeepAliveTask {
    instances: Arc<[Arc<dyn Instance>]>,
    quorum: Quorum,
    clock: Arc<dyn Clock>,
    table: Arc<Mutex<LeaseTable>>,
    in_flight: FuturesUnordered<BoxFuture<'static, TaskEvent>>,
}

impl KeepAliveTask {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<TaskMessage>, mut hints: mpsc::Receiver<Hint>) {
        loop {
            let next = self.renew_due();
            let pause = next.map(|next| next.saturating_since(self.clock.now()).min(LONGEST_SLEEP));
            tokio::select! {
                message = messages.recv() => match message {
                    Some(TaskMessage::Wake) => {}
                    Some(TaskMessage::Watch(held)) => self.watch(&held),
                    Some(TaskMessage::Recheck(held, ids)) => self.recheck_on(held, ids),
                    None => return,
                },
                Some(hint) = hints.recv() => self.on_invalidation(hint),
                Some(event) = self.in_flight.next(), if !self.in_flight.is_empty() => match event {
                    TaskEvent::BatchReplies(renewed) => self.on_batch_replies(renewed),
                    TaskEvent::KeysChecked(looked) => self.on_keys_checked(looked),
                },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}
