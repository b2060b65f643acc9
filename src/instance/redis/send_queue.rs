//! The queue in front of one connection.
//!
//! Up to a few commands are on their way at once, each carrying one request and sent the moment it
//! is made. Requests beyond that wait for the next reply and then share a command: under load an
//! instance is asked about many locks in one script call, which costs it half as much.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::instance::Request;
use crate::instance::fit_in_command;
use crate::protocol::{Cause, Reply};

/// Commands on their way at once. Fewer make larger batches; this many keep latency to one round
/// trip for as many concurrent requests, and the instance busy while replies are on their way.
const WINDOW: usize = 4;

/// The most requests in one command.
const MAX_BATCH: usize = 64;

/// How many commands carry one request each after a batch that failed, perhaps by the fault of one of
/// its requests; twice as many each time that follows, up to the most.
const SINGLY_LEAST: usize = 64;
const SINGLY_MOST: usize = 4096;

/// A request that waits for its turn.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// What to do with a request.
pub(super) enum Turn {
    /// Send it now; a place is taken.
    Now(Request),
    /// It waits; the reply comes through here.
    Later(oneshot::Receiver<Reply>),
    /// It is not sent, and why.
    Refused(Cause),
}

/// The places of one connection and those who wait for one.
#[derive(Default)]
pub(super) struct Lane(Mutex<State>);

#[derive(Default)]
struct State {
    on_their_way: usize,
    waiting: Vec<Waiting>,
    /// How many commands are still to carry one request each, and how many it was last time.
    singly: usize,
    singly_before: usize,
    closed: bool,
}

impl Lane {
    /// Takes a place if one is free, or queues.
    pub(super) fn enter(&self, request: Request, most_waiting: usize) -> Turn {
        let mut state = self.state();
        if state.closed {
            return Turn::Refused(closed());
        }
        if state.on_their_way < WINDOW && state.waiting.is_empty() {
            state.on_their_way += 1;
            return Turn::Now(request);
        }
        if state.waiting.len() >= most_waiting {
            return Turn::Refused(Cause::Overloaded);
        }
        let (reply, receiver) = oneshot::channel();
        state.waiting.push(Waiting { request, reply });
        Turn::Later(receiver)
    }

    /// Gives a place back; whoever waits takes it together and is sent. Requests that nobody waits
    /// for any more are left out: they were never sent.
    ///
    /// P6: nobody enters meanwhile. A release that found the place free again before those that
    /// waited are sent would overtake its own acquire among them.
    pub(super) fn leave<T>(&self, send: impl FnOnce(&mut [Waiting]) -> T) -> Option<(Vec<Waiting>, T)> {
        let mut state = self.state();
        state.waiting.retain(|waiting| !waiting.reply.is_closed());
        if state.waiting.is_empty() {
            state.on_their_way = state.on_their_way.saturating_sub(1);
            return None;
        }
        let most = if state.singly > 0 { 1 } else { MAX_BATCH };
        state.singly = state.singly.saturating_sub(1);
        let sizes = state.waiting.iter().map(|waiting| waiting.request.claim().command_size());
        let count = fit_in_command(sizes, most);
        let mut next: Vec<Waiting> = if state.waiting.len() <= count {
            std::mem::take(&mut state.waiting)
        } else {
            state.waiting.drain(..count).collect()
        };
        let sent = send(&mut next);
        Some((next, sent))
    }

    /// A batch failed, perhaps by the fault of one of its requests (a key that the user may not touch,
    /// say): for a while every request has a command of its own, so that it does not fail others.
    pub(super) fn batch_failed(&self) {
        let mut state = self.state();
        let count = state.singly_before.saturating_mul(2).clamp(SINGLY_LEAST, SINGLY_MOST);
        (state.singly, state.singly_before) = (count, count);
    }

    /// A batch was carried out.
    pub(super) fn batch_answered(&self) {
        self.state().singly_before = 0;
    }

    /// The connection was given up: those who wait are told that nothing was sent.
    pub(super) fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        for waiting in waiting {
            let _ = waiting.reply.send(Reply::NotSent(closed()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happened to a connection that is not there any more.
pub(super) fn closed() -> Cause {
    Cause::NotConnected("the connection was closed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::instance::Claim;

    fn request() -> Request {
        Request::Acquire(Arc::new(Claim::sample(1, &["a".to_owned()])))
    }

    #[test]
    fn nobody_enters_between_the_end_of_a_wait_and_the_sending() {
        let lane = Lane::default();
        for _ in 0..WINDOW {
            assert!(matches!(lane.enter(request(), 1), Turn::Now(_)));
        }
        let Turn::Later(_reply) = lane.enter(request(), 1) else { panic!("the window is full") };
        assert!(matches!(lane.enter(request(), 1), Turn::Refused(Cause::Overloaded)));
        let left = lane.leave(|waiting| (waiting.len(), lane.0.try_lock().is_err()));
        assert!(matches!(left, Some((_, (1, true)))));
        assert!(lane.leave(|_| ()).is_none(), "nobody waits any more, the place is free");
        assert!(matches!(lane.enter(request(), 1), Turn::Now(_)));
    }

    /// How many of `count` that wait share the next command.
    fn next(lane: &Lane, count: usize) -> usize {
        let replies: Vec<_> = (0..count).map(|_| lane.enter(request(), count)).collect();
        let next = lane.leave(|_| ()).map_or(0, |(next, ())| next.len());
        drop(replies);
        next
    }

    #[test]
    fn after_a_batch_that_failed_requests_are_sent_singly_for_a_while() {
        let lane = Lane::default();
        for _ in 0..WINDOW {
            assert!(matches!(lane.enter(request(), 1), Turn::Now(_)));
        }
        assert_eq!(next(&lane, 10), 10);
        for often in [SINGLY_LEAST, 2 * SINGLY_LEAST, 4 * SINGLY_LEAST] {
            lane.batch_failed();
            assert!((0..often).all(|_| next(&lane, 3) == 1));
            assert_eq!(next(&lane, 3), 3, "after {often}");
        }
        lane.batch_answered();
        lane.batch_failed();
        assert!((0..SINGLY_LEAST).all(|_| next(&lane, 3) == 1));
        assert_eq!(next(&lane, 3), 3);
    }

    #[test]
    fn a_request_that_nobody_waits_for_is_not_sent() {
        let lane = Lane::default();
        for _ in 0..WINDOW {
            assert!(matches!(lane.enter(request(), 1), Turn::Now(_)));
        }
        drop(lane.enter(request(), 1));
        assert!(lane.leave(|_| ()).is_none());
    }
}
