//! The queue in front of one connection.
//!
//! Up to a few requests are on their way at once, each sent the moment it is made. Requests beyond that wait for
//! replies and then share a write: under load an instance is asked about many locks at once,
//! which costs it, and the client, half as much.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::write::{Parts, take_for_one_write};
use crate::instance::Request;
use crate::protocol::{Cause, Reply};

/// A request is sent at once while fewer than so many are on their way: latency is one round trip for as many
/// concurrent requests. Beyond that fewer make larger batches, and each request costs less.
const FEW: usize = 4;

/// Writes on their way at once, to an instance that is far away, or while many wait.
const MAX_IN_FLIGHT: usize = 4;

/// An instance is far away if it takes so long to hear of it even when it has nothing to do. To wait for its replies
/// would cost more than smaller batches.
const FAR: Duration = Duration::from_millis(1);

/// So many that wait do not wait for those on their way.
const MANY: usize = 64;

/// How many writes carry one request each after a batch that failed, perhaps by the fault of one of
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
    /// It is sent now, and counts as on its way until [`SendQueue::finish`].
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
    /// How many writes are on their way, and requests in them.
    in_flight: usize,
    on_their_way: usize,
    waiting: VecDeque<QueuedRequest>,
    /// The shortest time that it took to hear of the instance, as far as that is known.
    least_round_trip: Option<Duration>,
    /// How many writes are still to carry one request each, and how many it was last time.
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
        if state.waiting.is_empty() && state.may_send() {
            state.in_flight += 1;
            state.on_their_way += 1;
            return SendDecision::SendNow(request);
        }
        if state.waiting.len() >= most_waiting {
            return SendDecision::Refused(Cause::Overloaded);
        }
        let (reply, receiver) = oneshot::channel();
        state.waiting.push_back(QueuedRequest { request, reply });
        SendDecision::Queued(receiver)
    }

    /// A write with so many requests is answered.
    pub(super) fn finish(&self, requests: usize) {
        let mut state = self.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.on_their_way = state.on_their_way.saturating_sub(requests);
    }

    /// Sends in one write what waits, if it may be sent by now, in the order in which it is given to `send`. Requests whose reply
    /// nobody awaits any more are left out: they were never sent.
    ///
    /// P6: nothing is submitted meanwhile. A release that could be sent before those that waited would overtake
    /// its own acquire among them.
    pub(super) fn send_next<T>(
        &self,
        is_plain: impl Fn(&Request) -> bool,
        send: impl FnOnce(&[QueuedRequest], Parts) -> T,
    ) -> Option<(Vec<QueuedRequest>, T)> {
        let mut state = self.state();
        state.waiting.retain(|waiting| !waiting.reply.is_closed());
        if state.waiting.is_empty() || !state.may_send() {
            return None;
        }
        let most = if state.unbatched_left > 0 { 1 } else { usize::MAX };
        state.unbatched_left = state.unbatched_left.saturating_sub(1);
        let (next, parts) = take_for_one_write(&mut state.waiting, most, |waiting| &waiting.request, is_plain);
        state.in_flight += 1;
        state.on_their_way += next.len();
        let sent = send(&next, parts);
        Some((next, sent))
    }

    /// How long it took to hear of the instance.
    pub(super) fn note_round_trip(&self, round_trip: Duration) {
        let mut state = self.state();
        state.least_round_trip = Some(state.least_round_trip.map_or(round_trip, |least| least.min(round_trip)));
    }

    /// A write failed, perhaps by the fault of one of its requests (a key that the user may not touch,
    /// say): for a while every request has a write of its own, so that it does not fail others.
    pub(super) fn batch_failed(&self) {
        let mut state = self.state();
        let count = state.unbatched_before.saturating_mul(2).clamp(UNBATCHED_LEAST, UNBATCHED_MOST);
        (state.unbatched_left, state.unbatched_before) = (count, count);
    }

    /// A write of several was carried out.
    pub(super) fn batch_answered(&self) {
        self.state().unbatched_before = 0;
    }

    /// How many requests wait, and writes are on their way.
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

impl State {
    fn may_send(&self) -> bool {
        let is_far = self.least_round_trip.is_none_or(|least| least >= FAR);
        let does_not_wait = is_far || self.unbatched_left > 0 || self.waiting.len() >= MANY;
        self.on_their_way < FEW || (does_not_wait && self.in_flight < MAX_IN_FLIGHT)
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

    /// Each of a lock of its own.
    fn submit(queue: &SendQueue, most_waiting: usize) -> SendDecision {
        let name = queue.state().waiting.len().to_string();
        queue.submit(Request::Acquire(Arc::new(Claim::sample(1, &name))), most_waiting)
    }

    /// A queue to an instance that is near, with as many requests on their way as go at once.
    fn busy() -> SendQueue {
        let queue = SendQueue::default();
        queue.note_round_trip(Duration::ZERO);
        for _ in 0..FEW {
            assert!(matches!(submit(&queue, 1), SendDecision::SendNow(_)));
        }
        queue
    }

    /// How many of those that wait share the next write.
    fn next(queue: &SendQueue) -> Option<usize> {
        queue.send_next(|_| true, |_, _| ()).map(|(next, ())| next.len())
    }

    /// How many of `count` that wait share the next write, when one with so many is answered.
    fn next_of(queue: &SendQueue, count: usize, answered: usize) -> usize {
        let replies: Vec<_> = (0..count).map(|_| submit(queue, count)).collect();
        queue.finish(answered);
        let next = next(queue).unwrap_or(0);
        drop(replies);
        next
    }

    #[test]
    fn nobody_enters_between_the_end_of_a_wait_and_the_sending() {
        let queue = busy();
        let SendDecision::Queued(_reply) = submit(&queue, 1) else { panic!("enough are on their way") };
        assert!(matches!(submit(&queue, 1), SendDecision::Refused(Cause::Overloaded)));
        assert!(next(&queue).is_none(), "no place is free yet");
        queue.finish(1);
        let left = queue.send_next(|_| true, |waiting, _| (waiting.len(), queue.0.try_lock().is_err()));
        assert!(matches!(left, Some((_, (1, true)))));
        queue.finish(1);
        assert!(next(&queue).is_none(), "nobody waits any more, the place is free");
        assert!(matches!(submit(&queue, 1), SendDecision::SendNow(_)));
    }

    #[test]
    fn while_many_are_on_their_way_the_others_wait_unless_the_instance_is_far_or_are_many() {
        for (is_far, waiting, expected) in
            [(false, 9, None), (true, 9, Some(9)), (false, 2 * MANY, Some(2 * MANY)), (true, 0, None)]
        {
            let queue = busy();
            let _first: Vec<_> = (0..9).map(|_| submit(&queue, 9)).collect();
            queue.finish(1);
            assert_eq!(next(&queue), Some(9));
            if is_far {
                queue.state().least_round_trip = Some(FAR);
            }
            let _waiting: Vec<_> = (0..waiting).map(|_| submit(&queue, waiting)).collect();
            queue.finish(1);
            assert_eq!(next(&queue), expected, "{is_far} {waiting}");
        }
    }

    #[test]
    fn after_a_batch_that_failed_requests_are_sent_singly_for_a_while() {
        let queue = busy();
        assert_eq!(next_of(&queue, 10, 1), 10);
        let mut answered = 10;
        for often in [UNBATCHED_LEAST, 2 * UNBATCHED_LEAST, 4 * UNBATCHED_LEAST] {
            queue.batch_failed();
            for _ in 0..often {
                assert_eq!(next_of(&queue, 3, answered), 1);
                answered = 1;
            }
            assert_eq!(next_of(&queue, 3, answered), 3, "after {often}");
            answered = 3;
        }
        queue.batch_answered();
        queue.batch_failed();
        assert_eq!(next_of(&queue, 3, answered), 1);
        assert!((1..UNBATCHED_LEAST).all(|_| next_of(&queue, 3, 1) == 1));
        assert_eq!(next_of(&queue, 3, 1), 3);
    }

    #[test]
    fn what_waits_for_a_connection_that_is_given_up_is_answered_as_not_sent_at_once() {
        let queue = busy();
        let waiting: Vec<_> = (0..3).map(|_| submit(&queue, 3)).collect();
        queue.close();
        for decision in waiting {
            let SendDecision::Queued(mut reply) = decision else { panic!("enough are on their way") };
            assert_eq!(reply.try_recv(), Ok(Reply::NotSent(closed())));
        }
        assert!(matches!(submit(&queue, 3), SendDecision::Refused(_)), "nor does anything enter later");
    }

    #[test]
    fn a_request_that_nobody_waits_for_is_not_sent() {
        let queue = busy();
        drop(submit(&queue, 1));
        queue.finish(1);
        assert!(next(&queue).is_none());
    }
}
