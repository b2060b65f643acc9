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
const MAX_IN_FLIGHT: usize = 4;

/// The most requests in one command.
const MAX_BATCH: usize = 64;

/// How many commands carry one request each after a batch that failed, perhaps by the fault of one of
/// its requests; twice as many each time that follows, up to the most.
const UNBATCHED_LEAST: usize = 64;
const UNBATCHED_MOST: usize = 4096;

/// A request that waits to be sent.
pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// What becomes of a request.
pub(super) enum SendDecision {
    /// It is sent now, and counts as in flight until [`SendQueue::finish`].
    SendNow(Request),
    /// It waits; the reply comes through this channel.
    Queued(oneshot::Receiver<Reply>),
    /// It is not sent, and why.
    Refused(Cause),
}

/// What is in flight on one connection, and what waits.
///
/// The mutex also orders sends: requests are sent while it is held, so that none can overtake another (P6).
#[derive(Default)]
pub(super) struct SendQueue(Mutex<State>);

#[derive(Default)]
struct State {
    in_flight: usize,
    waiting: Vec<QueuedRequest>,
    /// How many commands are still to carry one request each, and how many it was last time.
    unbatched_left: usize,
    unbatched_before: usize,
    closed: bool,
}

impl SendQueue {
    /// Sends a request if few enough are in flight, or queues it.
    pub(super) fn submit(&self, request: Request, most_waiting: usize) -> SendDecision {
        let mut state = self.state();
        if state.closed {
            return SendDecision::Refused(closed());
        }
        if state.in_flight < MAX_IN_FLIGHT && state.waiting.is_empty() {
            state.in_flight += 1;
            return SendDecision::SendNow(request);
        }
        if state.waiting.len() >= most_waiting {
            return SendDecision::Refused(Cause::Overloaded);
        }
        let (reply, receiver) = oneshot::channel();
        state.waiting.push(QueuedRequest { request, reply });
        SendDecision::Queued(receiver)
    }

    /// One command less is in flight; those that wait are sent together. Requests whose reply nobody awaits
    /// any more are left out: they were never sent.
    ///
    /// P6: nothing is submitted meanwhile. A release that could be sent before those that waited would overtake
    /// its own acquire among them.
    pub(super) fn finish<T>(&self, send: impl FnOnce(&mut [QueuedRequest]) -> T) -> Option<(Vec<QueuedRequest>, T)> {
        let mut state = self.state();
        state.waiting.retain(|waiting| !waiting.reply.is_closed());
        if state.waiting.is_empty() {
            state.in_flight = state.in_flight.saturating_sub(1);
            return None;
        }
        let most = if state.unbatched_left > 0 { 1 } else { MAX_BATCH };
        state.unbatched_left = state.unbatched_left.saturating_sub(1);
        let sizes = state.waiting.iter().map(|waiting| waiting.request.claim().command_size());
        let count = fit_in_command(sizes, most);
        let mut next: Vec<QueuedRequest> = if state.waiting.len() <= count {
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
        let count = state.unbatched_before.saturating_mul(2).clamp(UNBATCHED_LEAST, UNBATCHED_MOST);
        (state.unbatched_left, state.unbatched_before) = (count, count);
    }

    /// A batch was carried out.
    pub(super) fn batch_answered(&self) {
        self.state().unbatched_before = 0;
    }

    /// How many requests wait, and commands are on their way.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.in_flight
    }

    /// The connection was given up: what waits is answered as not sent.
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

/// The cause where a connection is gone.
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
        let queue = SendQueue::default();
        for _ in 0..MAX_IN_FLIGHT {
            assert!(matches!(queue.submit(request(), 1), SendDecision::SendNow(_)));
        }
        let SendDecision::Queued(_reply) = queue.submit(request(), 1) else { panic!("the window is full") };
        assert!(matches!(queue.submit(request(), 1), SendDecision::Refused(Cause::Overloaded)));
        let left = queue.finish(|waiting| (waiting.len(), queue.0.try_lock().is_err()));
        assert!(matches!(left, Some((_, (1, true)))));
        assert!(queue.finish(|_| ()).is_none(), "nobody waits any more, the place is free");
        assert!(matches!(queue.submit(request(), 1), SendDecision::SendNow(_)));
    }

    /// How many of `count` that wait share the next command.
    fn next(queue: &SendQueue, count: usize) -> usize {
        let replies: Vec<_> = (0..count).map(|_| queue.submit(request(), count)).collect();
        let next = queue.finish(|_| ()).map_or(0, |(next, ())| next.len());
        drop(replies);
        next
    }

    #[test]
    fn after_a_batch_that_failed_requests_are_sent_singly_for_a_while() {
        let queue = SendQueue::default();
        for _ in 0..MAX_IN_FLIGHT {
            assert!(matches!(queue.submit(request(), 1), SendDecision::SendNow(_)));
        }
        assert_eq!(next(&queue, 10), 10);
        for often in [UNBATCHED_LEAST, 2 * UNBATCHED_LEAST, 4 * UNBATCHED_LEAST] {
            queue.batch_failed();
            assert!((0..often).all(|_| next(&queue, 3) == 1));
            assert_eq!(next(&queue, 3), 3, "after {often}");
        }
        queue.batch_answered();
        queue.batch_failed();
        assert!((0..UNBATCHED_LEAST).all(|_| next(&queue, 3) == 1));
        assert_eq!(next(&queue, 3), 3);
    }

    #[test]
    fn a_request_that_nobody_waits_for_is_not_sent() {
        let queue = SendQueue::default();
        for _ in 0..MAX_IN_FLIGHT {
            assert!(matches!(queue.submit(request(), 1), SendDecision::SendNow(_)));
        }
        drop(queue.submit(request(), 1));
        assert!(queue.finish(|_| ()).is_none());
    }
}
