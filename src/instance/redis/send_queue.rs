//! What waits in front of one connection, and what is on its way over it.
//!
//! While nothing is on its way, a request is sent the moment it is made. A request that is made meanwhile waits for the reply, and then
//! shares one write: under load a write has many locks, which costs the instance, and the client, half as much. To an
//! instance that is far away several writes are on their way at once, as waiting for its replies would cost a second round trip. For
//! one that takes longer than usual nothing waits for long either: a release is to come right behind its acquire.

use std::collections::VecDeque;
use std::time::Duration;

use super::write::{Parts, take_for_one_write};
use crate::instance::{Claim, ReplyTo, Request};
use crate::protocol::{AttachedRecord, Cause, Instant};

/// An instance is far away if even the shortest round trip takes so long: a near one takes longer than usual where much is to be done.
const FAR: Duration = Duration::from_micros(500);

/// For each of these parts of the shortest round trip to an instance that is far away, one write may be on its way.
const PART_OF_A_ROUND_TRIP: Duration = Duration::from_micros(100);

/// For each of these for which the first of the writes is on its way one more may be.
const PATIENCE: Duration = Duration::from_millis(2);

/// How many writes carry one request each after a batch that failed, perhaps by the fault of one of
/// its requests; twice as many each time that follows, up to the most. So many of them are on their way at once.
const UNBATCHED_LEAST: usize = 64;
const UNBATCHED_MOST: usize = 4096;
const UNBATCHED_AT_ONCE: usize = 4;

/// After so many deadlines without any answer an instance is silent: it is only probed until it answers.
const SILENT_AFTER: u32 = 2;

/// A request and where its reply goes.
pub(super) struct Asked {
    pub(super) request: Request,
    /// `None` once it has a reply.
    pub(super) reply_to: Option<ReplyTo>,
    /// When it was made.
    pub(super) since: Instant,
}

impl AsRef<Claim> for Asked {
    fn as_ref(&self) -> &Claim {
        self.request.claim()
    }
}

/// A write without an answer.
pub(super) struct Write {
    number: u64,
    /// When it was sent, and with what record.
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// How many of its requests as what.
    pub(super) parts: Parts,
    pub(super) requests: Vec<Asked>,
}

/// What is known of an instance as something is sent to it.
pub(super) struct KnownAtSending {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// What its clock shows at least, in microseconds: a token that is ahead must not be stored (P12).
    pub(super) wall_us: u64,
}

/// The result of a look at the deadlines.
pub(super) struct Late {
    /// Those that were not answered in time.
    pub(super) requests: Vec<Asked>,
    /// When the first of the writes was sent that were not.
    pub(super) first_write: Option<Instant>,
    /// When to look again; `None` if nothing is under way.
    pub(super) next: Option<Instant>,
}

/// What waits and what is on its way. Requests are sent while its mutex is held, so that none can overtake another (P6).
#[derive(Default)]
pub(super) struct SendQueue {
    waiting: VecDeque<Asked>,
    in_flight: VecDeque<Write>,
    /// How many writes were sent so far.
    writes: u64,
    /// Replies have just come: the next requests of the callers that got them go into one write with what waits.
    gathers: bool,
    /// The shortest time that an answer of the instance took, as far as that is known.
    least_round_trip: Option<Duration>,
    /// How many writes are still to carry one request each, and how many it was last time.
    unbatched_left: usize,
    unbatched_before: usize,
    /// When the first of what was sent since the last answer was sent.
    unheard_since: Option<Instant>,
    /// When the deadlines are looked at next; `None` if no task will.
    watched_at: Option<Instant>,
    /// Whether anything has waited since the last look.
    has_waited: bool,
    closed: bool,
}

impl SendQueue {
    /// Queues a request, or gives it back with the reason: `most` wait already, or the connection was given up. Leases that are held
    /// do not count: there are as many extends as leases at most.
    pub(super) fn put(&mut self, asked: Asked, most: usize) -> Result<(), (Asked, Cause)> {
        if self.closed {
            return Err((asked, closed()));
        }
        if self.waiting.len() >= most && !matches!(asked.request, Request::Extend(_)) {
            return Err((asked, Cause::Overloaded));
        }
        self.waiting.push_back(asked);
        Ok(())
    }

    /// Whether what waits may be sent now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        let is_slow = || self.patience_ends().is_none_or(|end| end <= now);
        !self.waiting.is_empty() && !self.gathers && (self.in_flight.len() < self.at_once() || is_slow())
    }

    /// When one more write may be on its way; `None` if none is.
    fn patience_ends(&self) -> Option<Instant> {
        let count = u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX);
        Some(self.in_flight.front()?.at.saturating_add(PATIENCE.saturating_mul(count)))
    }

    fn at_once(&self) -> usize {
        let far = self.least_round_trip.filter(|least| *least >= FAR);
        let parts = far.unwrap_or_default().as_micros() / PART_OF_A_ROUND_TRIP.as_micros();
        let least = if self.unbatched_left > 0 { UNBATCHED_AT_ONCE } else { 1 };
        usize::try_from(parts).unwrap_or(usize::MAX).max(least)
    }

    /// Takes what goes into the next write, in its order, and gives it a number. P6: it is to be sent before anything else is queued.
    pub(super) fn next_write(&mut self, is_plain: impl Fn(&Request) -> bool) -> (u64, Vec<Asked>, Parts) {
        let most = if self.unbatched_left > 0 { 1 } else { usize::MAX };
        self.unbatched_left = self.unbatched_left.saturating_sub(1);
        self.writes += 1;
        let (next, parts) = take_for_one_write(&mut self.waiting, most, |asked| &asked.request, is_plain);
        (self.writes, next, parts)
    }

    /// The write that was taken last is on its way.
    pub(super) fn sent(&mut self, now: KnownAtSending, parts: Parts, requests: Vec<Asked>) {
        let KnownAtSending { at, attached, .. } = now;
        self.unheard_since.get_or_insert(at);
        self.in_flight.push_back(Write { number: self.writes, at, attached, parts, requests });
    }

    /// Whether the deadlines must be looked at sooner than planned.
    pub(super) fn needs_watch(&mut self, now: Instant, deadline: Duration) -> bool {
        let waits = !self.waiting.is_empty();
        self.has_waited |= waits;
        if !waits && self.in_flight.is_empty() {
            return false;
        }
        let at = self.patience_ends().filter(|_| waits).unwrap_or(now.saturating_add(deadline));
        let is_sooner = self.watched_at.is_none_or(|planned| at < planned);
        if is_sooner {
            self.watched_at = Some(at);
        }
        is_sooner
    }

    /// The write with this number is answered; `None` if its deadline has passed.
    pub(super) fn take_answered(&mut self, number: u64, now: Instant) -> Option<Write> {
        let write = pop_if(&mut self.in_flight, |write| write.number == number)?;
        self.note_round_trip(now.saturating_since(write.at));
        self.gathers |= write.requests.len() > 1 || !self.waiting.is_empty();
        self.unheard_since = None;
        Some(write)
    }

    /// Whether the callers that were just answered are about to send more.
    pub(super) const fn gathers(&self) -> bool {
        self.gathers
    }

    /// They have sent them.
    pub(super) const fn end_gathering(&mut self) {
        self.gathers = false;
    }

    /// Takes the requests that were made `deadline` ago or before, and forgets the writes that were sent then. What waits is not sent
    /// any more then; a write continues for those of its requests that are younger.
    pub(super) fn take_late(&mut self, now: Instant, deadline: Duration) -> Late {
        let is_late = |since: Instant| age(since, now) >= deadline;
        let mut late = Late { requests: Vec::new(), first_write: None, next: None };
        while let Some(write) = pop_if(&mut self.in_flight, |write| is_late(write.at)) {
            late.first_write.get_or_insert(write.at);
            late.requests.extend(write.requests);
        }
        for asked in self.in_flight.iter_mut().flat_map(|write| &mut write.requests) {
            if is_late(asked.since) && asked.reply_to.is_some() {
                let (request, reply_to) = (asked.request.clone(), asked.reply_to.take());
                late.requests.push(Asked { request, reply_to, since: asked.since });
            }
        }
        while let Some(asked) = pop_if(&mut self.waiting, |asked| is_late(asked.since)) {
            late.requests.push(asked);
        }
        let of_writes = self.in_flight.iter().flat_map(|write| {
            let unanswered = write.requests.iter().filter(|asked| asked.reply_to.is_some());
            unanswered.map(|asked| asked.since).chain([write.at])
        });
        let oldest = of_writes.chain(self.waiting.front().map(|asked| asked.since)).map(|since| age(since, now)).max();
        late.next = oldest.map(|age| now.saturating_add(deadline.saturating_sub(age)));
        let sooner = if self.waiting.is_empty() {
            // Something may wait again at once: that is not to wake the watching task each time.
            std::mem::take(&mut self.has_waited).then(|| now.saturating_add(PATIENCE))
        } else {
            self.patience_ends()
        };
        late.next = late.next.map(|next| sooner.map_or(next, |sooner| sooner.min(next)));
        self.watched_at = late.next;
        late
    }

    /// What was sent then was not answered within `deadline`; whether the instance is silent now.
    pub(super) fn note_unanswered(&mut self, sent: Instant, now: Instant, deadline: Duration) -> bool {
        let since = *self.unheard_since.get_or_insert(sent);
        age(since, now) >= deadline.saturating_mul(SILENT_AFTER)
    }

    /// The instance has answered.
    pub(super) const fn note_answer(&mut self) {
        self.unheard_since = None;
    }

    /// How long the instance took to answer.
    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        self.least_round_trip = Some(self.least_round_trip.map_or(round_trip, |least| least.min(round_trip)));
    }

    /// A write failed, perhaps by the fault of one of its requests (a key that the user may not touch,
    /// say): for a while every request has a write of its own, so that it does not fail others.
    pub(super) fn batch_failed(&mut self) {
        let count = self.unbatched_before.saturating_mul(2).clamp(UNBATCHED_LEAST, UNBATCHED_MOST);
        (self.unbatched_left, self.unbatched_before) = (count, count);
    }

    /// A write of several was carried out.
    pub(super) const fn batch_answered(&mut self) {
        self.unbatched_before = 0;
    }

    /// How many requests wait, or are on their way.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.waiting.len() + self.in_flight.iter().map(|write| write.requests.len()).sum::<usize>()
    }

    /// The connection was given up: what waits, and what is on its way.
    pub(super) fn close(&mut self) -> (VecDeque<Asked>, VecDeque<Write>) {
        self.closed = true;
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.in_flight))
    }
}

/// The first, if it fits.
fn pop_if<T>(items: &mut VecDeque<T>, fits: impl FnOnce(&T) -> bool) -> Option<T> {
    if items.front().is_some_and(fits) { items.pop_front() } else { None }
}

/// How much time has passed since then. A clock that was set back does not show it: as much counts as it was set back by, so that
/// nothing waits until it shows that time again.
fn age(since: Instant, now: Instant) -> Duration {
    now.saturating_since(since).max(since.saturating_since(now))
}

/// The cause where a connection is gone.
pub(super) fn closed() -> Cause {
    Cause::NotConnected("the connection was closed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::instance::TakesReplies;
    use crate::protocol::{InstanceId, Reply};

    const DEADLINE: Duration = Duration::from_millis(200);

    #[derive(Default)]
    struct Ignored;

    impl TakesReplies for Ignored {
        fn take(self: Arc<Self>, _: InstanceId, _: usize, _: Reply) {}
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(10_000 + ms)
    }

    /// Each of a lock of its own, so many of them, made at `since`.
    fn put(state: &mut SendQueue, count: usize, since: u64) {
        for _ in 0..count {
            let name = state.waiting.len().to_string();
            let request = Request::Acquire(Arc::new(Claim::sample(1, &name)));
            let reply_to = Some(ReplyTo::new(Arc::new(Ignored), InstanceId::new(0)));
            assert!(state.put(Asked { request, reply_to, since: at(since) }, usize::MAX).is_ok());
        }
    }

    /// Sends what may be sent; how many each write has.
    fn send(state: &mut SendQueue, now: u64) -> Vec<usize> {
        let mut sizes = Vec::new();
        while state.may_send(at(now)) {
            let (_, requests, parts) = state.next_write(|_| true);
            sizes.push(requests.len());
            state.sent(KnownAtSending { at: at(now), attached: None, wall_us: 0 }, parts, requests);
        }
        sizes
    }

    /// How many requests the next write has that is sent when the first is answered.
    fn next(state: &mut SendQueue, number: u64) -> Vec<usize> {
        assert!(state.take_answered(number, at(0)).is_some());
        state.end_gathering();
        send(state, 0)
    }

    #[test]
    fn what_is_asked_while_a_write_is_on_its_way_shares_the_next() {
        let mut state = SendQueue::default();
        put(&mut state, 1, 0);
        assert_eq!(send(&mut state, 0), [1], "at once");
        put(&mut state, 9, 0);
        assert_eq!(send(&mut state, 0), [0; 0]);
        assert!(state.take_answered(1, at(0)).is_some());
        put(&mut state, 1, 0);
        assert_eq!(send(&mut state, 0), [0; 0], "callers that were answered send next");
        put(&mut state, 1, 0);
        state.end_gathering();
        assert_eq!(send(&mut state, 0), [11]);
        assert!(state.take_answered(2, at(0)).is_some() && state.gathers());
        state.end_gathering();
        put(&mut state, 1, 0);
        assert_eq!(send(&mut state, 0), [1]);
        assert!(state.take_answered(3, at(0)).is_some() && !state.gathers(), "no other caller is there");
        put(&mut state, 1, 0);
        assert_eq!(send(&mut state, 0), [1]);
    }

    #[test]
    fn to_an_instance_that_is_far_away_several_writes_are_on_their_way() {
        for (round_trip_us, expected) in [(0, 1), (499, 1), (500, 5), (2_000, 20)] {
            let mut state = SendQueue::default();
            state.note_round_trip(Duration::from_micros(round_trip_us));
            state.note_round_trip(Duration::from_secs(1));
            let sent = (0..30).map(|_| {
                put(&mut state, 1, 0);
                send(&mut state, 0).len()
            });
            assert_eq!(sent.sum::<usize>(), expected, "{round_trip_us}");
        }
    }

    #[test]
    fn after_a_batch_that_failed_requests_are_sent_singly_for_a_while() {
        let mut state = SendQueue::default();
        let mut number = 0;
        let mut sizes = |state: &mut SendQueue, count: usize| {
            put(state, count, 0);
            let mut sizes = send(state, 0);
            while !state.in_flight.is_empty() {
                number += 1;
                sizes.extend(next(state, number));
            }
            sizes
        };
        for often in [UNBATCHED_LEAST, 2 * UNBATCHED_LEAST, 4 * UNBATCHED_LEAST] {
            state.batch_failed();
            assert_eq!(sizes(&mut state, often), vec![1; often]);
            assert_eq!(sizes(&mut state, 3), [3], "after {often}");
        }
        state.batch_answered();
        state.batch_failed();
        assert_eq!(sizes(&mut state, UNBATCHED_LEAST), vec![1; UNBATCHED_LEAST]);
        assert_eq!(sizes(&mut state, 3), [3]);
    }

    #[test]
    fn each_request_has_its_deadline_however_long_it_waited() {
        let mut state = SendQueue::default();
        let late = |state: &mut SendQueue, now: u64| {
            let Late { requests, first_write, next } = state.take_late(at(now), DEADLINE);
            (requests.len(), first_write, next)
        };
        put(&mut state, 1, 0);
        assert_eq!(send(&mut state, 0), [1]);
        put(&mut state, 2, 1);
        assert_eq!(send(&mut state, 1), [0; 0]);
        assert!(state.needs_watch(at(1), DEADLINE) && !state.needs_watch(at(1), DEADLINE));
        assert_eq!(late(&mut state, 1), (0, None, Some(at(2))));
        assert_eq!(send(&mut state, 2), [2], "it takes longer than usual");
        assert_eq!(late(&mut state, 2), (0, None, Some(at(4))), "more may wait soon");
        assert_eq!(late(&mut state, 4), (0, None, Some(at(200))));
        assert_eq!(late(&mut state, 200), (1, Some(at(0)), Some(at(201))));
        assert!(state.take_answered(1, at(0)).is_none(), "it is too late");
        assert_eq!(late(&mut state, 201), (2, None, Some(at(202))));
        state.gathers = true;
        put(&mut state, 1, 201);
        let dropped = state.take_late(at(202), DEADLINE);
        assert_eq!((dropped.requests.len(), dropped.first_write, dropped.next), (2, Some(at(2)), Some(at(401))));
        assert!(dropped.requests.iter().all(|asked| asked.reply_to.is_none()));
        assert_eq!(late(&mut state, 401), (1, None, None));
        state.gathers = false;
        assert_eq!(send(&mut state, 401), [0; 0], "it was not sent, and is not any more");
        put(&mut state, 1, 500);
        assert!(state.needs_watch(at(500), DEADLINE), "no task looks any more");
    }

    #[test]
    fn an_instance_is_silent_that_has_not_answered_for_two_deadlines() {
        let mut state = SendQueue::default();
        put(&mut state, 1, 0);
        send(&mut state, 0);
        assert!(!state.note_unanswered(at(0), at(200), DEADLINE));
        assert!(!state.note_unanswered(at(150), at(399), DEADLINE));
        assert!(state.note_unanswered(at(200), at(400), DEADLINE));
        state.note_answer();
        assert!(!state.note_unanswered(at(300), at(500), DEADLINE));
        assert!(state.note_unanswered(at(400), at(700), DEADLINE));
    }

    /// An instance that hung then was waited for until the clock showed that time again.
    #[test]
    fn a_clock_that_was_set_back_ends_the_wait_for_what_was_sent_before() {
        let mut state = SendQueue::default();
        put(&mut state, 2, 3_600_000);
        send(&mut state, 3_600_000);
        assert_eq!(state.take_late(at(3_599_900), DEADLINE).requests.len(), 0, "that little it may be");
        assert_eq!(state.take_late(at(100), DEADLINE).requests.len(), 2);
        assert!(state.note_unanswered(at(3_600_000), at(100), DEADLINE));
    }

    #[test]
    fn a_connection_that_is_given_up_or_has_much_to_do_takes_nothing() {
        let mut state = SendQueue::default();
        put(&mut state, 3, 0);
        let sample = |request: fn(Arc<Claim>) -> Request| {
            let request = request(Arc::new(Claim::sample(1, "a")));
            Asked { request, reply_to: None, since: at(0) }
        };
        assert!(matches!(state.put(sample(Request::Acquire), 3), Err((_, Cause::Overloaded))));
        assert!(state.put(sample(Request::Extend), 3).is_ok(), "what is held goes on");
        assert_eq!(send(&mut state, 0), [4]);
        put(&mut state, 2, 0);
        let (waiting, in_flight) = state.close();
        assert_eq!((waiting.len(), in_flight.len()), (2, 1));
        assert!(matches!(state.put(sample(Request::Extend), 3), Err((_, Cause::NotConnected(_)))));
    }
}
