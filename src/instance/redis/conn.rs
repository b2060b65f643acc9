//! One connection: the only place that writes to a socket and reads from it, for the process that opened it and for no child of it.
//!
//! Commands are written by their caller, as far as the stream takes them, under the mutex that also orders them: the first here is the
//! first on the server (P6). One task reads. It hands out the replies, writes what the stream did not take at once and what waited for
//! replies, and looks at the deadlines.
//!
//! When it has answered several callers, it goes to the back of the run queue while they say what they want next, and then the
//! connections to all instances are written: so the requests of many callers share batches, and one reading of a clock.

mod gathering;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::{forget, replace};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redis::{Arg, Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Value, from_redis_value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep};

use super::link::{Asked, Batch, Ended, InFlight, Known, Link, Question, broken_pipe};
use super::resp::{Broken, Expected, Item, Items, Replies};
use super::stream::ByteStream;
use crate::clock::Clock;
use crate::process::Process;
use crate::protocol::{Cause, Instant, Reply};

/// So much is read at once.
const CHUNK: usize = 16 * 1024;

/// While so much waits to be written, nothing more is.
const MOST_UNSENT: usize = 32 * 1024 * 1024;

/// The shortest wait for a deadline: timers count milliseconds.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The most that is pushed in a second: the announcements of thousands of waiters take a tenth of it.
const MOST_PUSHED: usize = 8 * 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Takes in what the server says unasked. It is called between two replies, and does not wait.
pub(super) type OnPush = Box<dyn Fn(&[u8]) + Send>;

/// What a connection needs of its client.
#[derive(Clone)]
pub(super) struct ConnOptions {
    pub(super) clock: Arc<dyn Clock>,
    /// The process that built the client.
    pub(super) process: Process,
    /// How long a request may take.
    pub(super) deadline: Duration,
    pub(super) gathering: Arc<Gathering>,
}

/// Whose requests go over a connection.
pub(super) trait Owner: Send + Sync {
    /// What is known of the instance as something is sent to it.
    fn known(&self, at: Instant) -> Known;
    /// So many requests were written together.
    fn sent(&self, requests: usize);
    /// All answers to a batch have come. No mutex is held.
    fn answered(self: Arc<Self>, batch: Batch, received: Instant);
    /// A request has ended without an answer of the instance. No mutex is held.
    fn ended(&self, asked: Asked, reply: Reply);
}

/// Of the connections of a client.
pub(crate) type Gathering = gathering::Gathering<Shared>;

/// Sends over one connection. Cheap to clone; clones are the same connection.
#[derive(Clone)]
pub(super) struct Conn(Arc<Shared>);

pub(crate) struct Shared {
    /// Locked by [`Shared::state`], and where the process was looked at just before.
    state: Mutex<State>,
    options: ConnOptions,
    owner: OnceLock<Weak<dyn Owner>>,
    /// Set if the connection has ended for what the server said.
    broken_by: OnceLock<Broken>,
    /// Notified when the connection has ended, or is to be given up.
    over: Notify,
    /// Whether it has not answered for so long that it is only probed.
    is_silent: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Link,
    /// `None` once the connection has ended.
    stream: Option<Box<dyn ByteStream>>,
    /// Of which so much is written.
    unsent: Vec<u8>,
    written: usize,
    /// Written, and perhaps still in a buffer of the stream.
    is_unflushed: bool,
    /// Why nothing can be written any more.
    failed: Option<io::Error>,
    /// Nothing is read before the first command: what a server sends at connect is the answer to that.
    has_asked: bool,
    task: Option<Waker>,
}

/// The answer to commands that are sent. Dropping it leaves them sent.
pub(super) struct Answer(oneshot::Receiver<RedisResult<Value>>);

impl Future for Answer {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // No answer comes any more once the task has ended.
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(broken_pipe())))
    }
}

impl Answer {
    /// The replies to several commands, errors of the server among them.
    pub(super) async fn replies(self) -> RedisResult<Vec<Value>> {
        self.await.map(list)
    }

    /// The answer; an error if the server has said one.
    pub(super) async fn without_error(self) -> RedisResult<Value> {
        self.await?.extract_error()
    }

    /// The answer as what it is read for; an error if the server has said one, or something else.
    pub(super) async fn read<T: FromRedisValue>(self) -> RedisResult<T> {
        Ok(from_redis_value(self.without_error().await?)?)
    }

    /// The replies to several commands; an error if one of them is.
    pub(super) async fn replies_without_error(self) -> RedisResult<Vec<Value>> {
        self.without_error().await.map(list)
    }

    /// Whether the server has carried out the command.
    pub(super) async fn succeeded(self) -> bool {
        self.without_error().await.is_ok()
    }
}

/// Of an answer the replies.
fn list(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(replies) => replies,
        other => vec![other],
    }
}

impl Conn {
    /// Begins to read from a stream. Must be called within a runtime.
    pub(super) fn begin(stream: Box<dyn ByteStream>, on_push: OnPush, options: ConnOptions) -> (Self, ConnTask) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { stream: Some(stream), ..State::default() }),
            options,
            owner: OnceLock::new(),
            broken_by: OnceLock::new(),
            over: Notify::new(),
            is_silent: AtomicBool::new(false),
        });
        let (deadline, pushed) = (Box::pin(sleep(Duration::ZERO)), Pushed::default());
        let reader = Reader {
            shared: Arc::clone(&shared),
            replies: Replies::default(),
            on_push,
            pushed,
            deadline,
            armed: None,
            end: None,
        };
        let task = tokio::spawn(reader.run());
        (Self(shared), ConnTask(task.abort_handle()))
    }

    /// From now on the requests are those of `owner`.
    pub(super) fn serve(&self, owner: Weak<dyn Owner>) {
        let _ = self.0.owner.set(owner); // once
        self.0.options.gathering.add(&self.0);
    }

    /// Sends a command: it is on its way, or behind those that are, when this returns. Needs no runtime.
    pub(super) fn ask(&self, command: &Cmd) -> Answer {
        self.0.ask([command].into_iter(), false)
    }

    /// Sends several commands in one write.
    pub(super) fn ask_all(&self, commands: &Pipeline) -> Answer {
        self.0.ask(commands.cmd_iter(), true)
    }

    /// Queues requests that were made at this time: on their way when this returns, or behind what is. Gives those that have ended. The caller
    /// is in the process that built the client: it looks once for all instances.
    pub(super) fn put(&self, requests: impl Iterator<Item = Asked>, made_at: Instant) -> Vec<Ended> {
        if self.is_silent() {
            return requests.map(|asked| (asked, Reply::NotSent(Cause::Silent))).collect();
        }
        let mut ended = Vec::new();
        let queue = |state: &mut State| requests.for_each(|asked| state.link.put(asked, &mut ended));
        // Not as of `made_at`: the caller may have been paused since, and others' newer requests go with its own.
        let write = |state: &mut State| self.0.send_waiting(state);
        let mut state = self.0.options.gathering.put(&self.0.state, queue, write);
        if state.link.needs_watch(made_at, self.0.options.deadline) {
            state.wake_task();
        }
        ended
    }

    /// Resolves when the connection has ended, or is to be given up.
    pub(super) async fn over(&self) {
        self.0.over.notified().await;
    }

    /// Nothing is sent any more, and the next connection continues.
    pub(super) fn give_up(&self) {
        self.0.over.notify_one();
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        if let Some(mut state) = self.0.state() {
            let closed = state.link.close(None);
            drop(state);
            self.0.end(closed);
        }
    }

    /// What the server has said, if the connection has ended for that.
    pub(super) fn broken_by(&self) -> Option<&Broken> {
        self.0.broken_by.get()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.0.is_silent.load(Ordering::Relaxed)
    }

    /// The instance has answered a probe after so long.
    pub(super) fn note_answer(&self, round_trip: Duration) {
        self.0.is_silent.store(false, Ordering::Relaxed);
        if let Some(mut state) = self.0.state() {
            state.link.note_answer(round_trip);
        }
    }

    /// What was sent then was not answered in time.
    pub(super) fn note_silence(&self, sent: Instant) {
        if let Some(mut state) = self.0.state() {
            self.0.note_silence(&mut state, sent);
        }
    }

    /// How many requests wait to be sent, or for their replies.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.0.state().map_or(0, |state| state.link.outstanding())
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conn")
    }
}

impl Shared {
    fn ask<'a>(&self, commands: impl Iterator<Item = &'a Cmd>, is_list: bool) -> Answer {
        let (to, answer) = oneshot::channel();
        let Some(mut state) = self.state().filter(|state| state.takes_more() && state.link.takes_questions()) else {
            return Answer(answer);
        };
        let is_free = state.unsent.is_empty();
        let expects = commands.map(|command| {
            command.write_packed_command(&mut state.unsent);
            match command.args_iter().next() {
                Some(Arg::Simple(name)) => Expected::of(name),
                _ => Expected::Anything,
            }
        });
        let question = Question::new(expects.collect(), is_list, to);
        if question.is_empty() {
            question.answer();
        } else {
            state.link.ask(question);
            state.write_from(is_free);
        }
        Answer(answer)
    }

    /// Writes what waits, as far as it may be sent; nothing to an instance that is silent.
    fn send_batches(&self, state: &mut State, now: Instant) {
        if !state.link.may_send(now) || self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let Some(owner) = self.owner() else { return };
        let is_free = state.unsent.is_empty();
        while state.link.may_send(now) && state.link.takes_batches() && state.takes_more() {
            owner.sent(state.link.write_batch(owner.known(now), &mut state.unsent));
        }
        state.write_from(is_free);
    }

    /// The same as of now, if something waits.
    fn send_waiting(&self, state: &mut State) {
        if state.link.waits() {
            self.send_batches(state, self.options.clock.now());
        }
    }

    /// Writes what callers wanted of connections while it was gathered.
    fn send_gathered(connections: &[Arc<Self>]) {
        // All are of the same process.
        if connections.first().is_some_and(|first| !first.options.process.is_forked()) {
            connections.iter().for_each(|connection| connection.send_waiting(&mut connection.lock()));
        }
    }

    fn note_silence(&self, state: &mut State, sent: Instant) {
        if state.link.note_unanswered(sent, self.options.clock.now(), self.options.deadline) {
            self.is_silent.store(true, Ordering::Relaxed);
            self.over.notify_one();
        }
    }

    /// Ends the requests that have no answer in time, and sends what they kept waiting.
    fn end_late(&self) {
        let now = self.options.clock.now();
        let Some(mut state) = self.state() else { return };
        let (requests, first_batch) = state.link.take_late(now, self.options.deadline);
        first_batch.into_iter().for_each(|sent| self.note_silence(&mut state, sent));
        self.send_batches(&mut state, now);
        drop(state);
        let late = requests.into_iter().map(|asked| (asked, Reply::Unknown(Cause::TimedOut))); // P5
        self.end((late.collect(), Vec::new()));
    }

    /// Delivers what has ended. No mutex is held.
    fn end(&self, (requests, questions): (Vec<Ended>, Vec<(Question, RedisError)>)) {
        if let Some(owner) = self.owner() {
            requests.into_iter().for_each(|(asked, reply)| owner.ended(asked, reply));
        }
        questions.into_iter().for_each(|(question, why)| question.fail(why));
    }

    fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.get()?.upgrade()
    }

    /// The state; `None` in a child of the process, which has a copy of it, and the very stream.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        (!self.options.process.is_forked()).then(|| self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    /// A child leaves the stream open: the runtime's registry is the parent's, too, which would hear of the stream no more.
    fn drop(&mut self) {
        if self.options.process.is_forked() {
            forget(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).stream.take());
        }
    }
}

impl State {
    fn takes_more(&self) -> bool {
        self.stream.is_some() && self.failed.is_none() && self.unsent.len() - self.written <= MOST_UNSENT
    }

    /// Writes what was just added, unless the task writes what is before it.
    fn write_from(&mut self, is_free: bool) {
        let is_first = !replace(&mut self.has_asked, true);
        let is_left = is_free && self.write(&mut Context::from_waker(Waker::noop())).is_pending();
        if is_first || is_left || self.failed.is_some() {
            self.wake_task();
        }
    }

    fn wake_task(&mut self) {
        self.task.take().into_iter().for_each(Waker::wake);
    }

    /// Writes what is unsent, as far as the stream takes it. A stream that has failed is not written to again: it may have
    /// taken some of the bytes, and the server would carry them out twice.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_some() {
            return Poll::Ready(());
        }
        let written = self.try_write(cx);
        // A stream that always leaves a rest would keep all that it has ever taken.
        if self.written > self.unsent.len() / 2 {
            self.unsent.drain(..self.written);
            self.written = 0;
        }
        if let Err(error) = ready!(written) {
            (self.unsent, self.written) = (Vec::new(), 0);
            self.failed = Some(error);
        }
        Poll::Ready(())
    }

    fn try_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while let Some(left) = self.unsent.get(self.written..).filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut *stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
            self.is_unflushed = true;
        }
        self.written = 0;
        self.unsent.clear();
        self.unsent.shrink_to(CHUNK * 16);
        if self.is_unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// The task of a connection. Dropping this ends both.
pub(super) struct ConnTask(AbortHandle);

impl Drop for ConnTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the task has.
struct Reader {
    shared: Arc<Shared>,
    replies: Replies,
    on_push: OnPush,
    pushed: Pushed,
    /// For the time at which the deadlines are looked at.
    deadline: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    /// Why the connection has ended.
    end: Option<RedisError>,
}

impl Reader {
    async fn run(mut self) {
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        loop {
            let end = match poll_fn(|cx| self.poll(cx, &mut chunk)).await {
                Ok(None) => {
                    self.shared.end_late();
                    continue;
                }
                Ok(Some(0)) => broken_pipe(),
                Ok(Some(count)) => match self.take_in(chunk.get(..count).unwrap_or_default()) {
                    Ok(gathers) => {
                        if gathers {
                            self.shared.options.gathering.gather(Shared::send_gathered).await;
                        }
                        continue;
                    }
                    Err(broken) => self.shared.broken_by.get_or_init(|| broken).clone().into(),
                },
                Err(error) => error.into(),
            };
            self.end = Some(end);
            return;
        }
    }

    /// Writes what is left, and reads what has come: how much, or `None` where it is time to look at the deadlines.
    fn poll(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<io::Result<Option<usize>>> {
        let shared = Arc::clone(&self.shared);
        let Some(mut state) = shared.state() else {
            return Poll::Ready(Err(io::Error::other(Cause::Forked.to_string())));
        };
        if state.has_asked {
            if !shared.options.gathering.is_on() {
                shared.send_waiting(&mut state);
            }
            let _ = state.write(cx); // if that is pending it wakes this task
            let Some(stream) = &mut state.stream else { return Poll::Ready(Ok(Some(0))) };
            let mut buffer = ReadBuf::new(chunk);
            if let Poll::Ready(read) = Pin::new(stream).poll_read(cx, &mut buffer) {
                return Poll::Ready(read.map(|()| Some(buffer.filled().len())));
            }
            // What was sent before the connection broke may still be answered: that is read first.
            if let Some(error) = state.failed.take() {
                let stream = state.stream.take(); // no other caller writes to it
                drop(state);
                drop(stream);
                return Poll::Ready(Err(error));
            }
        }
        if !state.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
        let watched_at = state.link.watched_at();
        drop(state);
        if replace(&mut self.armed, watched_at) != watched_at
            && let Some(at) = watched_at
        {
            let wait = at.saturating_since(shared.options.clock.now()).max(LEAST_WAIT);
            self.deadline.set(sleep(wait));
        }
        if self.armed.is_some() && self.deadline.as_mut().poll(cx).is_ready() {
            self.armed = None;
            return Poll::Ready(Ok(None));
        }
        Poll::Pending
    }

    /// Takes in what has come; whether several callers were answered, or more requests wait.
    fn take_in(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        let now = self.shared.options.clock.now();
        let mut answered = Vec::new();
        let (read, waits, is_late) = {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock(); // the process was looked at before these bytes were read
            let read = self.read(&mut state.link, bytes, now, &mut answered);
            (read, state.link.waits(), state.link.watched_at().is_some_and(|at| at <= now))
        };
        let owner = self.shared.owner();
        let mut requests = 0;
        for answered in answered {
            match answered {
                InFlight::Question(question) => question.answer(),
                InFlight::Batch(batch) => {
                    requests += batch.requests.len();
                    if let Some(owner) = owner.clone() {
                        owner.answered(batch, now);
                    }
                }
                InFlight::Message => {}
            }
        }
        if is_late {
            self.shared.end_late(); // an instance that says much leaves no timer its turn
        }
        read.map(|()| requests > 1 || (requests > 0 && waits))
    }

    fn read(
        &mut self,
        link: &mut Link,
        mut bytes: &[u8],
        now: Instant,
        answered: &mut Vec<InFlight>,
    ) -> Result<(), Broken> {
        loop {
            let expected = link.expects();
            let Some(reply) = self.replies.next(&mut bytes, expected)? else { return Ok(()) };
            if reply.first() != Some(&b'>') || (expected == Some(Expected::Subscription) && is_subscription(reply)) {
                answered.extend(link.take(reply, now)?);
            } else {
                self.pushed.note(reply.len(), now)?;
                (self.on_push)(reply);
            }
        }
    }
}

/// The answer to a subscription is a push.
fn is_subscription(push: &[u8]) -> bool {
    let mut items = Items::of(push);
    items.next();
    items.next().and_then(Item::text) == Some(b"subscribe")
}

impl Drop for Reader {
    /// However the task ends, by a panic or with the runtime, too: the stream is closed, and nothing is awaited any more.
    fn drop(&mut self) {
        let Some(mut state) = self.shared.state() else { return };
        let stream = state.stream.take();
        let closed = state.link.close(self.end.take());
        (state.unsent, state.written) = (Vec::new(), 0);
        drop(state);
        drop(stream);
        self.shared.end(closed);
        self.shared.over.notify_one();
    }
}

/// What was pushed lately.
#[derive(Debug, Default)]
struct Pushed {
    since: Instant,
    bytes: usize,
}

impl Pushed {
    fn note(&mut self, size: usize, now: Instant) -> Result<(), Broken> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes <= MOST_PUSHED {
            return Ok(());
        }
        if now.saturating_since(self.since) < SECOND {
            return Err(Broken::Pushed(MOST_PUSHED));
        }
        *self = Self { since: now, bytes: size };
        Ok(())
    }
}
