//! What is said over one connection: one queue of what waits and of what is on its way. No socket, no clock and no runtime is here.
//!
//! ```text
//! put ---> waiting ---> in_flight (a batch) ---> its replies
//!             |  ask ----^
//!             `---> withdrawn by its release, or too late
//! ```
//!
//! While no batch is on its way, a request goes out the moment it is made. A request that is made meanwhile waits for the replies, and
//! then shares one batch: under load a batch has many locks, which costs the instance, and the client, half as much. To an instance that
//! is far away several batches are on their way at once, as waiting for its replies would cost a second round trip. For one that takes
//! longer than usual nothing waits for long either.
//!
//! A release withdraws what waits of its value: an attempt that was given up is not sent to an instance that is busy. What is on its
//! way is ahead of the release, and requests of one key keep their order in and between batches (P6).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem::take;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::sync::oneshot;

use super::batch::{self, BESIDE_PLAIN, Part, Parts, may_be_plain, take_batch};
use super::classify::{
    PlainAnswers, classify_acquires, classify_extends, classify_readers, classify_releases, is_a_fault_of_a_request,
};
use super::resp::{Broken, Expected, LONGEST, beginning, value};
use crate::instance::{Claim, ReplyTo, Request};
use crate::protocol::{AttachedRecord, Cause, FencingToken, Instant, RawReply, Refusal, Reply};

/// The most requests that may wait for their turn; more are not sent.
pub(super) const MAX_WAITING: usize = 16 * 1024;

/// The most that is on its way. Thousands of questions that are asked at once leave room for the batches of locks.
pub(super) const MOST_IN_FLIGHT: usize = 16 * 1024;

/// An instance is far away if even the shortest round trip takes so long: a near one takes longer than usual where much is to be done.
const FAR: Duration = Duration::from_micros(500);

/// For each of these parts of the shortest round trip to an instance that is far away, one batch may be on its way.
const PART_OF_A_ROUND_TRIP: Duration = Duration::from_micros(100);

/// For each of these for which the first of the batches is on its way one more may be.
const PATIENCE: Duration = Duration::from_millis(2);

/// How many batches carry one request each after one that failed, perhaps by the fault of one of
/// its requests; twice as many each time that follows, up to the most. So many of them are on their way at once.
const UNBATCHED_LEAST: usize = 64;
const UNBATCHED_MOST: usize = 4096;
const UNBATCHED_AT_ONCE: usize = 4;

/// After so many deadlines without any answer an instance is silent: it is only probed until it answers.
const SILENT_AFTER: u32 = 2;

/// A request and where its reply goes.
pub(crate) struct Asked {
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

/// A request that has ended, without an answer of the instance.
pub(super) type Ended = (Asked, Reply);

/// What is known of an instance as something is sent to it.
pub(super) struct Known {
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// What its clock shows at least, in microseconds: a token that is ahead must not be stored (P12).
    pub(super) wall_us: u64,
}

/// Requests that were written together.
pub(crate) struct Batch<A = Asked> {
    /// When they were, and with what record.
    pub(super) at: Instant,
    pub(super) attached: Option<AttachedRecord>,
    /// Empty once its time is over.
    pub(super) requests: Vec<A>,
    /// The replies to the first of them, and in the end to all.
    pub(super) replies: Vec<RawReply>,
    parts: Parts,
    plain: PlainAnswers,
    /// How many answers have come.
    answers: usize,
    /// Whether a script failed as a whole, perhaps by the fault of one of its requests.
    has_failed: bool,
}

impl<A: AsRef<Claim>> Batch<A> {
    fn new(known: Known, parts: Parts, requests: Vec<A>) -> Self {
        let Known { at, attached, .. } = known;
        let (replies, plain) = (Vec::with_capacity(requests.len()), PlainAnswers::default());
        Self { at, attached, requests, replies, parts, plain, answers: 0, has_failed: false }
    }

    /// Which part the next answer is to, with how many requests stand before those of that part, how many it has, and how many answers to
    /// it have come.
    fn next(&self) -> Option<(Part, usize, usize, usize)> {
        let (mut before, mut answers) = (0, self.answers);
        for (part, count) in self.parts.iter() {
            let of_part = if part == Part::Plain { count + BESIDE_PLAIN } else { 1 };
            match answers.checked_sub(of_part) {
                None => return Some((part, before, count, answers)),
                Some(left) => (before, answers) = (before + count, left),
            }
        }
        None
    }

    fn expects(&self) -> Expected {
        match self.next() {
            Some((Part::Plain, _, count, answers)) => match answers.checked_sub(count) {
                None => Expected::Set,
                Some(0) => Expected::Number,
                Some(1) => Expected::Time,
                Some(_) => Expected::List,
            },
            _ => Expected::Script,
        }
    }

    /// The replies to requests whose answers are all there.
    #[cfg(feature = "testing")]
    pub(crate) fn read_all(
        parts: Parts,
        requests: Vec<A>,
        attached: Option<AttachedRecord>,
        answers: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<RawReply> {
        let mut batch = Self::new(Known { at: Instant::ZERO, attached, wall_us: 0 }, parts, requests);
        answers.for_each(|answer| _ = batch.read(&answer));
        batch.replies
    }

    /// Reads the next answer; whether that was the last one.
    fn read(&mut self, answer: &[u8]) -> bool {
        let Some((part, before, count, _)) = self.next() else { return true };
        self.answers += 1;
        // Those of a batch whose time is over are only counted.
        if let Some(claims) = self.requests.get(before..before + count) {
            let replies = match part {
                Part::Plain => self.plain.take(count, claims, self.attached.as_ref(), answer).unwrap_or_default(),
                script => {
                    self.has_failed |= is_a_fault_of_a_request(answer);
                    match script {
                        Part::Release => classify_releases(claims, answer),
                        Part::Acquire => classify_acquires(claims, answer),
                        Part::Leave => classify_readers(claims, answer),
                        _ => classify_extends(claims, answer),
                    }
                }
            };
            self.replies.extend(replies);
        }
        self.next().is_none()
    }
}

/// Commands whose replies a caller waits for.
pub(super) struct Question {
    /// What the replies may be, the next one first.
    expects: VecDeque<Expected>,
    replies: Vec<Value>,
    bytes: usize,
    /// Whether the answer is the list of the replies.
    is_list: bool,
    to: oneshot::Sender<RedisResult<Value>>,
}

impl Question {
    pub(super) fn new(expects: VecDeque<Expected>, is_list: bool, to: oneshot::Sender<RedisResult<Value>>) -> Self {
        Self { expects, replies: Vec::new(), bytes: 0, is_list, to }
    }

    /// Hands out the answer; an error means that no caller waits any more.
    pub(super) fn answer(mut self) {
        let answer = match self.is_list {
            true => Value::Array(take(&mut self.replies)),
            false => self.replies.pop().unwrap_or(Value::Nil),
        };
        let _ = self.to.send(Ok(answer));
    }

    /// There will be no answer.
    pub(super) fn fail(self, why: RedisError) {
        let _ = self.to.send(Err(why));
    }

    /// Whether nothing is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.expects.is_empty()
    }
}

/// What replies are awaited for.
pub(super) enum InFlight {
    Batch(Batch),
    Question(Question),
    /// A message: nothing depends on the reply to it.
    Message,
}

/// What waits and what is on its way over one connection.
#[derive(Default)]
pub(super) struct Link {
    waiting: VecDeque<Asked>,
    in_flight: VecDeque<InFlight>,
    /// How many batches are on their way whose time is not over.
    batches: usize,
    /// No vote that waits has a smaller token: most releases need not be searched for.
    least_token: Option<FencingToken>,
    /// The shortest time that an answer of the instance took, as far as that is known.
    least_round_trip: Option<Duration>,
    /// How many batches are still to carry one request each, and how many it was last time.
    unbatched_left: usize,
    unbatched_before: usize,
    /// When the first of what was sent since the last answer was sent.
    unheard_since: Option<Instant>,
    /// When the deadlines are to be looked at; `None` if nothing is under way.
    watched_at: Option<Instant>,
    /// Whether anything has waited since the last look.
    has_waited: bool,
    is_closed: bool,
}

impl Link {
    /// Queues a request, unless too many wait or the connection was given up; what ends with that goes to `ended`. Leases that are held
    /// do not count: there are as many extends as leases at most.
    pub(super) fn put(&mut self, asked: Asked, ended: &mut Vec<Ended>) {
        if let Request::Release(claim, wakes) = &asked.request
            && self.withdraw(claim, ended)
            && !claim.resent
            && wakes.is_none()
        {
            ended.push((asked, Reply::Refused(Refusal::default()))); // the instance has never heard of it
            return;
        }
        if self.is_closed {
            ended.push((asked, Reply::NotSent(closed())));
        } else if self.waiting.len() >= MAX_WAITING && !matches!(asked.request, Request::Extend(_)) {
            ended.push((asked, Reply::NotSent(Cause::Overloaded)));
        } else {
            if asked.request.asks_for_a_vote() {
                let token = asked.request.claim().token;
                self.least_token = Some(self.least_token.map_or(token, |least| least.min(token)));
            }
            self.waiting.push_back(asked);
        }
    }

    /// Takes back what waits of a value that is released; whether the acquire is among it.
    fn withdraw(&mut self, claim: &Claim, ended: &mut Vec<Ended>) -> bool {
        if self.least_token.is_none_or(|least| claim.token < least) {
            return false;
        }
        let (mut at, mut has_acquire) = (0, false);
        while let Some(asked) = self.waiting.get(at) {
            let of = asked.request.claim();
            if asked.request.asks_for_a_vote() && of.token <= claim.token && of.value == claim.value {
                has_acquire |= matches!(asked.request, Request::Acquire(_));
                ended.extend(self.waiting.remove(at).map(|asked| (asked, Reply::NotSent(Cause::Withdrawn))));
            } else {
                at += 1;
            }
        }
        has_acquire
    }

    /// Whether what waits may be sent now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        !self.waiting.is_empty() && (self.batches < self.at_once() || self.patience_ends().is_none_or(|end| end <= now))
    }

    /// Whether anything waits.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When one more batch may be on its way; `None` if none is.
    fn patience_ends(&self) -> Option<Instant> {
        let count = u32::try_from(self.batches).unwrap_or(u32::MAX);
        Some(self.live().next()?.at.saturating_add(PATIENCE.saturating_mul(count)))
    }

    /// The batches whose time is not over.
    fn live(&self) -> impl Iterator<Item = &Batch> {
        self.in_flight.iter().filter_map(|sent| match sent {
            InFlight::Batch(batch) if !batch.requests.is_empty() => Some(batch),
            _ => None,
        })
    }

    fn at_once(&self) -> usize {
        let far = self.least_round_trip.filter(|least| *least >= FAR);
        let parts = far.unwrap_or_default().as_micros() / PART_OF_A_ROUND_TRIP.as_micros();
        let least = if self.unbatched_left > 0 { UNBATCHED_AT_ONCE } else { 1 };
        usize::try_from(parts).unwrap_or(usize::MAX).max(least)
    }

    /// Writes the next batch, behind what is to be written before it, and the messages that follow its releases (P26). Gives how many
    /// requests it has.
    pub(super) fn write_batch(&mut self, known: Known, bytes: &mut Vec<u8>) -> usize {
        let most = if self.unbatched_left > 0 { 1 } else { usize::MAX };
        self.unbatched_left = self.unbatched_left.saturating_sub(1);
        let is_plain = |request: &Request| may_be_plain(request, known.attached.as_ref(), known.wall_us);
        let (requests, parts) = take_batch(&mut self.waiting, most, |asked| &asked.request, is_plain);
        if self.waiting.is_empty() {
            self.least_token = None;
        }
        batch::write(bytes, parts, &requests, known.attached.as_ref());
        self.unheard_since.get_or_insert(known.at);
        let count = requests.len();
        let batch = Batch::new(known, parts, requests);
        let mut messages = 0;
        for wake in batch.requests.iter().flat_map(|asked| asked.request.wakes()) {
            batch::write_wake(bytes, wake);
            messages += 1;
        }
        self.in_flight.push_back(InFlight::Batch(batch));
        self.batches += 1;
        self.in_flight.extend((0..messages).map(|_| InFlight::Message));
        count
    }

    /// Whether a question may be asked: its commands are written right behind what was before them.
    pub(super) fn takes_questions(&self) -> bool {
        !self.is_closed && self.in_flight.len() < MOST_IN_FLIGHT / 2
    }

    /// Whether a batch may be written.
    pub(super) fn takes_batches(&self) -> bool {
        !self.is_closed && self.in_flight.len() < MOST_IN_FLIGHT
    }

    /// The commands of a question were written.
    pub(super) fn ask(&mut self, question: Question) {
        self.in_flight.push_back(InFlight::Question(question));
    }

    /// What the next reply may be; `None` if none is awaited.
    pub(super) fn expects(&self) -> Option<Expected> {
        self.in_flight.front().map(|next| match next {
            InFlight::Batch(batch) => batch.expects(),
            InFlight::Question(question) => question.expects.front().copied().unwrap_or(Expected::Anything),
            InFlight::Message => Expected::Number,
        })
    }

    /// Takes in the next reply; gives what it was the last one to.
    ///
    /// # Errors
    /// It is not that to its command, or longer than any.
    pub(super) fn take(&mut self, reply: &[u8], now: Instant) -> Result<Option<InFlight>, Broken> {
        let expected = self.expects().ok_or(Broken::Unasked)?;
        if !expected.fits(reply) {
            return Err(Broken::Shifted(beginning(reply)));
        }
        let is_last = match self.in_flight.front_mut() {
            Some(InFlight::Batch(batch)) => batch.read(reply),
            Some(InFlight::Question(question)) => {
                question.bytes += reply.len();
                if question.bytes > LONGEST {
                    return Err(Broken::TooLong);
                }
                let reply = value(reply).map_err(|_| Broken::NoResp(beginning(reply)))?;
                question.replies.push(reply);
                question.expects.pop_front();
                question.expects.is_empty()
            }
            Some(InFlight::Message) | None => true,
        };
        if !is_last {
            return Ok(None);
        }
        Ok(match self.in_flight.pop_front() {
            Some(InFlight::Batch(batch)) if !batch.requests.is_empty() => {
                self.note_answered(&batch, now);
                Some(InFlight::Batch(batch))
            }
            Some(question @ InFlight::Question(_)) => Some(question),
            _ => None,
        })
    }

    fn note_answered(&mut self, batch: &Batch, now: Instant) {
        self.batches -= 1;
        self.unheard_since = None;
        self.note_round_trip(now.saturating_since(batch.at));
        if batch.requests.len() < 2 {
            return;
        }
        // A write failed, perhaps by the fault of one of its requests (a key that the user may not touch, say): for a while every
        // request has a batch of its own, so that it does not fail others.
        let count = self.unbatched_before.saturating_mul(2).clamp(UNBATCHED_LEAST, UNBATCHED_MOST);
        self.unbatched_before = if batch.has_failed { count } else { 0 };
        self.unbatched_left = if batch.has_failed { count } else { self.unbatched_left };
    }

    /// When the deadlines are to be looked at next; `None` if nothing is under way.
    pub(super) const fn watched_at(&self) -> Option<Instant> {
        self.watched_at
    }

    /// Whether that is sooner than planned.
    pub(super) fn needs_watch(&mut self, now: Instant, deadline: Duration) -> bool {
        let waits = !self.waiting.is_empty();
        self.has_waited |= waits;
        if !waits && self.batches == 0 {
            return false;
        }
        let at = self.patience_ends().filter(|_| waits).unwrap_or(now.saturating_add(deadline));
        let is_sooner = self.watched_at.is_none_or(|planned| at < planned);
        if is_sooner {
            self.watched_at = Some(at);
        }
        is_sooner
    }

    /// Takes the requests that were made `deadline` ago or before, and those of batches that were sent then. What waits is not sent
    /// any more then; a batch continues for those of its requests that are younger. Gives also when the first of the batches was sent that
    /// were not answered.
    pub(super) fn take_late(&mut self, now: Instant, deadline: Duration) -> (Vec<Asked>, Option<Instant>) {
        let is_late = |since: Instant| age(since, now) >= deadline;
        let (mut late, mut first_batch) = (Vec::new(), None);
        let mut oldest: Option<Duration> = None;
        for sent in &mut self.in_flight {
            let InFlight::Batch(batch) = sent else { continue };
            if batch.requests.is_empty() {
                continue;
            }
            if is_late(batch.at) {
                first_batch.get_or_insert(batch.at);
                late.append(&mut batch.requests);
                self.batches -= 1;
                continue;
            }
            oldest = oldest.max(Some(age(batch.at, now)));
            for asked in batch.requests.iter_mut().filter(|asked| asked.reply_to.is_some()) {
                if is_late(asked.since) {
                    let (request, reply_to) = (asked.request.clone(), asked.reply_to.take());
                    late.push(Asked { request, reply_to, since: asked.since });
                } else {
                    oldest = oldest.max(Some(age(asked.since, now)));
                }
            }
        }
        while self.waiting.front().is_some_and(|asked| is_late(asked.since)) {
            late.extend(self.waiting.pop_front());
        }
        oldest = oldest.max(self.waiting.front().map(|asked| age(asked.since, now)));
        let next = oldest.map(|age| now.saturating_add(deadline.saturating_sub(age)));
        let sooner = if self.waiting.is_empty() {
            // Something may wait again at once: that is not to wake the watching task each time.
            take(&mut self.has_waited).then(|| now.saturating_add(PATIENCE))
        } else {
            self.patience_ends()
        };
        self.watched_at = next.map(|next| sooner.map_or(next, |sooner| sooner.min(next)));
        (late, first_batch)
    }

    /// What was sent then was not answered within `deadline`; whether the instance is silent now.
    pub(super) fn note_unanswered(&mut self, sent: Instant, now: Instant, deadline: Duration) -> bool {
        let since = *self.unheard_since.get_or_insert(sent);
        age(since, now) >= deadline.saturating_mul(SILENT_AFTER)
    }

    /// The instance has answered a probe after so long.
    pub(super) fn note_answer(&mut self, round_trip: Duration) {
        self.unheard_since = None;
        self.note_round_trip(round_trip);
    }

    fn note_round_trip(&mut self, round_trip: Duration) {
        self.least_round_trip = Some(self.least_round_trip.map_or(round_trip, |least| least.min(round_trip)));
    }

    /// How many requests wait, or are on their way.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn outstanding(&self) -> usize {
        self.waiting.len() + self.live().map(|batch| batch.requests.len()).sum::<usize>()
    }

    /// The connection has ended: nothing is sent any more, and the results of what is on its way are not known. Only the first whose
    /// answer is awaited learns `why`.
    pub(super) fn close(&mut self, why: Option<RedisError>) -> (Vec<Ended>, Vec<(Question, RedisError)>) {
        self.is_closed = true;
        self.batches = 0;
        let (mut ended, mut questions, mut why) = (Vec::new(), Vec::new(), why);
        for sent in self.in_flight.drain(..) {
            match sent {
                InFlight::Question(question) => questions.push((question, why.take().unwrap_or_else(broken_pipe))),
                InFlight::Batch(batch) => {
                    let cause = why.take().map(|why| super::classify::clip(&why.to_string()));
                    let cause = Cause::Disconnected(cause.unwrap_or_else(|| CLOSED.to_owned()));
                    let unknown = |asked| (asked, Reply::Unknown(cause.clone())); // P5
                    ended.extend(batch.requests.into_iter().map(unknown));
                }
                InFlight::Message => {}
            }
        }
        ended.extend(self.waiting.drain(..).map(|asked| (asked, Reply::NotSent(closed()))));
        (ended, questions)
    }
}

/// How much time has passed since then. A clock that was set back does not show it: as much counts as it was set back by, so that
/// nothing waits until it shows that time again.
fn age(since: Instant, now: Instant) -> Duration {
    now.saturating_since(since).max(since.saturating_since(now))
}

const CLOSED: &str = "the connection was closed";

/// The cause where a connection is gone.
pub(super) fn closed() -> Cause {
    Cause::NotConnected(CLOSED.to_owned())
}

/// The error where it is.
pub(super) fn broken_pipe() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}
