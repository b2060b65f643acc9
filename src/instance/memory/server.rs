//! An in-process instance as its clients reach it: data, a queue of requests, and faults.
//!
//! No task runs: a request is carried out when its time has come and somebody looks. So `call`
//! works from any thread, and time is whatever the runtime's clock says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::faults::{Faults, Hang, Requests};
use super::queue::{Answer, Queued, State, Ticket, disconnected};
use super::store::Store;
use crate::clock::{Clock, RuntimeClock};
use crate::instance::Request;
use crate::protocol::{Cause, Instant, Reply};

/// One instance, shared by all clients of it.
#[derive(Debug)]
pub(crate) struct Server {
    address: String,
    clock: Arc<RuntimeClock>,
    state: Mutex<State>,
    /// How often a fault has been set or removed.
    changes: watch::Sender<u64>,
}

impl Server {
    pub(crate) fn new(address: String, clock: Arc<RuntimeClock>) -> Self {
        let wall_us_at_zero = clock.wall_us().saturating_sub(clock.now().as_nanos() / 1000);
        let state = Mutex::new(State::new(wall_us_at_zero));
        Self { address, clock, state, changes: watch::Sender::new(0) }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How often faults have changed; a client's knowledge of earlier silence ends with a change.
    pub(super) fn generation(&self) -> u64 {
        *self.changes.borrow()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn wall_us(&self) -> u64 {
        self.clock.wall_us()
    }

    pub(super) fn is_hung(&self) -> bool {
        self.state().faults.hang.is_some()
    }

    pub(super) fn obstacle(&self) -> Option<Cause> {
        self.state().faults.stopped.then(|| Cause::NotConnected("the in-process instance is stopped".to_owned()))
    }

    pub(crate) fn requests(&self) -> Requests {
        self.state().requests
    }

    /// Looks at the data as of now, or changes it.
    pub(crate) fn with_store<T>(&self, access: impl FnOnce(&mut Store, Instant) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.state();
        state.carry_out(now);
        state.store.expire(now);
        access(&mut state.store, now)
    }

    /// Sets or removes faults; requests that are on their way are seen to.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Faults)) {
        let now = self.clock.now();
        let mut state = self.state();
        state.carry_out(now);
        change(&mut state.faults);
        state.rearrange(now);
        drop(state);
        self.changes.send_modify(|generation| *generation += 1);
    }

    /// Breaks the connections. What was on its way over them is carried out `late`, by then
    /// possibly behind newer requests over new connections.
    pub(crate) fn break_connections(&self, late: Duration) {
        let now = self.clock.now();
        let mut state = self.state();
        state.carry_out(now);
        for queued in state.take_queued() {
            queued.ticket.set(disconnected(now));
            // Nobody waits any more.
            let queued = Queued { ticket: Ticket::never(), answered_after: None, ..queued };
            if state.faults.hang == Some(Hang::Stopped) {
                state.held.push(queued);
            } else {
                state.schedule(now.saturating_add(late), queued);
            }
        }
        state.not_before = now;
        drop(state);
        self.changes.send_modify(|generation| *generation += 1);
    }

    /// Puts a request into the queue, or gives the reply that it gets at once.
    pub(super) fn send(&self, request: Request) -> Result<Ticket, Reply> {
        let now = self.clock.now();
        let mut state = self.state();
        state.carry_out(now);
        if let Some(cause) = &state.faults.refusal {
            return Err(refusal(cause.clone()));
        }
        state.requests.count(&request);
        if let (Some(stored), Request::Acquire(_)) = (state.faults.lies, &request) {
            return Err(Reply::Stale { stored });
        }
        let ticket = Ticket::never();
        let mut queued = Queued { request, ticket: ticket.clone(), answered_after: None, loses_reply: false };
        match state.faults.hang {
            Some(Hang::RequestsLost) => return Ok(ticket),
            Some(Hang::RepliesLost) => {}
            _ => queued.answered_after = Some(state.faults.delays.1),
        }
        if queued.answered_after.is_some() && state.faults.lost_replies > 0 {
            state.faults.lost_replies -= 1;
            queued.loses_reply = true;
        }
        if state.faults.hang == Some(Hang::Stopped) {
            ticket.set(Answer::Waiting(None));
            state.held.push(queued);
        } else {
            let due = now.saturating_add(state.faults.delays.0).max(state.not_before);
            state.not_before = due;
            state.schedule(due, queued);
            state.carry_out(now);
        }
        Ok(ticket)
    }

    /// The answer to a request, if there ever is one.
    pub(super) async fn answer(&self, ticket: &Ticket) -> Reply {
        let mut changes = self.changes();
        loop {
            let now = self.clock.now();
            self.state().carry_out(now);
            let next = match &*ticket.lock() {
                Answer::From(from, reply) if *from <= now => return reply.clone(),
                Answer::From(next, _) => Some(*next),
                Answer::Waiting(next) => *next,
                Answer::Never => None,
            };
            // The sender lives as long as `self`: an error cannot be.
            let Some(next) = next else {
                let _ = changes.changed().await;
                continue;
            };
            tokio::select! {
                biased;
                () = sleep(next.saturating_since(now)) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply for a cause, as `classify` and the connection would have it.
fn refusal(cause: Cause) -> Reply {
    match cause {
        Cause::NotConnected(_) | Cause::Silent | Cause::Overloaded | Cause::ScriptMissing => Reply::NotSent(cause),
        cause => Reply::Unknown(cause),
    }
}
