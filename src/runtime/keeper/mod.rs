//! Keeps the leases of one client alive and finds out when one is lost: one task for all of them
//! (P19, P20).

mod book;
mod renewal;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::hold::{Hold, LettingGo, State};
use crate::clock::Clock;
use crate::instance::{Hint, Instance, Request};
use crate::protocol::{InstanceSet, Instant, Quorum, RenewalPlan};
use book::Book;

/// The longest sleep while a lease is held: timers stand still while the machine sleeps, so the
/// clock is looked at this often to find out about a lease that ended meanwhile (P3).
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What the task is told.
enum Job {
    /// Something is due earlier than it knew.
    Wake,
    /// Somebody wants to know at once when this lease is lost.
    Watch(Arc<Hold>),
    /// These instances have extended a lease that is watched: they do not tell of it any more.
    LookAgain(Arc<Hold>, InstanceSet),
}

/// Registers leases with the task. Never blocks for long and needs no runtime.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Whoever changes or sends for a lease holds this: what was released is not renewed any more.
    book: Arc<Mutex<Book>>,
    jobs: mpsc::UnboundedSender<Job>,
}

/// What the task works with.
pub(crate) struct Tools {
    pub(crate) instances: Arc<[Arc<dyn Instance>]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    /// Pushes of the instances.
    pub(crate) hints: mpsc::Receiver<Hint>,
    /// The most keys that are watched.
    pub(crate) most_watched: usize,
}

impl Keeper {
    /// Starts the task. It ends when the client and its guards are gone.
    pub(crate) fn start(tools: Tools) -> Self {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let book = Arc::new(Mutex::new(Book::new(tools.most_watched)));
        let Tools { instances, quorum, clock, hints, .. } = tools;
        let task = Task { instances, quorum, clock, book: Arc::clone(&book), going: FuturesUnordered::new() };
        tokio::spawn(task.run(receiver, hints));
        Self { book, jobs }
    }

    /// Takes care of a lease from now on, if nobody has wanted that yet.
    pub(super) fn take_up(&self, hold: &Arc<Hold>) {
        self.plan_if(hold, |state| state.due.is_none());
    }

    /// One guard lets go. After this no extend of the lease is sent if it was the last.
    pub(crate) fn leave(&self, hold: &Hold) -> Option<(Request, InstanceSet)> {
        let mut book = self.book();
        let letting_go = hold.leave();
        if hold.state().has_ended() {
            book.strike(hold);
        }
        match letting_go {
            LettingGo::Nothing => None,
            LettingGo::Release(release, ids) => Some((release, ids)),
        }
    }

    /// Plans the next renewal anew: after an extend that a guard asked for, or when a guard needs the
    /// lease for longer. Not of a lease that nobody has taken yet.
    pub(super) fn plan(&self, hold: &Arc<Hold>) {
        self.plan_if(hold, |state| state.due.is_some());
    }

    fn plan_if(&self, hold: &Arc<Hold>, wanted: impl FnOnce(&State) -> bool) {
        let mut book = self.book();
        let mut state = hold.state();
        if state.has_ended() {
            drop(state);
            book.strike(hold);
            return;
        }
        if !wanted(&state) {
            return;
        }
        let (terms, valid_until) = (state.lease.terms(), state.lease.valid_until());
        let started_at = valid_until.saturating_sub(terms.ttl().saturating_sub(terms.drift()));
        let renewal = RenewalPlan::new(terms.ttl()).after_success(started_at);
        let due = if state.keeping.renews { renewal } else { valid_until };
        book.put(hold, &mut state, due);
        let wake = book.must_wake_for(due);
        drop((state, book));
        if wake {
            // An error means that the runtime is gone, and with it the connections.
            let _ = self.jobs.send(Job::Wake);
        }
    }

    /// Wants to know at once when the lease is lost, by push where the instances offer that.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        let is_watched = hold.state().is_watched;
        if !is_watched && self.book().has_room_to_watch() {
            let _ = self.jobs.send(Job::Watch(Arc::clone(hold)));
        }
    }

    /// Goes on watching a lease that these instances have extended, if somebody does.
    pub(super) fn look_again(&self, hold: &Arc<Hold>, ids: InstanceSet) {
        if !ids.is_empty() && hold.state().is_watched {
            let _ = self.jobs.send(Job::LookAgain(Arc::clone(hold), ids));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes in while the task works.
enum Landed {
    Renewed(renewal::Renewed),
    Looked(watch::Looked),
}

struct Task {
    instances: Arc<[Arc<dyn Instance>]>,
    quorum: Quorum,
    clock: Arc<dyn Clock>,
    book: Arc<Mutex<Book>>,
    going: FuturesUnordered<BoxFuture<'static, Landed>>,
}

impl Task {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>, mut hints: mpsc::Receiver<Hint>) {
        loop {
            let next = self.renew_what_is_due();
            let pause = next.map(|next| next.saturating_since(self.clock.now()).min(LONGEST_SLEEP));
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(Job::Wake) => {}
                    Some(Job::Watch(hold)) => self.watch(&hold),
                    Some(Job::LookAgain(hold, ids)) => self.look_again_at(hold, ids),
                    None => return,
                },
                Some(hint) = hints.recv() => self.follow_up(hint),
                Some(landed) = self.going.next(), if !self.going.is_empty() => match landed {
                    Landed::Renewed(renewed) => self.take_in_renewal(renewed),
                    Landed::Looked(looked) => self.take_in_look(looked),
                },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}
