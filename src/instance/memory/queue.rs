//! What an in-process instance has, and what is on its way to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::faults::{Faults, Hang, Requests};
use super::scripts;
use super::store::Store;
use crate::instance::Request;
use crate::protocol::{Cause, Instant, Reply};

/// What becomes of the answer to one request.
#[derive(Debug)]
pub(super) enum Answer {
    /// Not carried out yet; when it will be, if that is known.
    Waiting(Option<Instant>),
    /// Given from this instant on.
    From(Instant, Reply),
    /// Never given.
    Never,
}

/// One client's hold on one request.
#[derive(Clone, Debug)]
pub(super) struct Ticket(Arc<Mutex<Answer>>);

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) ticket: Ticket,
    /// How long after the request was carried out it is answered, or never.
    pub(super) answered_after: Option<Duration>,
    pub(super) loses_reply: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) faults: Faults,
    pub(super) requests: Requests,
    /// Requests by the instant at which they are carried out, then in the order of the calls.
    scheduled: BTreeMap<(Instant, u64), Queued>,
    /// Requests that a process that stands still will carry out when it goes on.
    pub(super) held: Vec<Queued>,
    sequence: u64,
    /// What its wall clock read at the beginning of time.
    wall_us_at_zero: u64,
    /// No request over the present connection is carried out before this: the order is kept.
    pub(super) not_before: Instant,
}

impl State {
    pub(super) fn new(wall_us_at_zero: u64) -> Self {
        Self { wall_us_at_zero, ..Self::default() }
    }

    pub(super) fn schedule(&mut self, due: Instant, queued: Queued) {
        if queued.answered_after.is_some() {
            queued.ticket.set(Answer::Waiting(Some(due)));
        }
        self.sequence += 1;
        self.scheduled.insert((due, self.sequence), queued);
    }

    /// Carries out everything whose time has come, as of that time.
    pub(super) fn carry_out(&mut self, now: Instant) {
        while let Some(first) = self.scheduled.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, _), queued) = first.remove_entry();
            let wall_us = self.wall_us_at_zero.saturating_add(due.as_nanos() / 1000);
            let reply = scripts::run(&mut self.store, &queued.request, None, (due, wall_us));
            queued.ticket.set(match queued.answered_after {
                Some(_) if queued.loses_reply => disconnected(due),
                Some(after) => Answer::From(due.saturating_add(after), reply),
                None => Answer::Never,
            });
        }
    }

    pub(super) fn take_queued(&mut self) -> Vec<Queued> {
        let scheduled = std::mem::take(&mut self.scheduled).into_values();
        scheduled.chain(std::mem::take(&mut self.held)).collect()
    }

    /// After a change of faults: a stopped process drops its queue, one that stands still holds it,
    /// one that goes on works through it.
    pub(super) fn rearrange(&mut self, now: Instant) {
        if self.faults.stopped {
            for queued in self.take_queued() {
                queued.ticket.set(disconnected(now));
            }
        } else if self.faults.hang == Some(Hang::Stopped) {
            self.held = self.take_queued();
            for queued in &self.held {
                queued.ticket.set(Answer::Waiting(None));
            }
        } else {
            self.not_before = self.not_before.max(now);
            for queued in std::mem::take(&mut self.held) {
                self.schedule(self.not_before, queued);
            }
            self.carry_out(now);
        }
    }
}

impl Ticket {
    pub(super) fn never() -> Self {
        Self(Arc::new(Mutex::new(Answer::Never)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, answer: Answer) {
        *self.lock() = answer;
    }
}

pub(super) fn disconnected(now: Instant) -> Answer {
    Answer::From(now, Reply::Unknown(Cause::Disconnected("the in-process connection was broken".to_owned())))
}
