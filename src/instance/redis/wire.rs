//! The commands and answers of one connection.
//!
//! A command is encoded behind those that wait to be written, and written at once, by its caller, as far as the stream
//! takes it. One task reads: it finds the end of each reply, decodes it, and gives it to the command at the front of the
//! queue, for a server answers in order. The same task writes what the stream did not take at once, and sends what waited for
//! answers.
//!
//! ```text
//! ask ---> unsent ---> stream ===> server
//!    `---> asked ---> awaited (of the task) <--- replies <=== stream
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::{forget, replace, take};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use redis::{
    Cmd, FromRedisValue, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value, from_redis_value,
    parse_redis_value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, yield_now};

use super::classify::{beginning, clip};
use super::decode::{decode, decode_short};
use super::encode::{Bounds, Encoder, encode, encode_all};
use super::reply_limit::{Followed, ReplyBound, ReplyLimit, TooMuch};
use crate::clock::Clock;
use crate::process::Process;
use crate::protocol::Cause;

/// So much is read at once.
const CHUNK: usize = 16 * 1024;

/// While so much waits to be written, or so many for answers, nothing more is sent.
const MOST_UNSENT: usize = 32 * 1024 * 1024;
const MOST_ASKED: usize = 16 * 1024;

/// What replies and pushes begin with.
const FIRST_OF_A_REPLY: &[u8] = b"+-:$*_,#!=(%~>|";

/// A stream of bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Takes in what the server says unasked. It is called between two replies, and does not wait.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send>;

/// Takes in the answers to writes, in the task of the connection.
pub(super) trait TakesAnswers: Send + Sync {
    /// The answer to the write with this number.
    fn answered(self: Arc<Self>, number: u64, answer: RedisResult<Value>);

    /// Whether the callers that were just answered are about to send more.
    fn gathers(&self) -> bool;

    /// They have sent their next commands: sends what waits.
    fn send_gathered(&self);
}

/// Sends commands over one connection. Cheap to clone; clones are the same connection.
#[derive(Clone)]
pub(super) struct Wire(Arc<Shared>);

struct Shared {
    /// The mutex also orders commands: the first here is the first on the server (P6). Only [`Shared::state`] locks it.
    state: Mutex<State>,
    /// The process that built the client. No other one writes to the stream or reads from it.
    process: Process,
    /// Set if the server has sent more than answers to its commands.
    too_much: Arc<OnceLock<TooMuch>>,
    /// Notified when the connection has ended, or is to be given up.
    broken: Notify,
    /// What takes in the answers to writes.
    writes: OnceLock<Weak<dyn TakesAnswers>>,
}

#[derive(Default)]
struct State {
    /// `None` once the connection has ended.
    stream: Option<Box<dyn ByteStream>>,
    /// Encoded, of which so much is written.
    unsent: Vec<u8>,
    written: usize,
    /// Written, and perhaps still in a buffer of the stream.
    is_unflushed: bool,
    /// Why nothing can be written any more.
    failed: Option<io::Error>,
    /// What the task has not taken over yet, and how many it has.
    asked: Vec<Asked>,
    awaited: usize,
    /// Nothing is read before the first command: what a server sends at connect is the answer to that.
    has_asked: bool,
    task: Option<Waker>,
}

/// Commands that were sent together and are answered together.
struct Asked {
    /// What each reply may be.
    expected: Expected,
    /// How many of several there will be, and those that have come.
    count: usize,
    replies: Vec<Value>,
    answer: AnswerTo,
}

/// Where an answer goes.
enum AnswerTo {
    /// To the caller that waits for it.
    Caller(oneshot::Sender<RedisResult<Value>>),
    /// To what takes in those to writes.
    Write(u64),
    NoCaller,
}

enum Expected {
    /// One, which is the answer.
    One(ReplyBound),
    /// Several; the answer is the list of them.
    Several(Bounds),
}

/// The answer to commands that are sent. Dropping it leaves them sent.
pub(super) struct Answer(oneshot::Receiver<RedisResult<Value>>);

impl Future for Answer {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // No answer comes any more once the task has ended.
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(closed())))
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

impl Wire {
    /// Begins to read from a stream. Must be called within a runtime.
    pub(super) fn begin(
        stream: Box<dyn ByteStream>,
        on_push: OnPush,
        clock: Arc<dyn Clock>,
        process: Process,
    ) -> (Self, WireTask) {
        let state = Mutex::new(State { stream: Some(stream), ..State::default() });
        let (too_much, broken, writes) = (Arc::default(), Notify::new(), OnceLock::new());
        let shared = Arc::new(Shared { state, process, too_much, broken, writes });
        let reader = Reader {
            shared: Arc::clone(&shared),
            limit: ReplyLimit::default(),
            begun: Vec::new(),
            awaited: VecDeque::new(),
            on_push,
            clock,
        };
        let task = tokio::spawn(reader.read());
        (Self(shared), WireTask(task.abort_handle()))
    }

    /// Sends a command: it is on its way, or behind those that are, when this returns. Needs no runtime.
    pub(super) fn ask(&self, command: &Cmd) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.0.send(|unsent| Expected::One(encode(command, unsent)), &[], AnswerTo::Caller(answer));
        Answer(receiver)
    }

    /// Sends several commands in one write.
    pub(super) fn ask_all(&self, commands: &Pipeline) -> Answer {
        let (answer, receiver) = oneshot::channel();
        if commands.is_empty() {
            let _ = answer.send(Ok(Value::Array(Vec::new())));
        } else {
            let asks = |unsent: &mut Vec<u8>| Expected::Several(encode_all(commands, unsent));
            self.0.send(asks, &[], AnswerTo::Caller(answer));
        }
        Answer(receiver)
    }

    /// From now on `writes` takes in the answers to writes.
    pub(super) fn leave_writes_to(&self, writes: Weak<dyn TakesAnswers>) {
        let _ = self.0.writes.set(writes); // once
    }

    /// Sends a write of several commands, and others behind it whose replies are not awaited; whether it is on its way.
    pub(super) fn write(&self, number: u64, encode: impl FnOnce(&mut Encoder<'_>), behind: &[Cmd]) -> bool {
        let asks = |unsent: &mut Vec<u8>| {
            let mut commands = Encoder::new(unsent);
            encode(&mut commands);
            Expected::Several(commands.end())
        };
        self.0.send(asks, behind, AnswerTo::Write(number))
    }

    /// Notified when the connection has ended, or is to be given up.
    pub(super) fn broken(&self) -> &Notify {
        &self.0.broken
    }

    /// Set to what the server has said too much, if the connection has ended for that.
    pub(super) fn too_much(&self) -> &Arc<OnceLock<TooMuch>> {
        &self.0.too_much
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

impl Shared {
    /// Whether it is on its way; else its answer is an error, or none.
    fn send(&self, asks: impl FnOnce(&mut Vec<u8>) -> Expected, behind: &[Cmd], answer: AnswerTo) -> bool {
        let Some(mut state) = self.state().filter(|state| state.takes_more(&answer)) else { return false };
        let is_free = state.unsent.is_empty();
        let expected = asks(&mut state.unsent);
        state.asked.push(Asked::new(expected, answer));
        for command in behind {
            let expected = Expected::One(encode(command, &mut state.unsent));
            state.asked.push(Asked::new(expected, AnswerTo::NoCaller));
        }
        // What is unsent already is written by the task.
        let is_first = !replace(&mut state.has_asked, true);
        let is_left = is_free && state.write(&mut Context::from_waker(Waker::noop())).is_pending();
        if is_first || is_left || state.failed.is_some() {
            state.task.take().into_iter().for_each(Waker::wake);
        }
        true
    }

    /// Delivers an answer. No mutex is held.
    fn answer(&self, to: AnswerTo, answer: RedisResult<Value>) {
        match to {
            AnswerTo::Caller(caller) => drop(caller.send(answer)), // an error: no caller waits any more
            AnswerTo::Write(number) => {
                if let Some(writes) = self.writes() {
                    writes.answered(number, answer);
                }
            }
            AnswerTo::NoCaller => {}
        }
    }

    /// Sends what waits, behind the callers that were just answered: their next commands go with it.
    async fn send_gathered(&self) {
        if self.writes().is_some_and(|writes| writes.gathers()) {
            yield_now().await;
            self.writes().into_iter().for_each(|writes| writes.send_gathered());
        }
    }

    fn writes(&self) -> Option<Arc<dyn TakesAnswers>> {
        self.writes.get()?.upgrade()
    }

    /// The state; `None` in a child of the process, which has a copy of it, and the very stream.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let is_ours = !self.process.is_forked();
        is_ours.then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Shared {
    /// A child leaves the stream open: the runtime's registry is the parent's, too, which would hear of the stream no more.
    fn drop(&mut self) {
        if self.process.is_forked() {
            forget(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).stream.take());
        }
    }
}

impl State {
    /// Thousands of questions that are asked at once leave room for the writes of locks.
    fn takes_more(&self, answer: &AnswerTo) -> bool {
        let most = if matches!(answer, AnswerTo::Caller(_)) { MOST_ASKED / 2 } else { MOST_ASKED };
        self.stream.is_some()
            && self.failed.is_none()
            && self.unsent.len() - self.written <= MOST_UNSENT
            && self.asked.len() + self.awaited < most
    }

    /// Writes what is unsent, as far as the stream takes it. A stream that has failed is not written to again: it may have
    /// taken some of the bytes, and the server would carry them out twice.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_none()
            && let Err(error) = ready!(self.try_write(cx))
        {
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
pub(super) struct WireTask(AbortHandle);

impl Drop for WireTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the task has.
struct Reader {
    shared: Arc<Shared>,
    limit: ReplyLimit,
    /// The beginning of a reply of which the end has not come.
    begun: Vec<u8>,
    awaited: VecDeque<Asked>,
    on_push: OnPush,
    clock: Arc<dyn Clock>,
}

impl Reader {
    async fn read(mut self) {
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        loop {
            let end = match poll_fn(|cx| self.poll(cx, &mut chunk)).await {
                Ok(0) => closed(),
                Ok(count) => match self.take_in(chunk.get(..count).unwrap_or_default()) {
                    Ok(()) => {
                        self.shared.send_gathered().await;
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) => error.into(),
            };
            // The next caller learns why; the others only that it has ended.
            if let Some(next) = self.awaited.pop_front() {
                self.shared.answer(next.answer, Err(end));
            }
            return;
        }
    }

    /// Writes what is left, and reads what has come.
    fn poll(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(mut state) = self.shared.state() else {
            return Poll::Ready(Err(io::Error::other(Cause::Forked.to_string())));
        };
        if !state.has_asked {
            state.task = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let _ = state.write(cx); // if that is pending it wakes this task
        let Some(stream) = &mut state.stream else { return Poll::Ready(Ok(0)) };
        let mut buffer = ReadBuf::new(chunk);
        let read = Pin::new(stream).poll_read(cx, &mut buffer);
        self.awaited.extend(state.asked.drain(..));
        state.awaited = self.awaited.len();
        match read {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(buffer.filled().len())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What was sent before the connection broke may still be answered: that is read first.
            Poll::Pending => {
                if let Some(error) = state.failed.take() {
                    return Poll::Ready(Err(error));
                }
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn take_in(&mut self, mut bytes: &[u8]) -> RedisResult<()> {
        while let Some(first) = bytes.first() {
            if self.limit.is_between() && !FIRST_OF_A_REPLY.contains(first) {
                parse_redis_value(bytes)?; // a stranger, which may send no more: this is an error at once
            }
            let next = self.awaited.front().and_then(Asked::next);
            if next.is_some()
                && self.limit.is_between()
                && let Some((value, count)) = decode_short(bytes)
            {
                bytes = bytes.get(count..).unwrap_or_default();
                self.deliver(value, next)?;
                continue;
            }
            let followed = self.limit.follow(bytes, next, || self.clock.now());
            let Followed { bytes: count, is_whole, is_passed_over } =
                followed.map_err(|too_much| io::Error::other(*self.shared.too_much.get_or_init(|| too_much)))?;
            let (part, behind) = bytes.split_at(count.min(bytes.len()));
            bytes = behind;
            if is_passed_over {
                self.begun = Vec::new();
                if is_whole {
                    self.deliver(Value::BulkString(Vec::new()), next)?;
                }
            } else if !is_whole {
                self.begun.extend_from_slice(part);
            } else if self.begun.is_empty() {
                self.deliver(decode(part)?, next)?;
            } else {
                let mut whole = take(&mut self.begun);
                whole.extend_from_slice(part);
                self.deliver(decode(&whole)?, next)?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// It cannot be the reply to the command for which it came.
    fn deliver(&mut self, value: Value, next: Option<ReplyBound>) -> RedisResult<()> {
        // The answer to a subscription is a push.
        let is_subscribed = matches!(value, Value::Push { kind: PushKind::Subscribe, .. });
        let is_answer = is_subscribed && next.is_some_and(|asked| asked.command == "SUBSCRIBE");
        let value = match value {
            Value::Push { kind, data } if !is_answer => {
                (self.on_push)(PushInfo { kind, data });
                return Ok(());
            }
            value => value,
        };
        let Some(asked) = self.awaited.front_mut() else { return Ok(()) };
        if let Some(asked) = next.filter(|asked| !asked.fits(&value)) {
            let words = format!("its reply to {} is that to another command: {}", asked.command, beginning(&value));
            return Err(io::Error::other(clip(&words)).into());
        }
        let answer = match &asked.expected {
            Expected::One(_) => value,
            Expected::Several(_) => {
                asked.replies.push(value);
                if asked.replies.len() < asked.count {
                    return Ok(());
                }
                Value::Array(take(&mut asked.replies))
            }
        };
        if let Some(asked) = self.awaited.pop_front() {
            self.shared.answer(asked.answer, Ok(answer));
        }
        Ok(())
    }
}

impl Drop for Reader {
    /// However the task ends, by a panic or with the runtime, too: the stream is closed, and nothing is awaited any more.
    fn drop(&mut self) {
        let State { stream, asked, .. } = self.shared.state().as_deref_mut().map(take).unwrap_or_default();
        drop(stream);
        for asked in self.awaited.drain(..).chain(asked) {
            self.shared.answer(asked.answer, Err(closed()));
        }
        self.shared.broken.notify_one();
    }
}

impl Asked {
    fn new(expected: Expected, answer: AnswerTo) -> Self {
        let count = match &expected {
            Expected::One(_) => 0, // it is the answer, and not kept
            Expected::Several(bounds) => bounds.len(),
        };
        Self { expected, count, replies: Vec::with_capacity(count), answer }
    }

    /// What the next reply may be.
    fn next(&self) -> Option<ReplyBound> {
        match &self.expected {
            Expected::One(bound) => Some(*bound),
            Expected::Several(bounds) => bounds.get(self.replies.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::{cmd, pipe};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::clock::SystemClock;

    /// A connection whose stream takes so many bytes at once, and the server's end of it.
    fn wire(room: usize) -> (Wire, WireTask, DuplexStream) {
        let (ours, theirs) = duplex(room);
        let (wire, task) = Wire::begin(Box::new(ours), Box::new(drop), Arc::new(SystemClock), Process::this());
        (wire, task, theirs)
    }

    async fn heard(server: &mut DuplexStream, count: usize) -> Vec<u8> {
        let mut heard = vec![0; count];
        server.read_exact(&mut heard).await.unwrap();
        heard
    }

    /// It would be one that was sent over the same stream by another program: then each reply is that to the command before.
    #[tokio::test]
    async fn a_reply_that_cannot_be_the_one_to_its_command_ends_the_connection() {
        let plain = || {
            let mut commands = pipe();
            commands.cmd("SET").arg("k").cmd("ZADD").arg("t").cmd("TIME").cmd("GET").arg("r");
            commands
        };
        let (usual, of_another) = (
            &b"_\r\n:1\r\n*2\r\n$1\r\n7\r\n$1\r\n8\r\n$1\r\nr\r\n"[..],
            [&b"$1\r\nx\r\n"[..], b":1\r\n", b"+PONG\r\n"],
        );
        for inserted in of_another {
            let (wire, _task, mut server) = wire(4096);
            let asked = [wire.ask_all(&plain()), wire.ask_all(&plain()), wire.ask_all(&plain())];
            server.write_all(&[usual, inserted, usual, usual].concat()).await.unwrap();
            let [first, second, third] = asked;
            assert_eq!(first.replies().await.unwrap().len(), 4);
            let words = second.await.unwrap_err().to_string();
            assert!(words.contains("is that to another command"), "{words}");
            assert!(third.await.unwrap_err().is_io_error());
        }
    }

    /// P26: the wake-up comes with the release, and behind it; the server's reply to it is no caller's answer.
    #[tokio::test]
    async fn what_is_sent_behind_a_command_goes_in_its_write_and_its_reply_is_passed_over() {
        let (wire, _task, mut server) = wire(4096);
        let (release, behind) = (cmd("ECHO").arg("a").to_owned(), cmd("PUBLISH").arg("b").arg("c").to_owned());
        let (sender, receiver) = oneshot::channel();
        let asks = |unsent: &mut Vec<u8>| Expected::One(encode(&release, unsent));
        assert!(wire.0.send(asks, &[behind.clone(), behind.clone()], AnswerTo::Caller(sender)));
        let after = wire.ask(&release);
        let behind = behind.get_packed_command();
        let expected = [release.get_packed_command(), behind.clone(), behind, release.get_packed_command()].concat();
        assert_eq!(heard(&mut server, expected.len()).await, expected);
        server.write_all(b"+1\r\n:0\r\n-NOPERM no\r\n+2\r\n").await.unwrap();
        assert_eq!(Answer(receiver).await, Ok(Value::SimpleString("1".to_owned())));
        assert_eq!(after.await, Ok(Value::SimpleString("2".to_owned())));
    }

    /// P6: a later command must not overtake an earlier one, in any order in which their answers are awaited.
    #[tokio::test]
    async fn a_command_is_sent_when_it_is_asked_and_not_when_its_answer_is_awaited() {
        for room in [1, 7, 4096] {
            let (wire, _task, mut server) = wire(room);
            tokio::task::yield_now().await; // the task waits already
            let (first, second, third) = (cmd("ECHO").arg("a").to_owned(), cmd("ECHO").arg("b").to_owned(), {
                let mut commands = pipe();
                commands.cmd("KEYS").cmd("PING");
                commands
            });
            let asked = [wire.ask(&first), wire.ask(&second), wire.ask_all(&third)];
            let expected =
                [first.get_packed_command(), second.get_packed_command(), third.get_packed_pipeline()].concat();
            assert_eq!(heard(&mut server, expected.len()).await, expected);
            server.write_all(b"$1\r\nx\r\n-ERR no\r\n*0\r\n+PONG\r\n").await.unwrap();
            let [first, second, third] = asked;
            assert_eq!(third.replies().await.unwrap(), [Value::Array(Vec::new()), Value::SimpleString("PONG".into())]);
            assert!(!second.succeeded().await);
            assert_eq!(first.await.unwrap(), Value::BulkString(b"x".into()));
        }
    }

    /// The task waits for it already.
    #[tokio::test]
    async fn the_answer_to_the_only_command_is_read() {
        let (wire, _task, mut server) = wire(4096);
        tokio::task::yield_now().await;
        let answer = wire.ask(&cmd("PING"));
        server.write_all(b"+PONG\r\n").await.unwrap();
        let answer = timeout(Duration::from_secs(5), answer).await.unwrap();
        assert_eq!(answer.unwrap(), Value::SimpleString("PONG".into()));
    }

    #[tokio::test]
    async fn a_reply_is_read_however_it_is_cut_and_a_push_answers_nothing_but_a_subscription() {
        let replies =
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n$2\r\nab\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n:7\r\n";
        for cut in 1..replies.len() {
            let (wire, _task, mut server) = wire(4096);
            let asked = [cmd("ECHO").arg("k").to_owned(), cmd("SUBSCRIBE").arg("c").to_owned(), cmd("PING")]
                .map(|command| wire.ask(&command));
            server.write_all(&replies[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            server.write_all(&replies[cut..]).await.unwrap();
            let [got, subscribed, seven] = asked;
            assert_eq!(got.await.unwrap(), Value::BulkString(b"ab".into()), "cut after {cut}");
            assert!(matches!(subscribed.await.unwrap(), Value::Push { .. }));
            assert_eq!(seven.await.unwrap(), Value::Int(7));
        }
    }

    /// Another program keeps it under the key of a lock.
    #[tokio::test]
    async fn a_value_that_is_too_long_for_a_lock_is_passed_over_however_it_is_cut() {
        for size in [2048, 2049, 100_000, 3_000_000] {
            let said = [format!("${size}\r\n").into_bytes(), vec![b'+'; size], b"\r\n+after\r\n".to_vec()].concat();
            for cut in [1, 5, 9, 2000, size / 2, size + 5, said.len() - 9, said.len() - 1] {
                let (wire, _task, mut server) = wire(4096);
                let asked = [cmd("SET").arg("k").to_owned(), cmd("PING")].map(|command| wire.ask(&command));
                let (first, second) = said.split_at(cut.min(said.len()));
                server.write_all(first).await.unwrap();
                tokio::task::yield_now().await;
                server.write_all(second).await.unwrap();
                let [value, after] = asked;
                let kept = if size > 2048 { Vec::new() } else { vec![b'+'; size] };
                assert_eq!(value.await.unwrap(), Value::BulkString(kept), "{size} {cut}");
                assert_eq!(after.await.unwrap(), Value::SimpleString("after".to_owned()));
            }
        }
    }

    #[tokio::test]
    async fn the_end_of_a_connection_ends_all_that_wait_for_answers_and_the_first_gets_its_cause() {
        for (said, why) in [(&b""[..], "broken pipe"), (b"\x15\x03\x03", "arse"), (b"$9999999\r\n", "longer than")] {
            let (wire, _task, mut server) = wire(4096);
            let asked = [wire.ask(&cmd("TIME")), wire.ask(&cmd("TIME"))];
            server.write_all(said).await.unwrap();
            drop(server);
            let [first, second] = asked;
            let first = first.await.unwrap_err().to_string();
            assert!(first.contains(why), "{first}");
            assert!(second.await.unwrap_err().is_io_error());
            timeout(Duration::from_secs(5), wire.broken().notified()).await.unwrap();
            assert!(wire.ask(&cmd("TIME")).await.unwrap_err().is_io_error(), "nothing is sent any more");
            assert_eq!(wire.too_much().get().is_some(), why == "longer than");
        }
    }

    #[tokio::test]
    async fn the_end_of_its_task_closes_the_stream() {
        let (wire, task, mut server) = wire(4096);
        let answer = wire.ask(&cmd("TIME"));
        drop(task);
        assert!(timeout(Duration::from_secs(5), answer).await.unwrap().is_err());
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, cmd("TIME").get_packed_command());
    }

    /// As a guard that is dropped by a thread of its own.
    #[tokio::test]
    async fn commands_are_sent_from_any_thread_and_by_a_task_that_has_used_up_its_budget() {
        let (wire, _task, mut server) = wire(8);
        tokio::task::yield_now().await;
        let from_elsewhere = wire.clone();
        let first = std::thread::spawn(move || from_elsewhere.ask(cmd("ECHO").arg("first"))).join().unwrap();
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }
        let second = wire.ask(cmd("ECHO").arg("second"));
        let expected = [cmd("ECHO").arg("first").get_packed_command(), cmd("ECHO").arg("second").get_packed_command()];
        assert_eq!(heard(&mut server, expected.concat().len()).await, expected.concat());
        server.write_all(b":1\r\n:2\r\n").await.unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Value::Int(1), Value::Int(2)));
    }

    /// A server that has no room for more clients says so and hangs up, before the first command.
    #[tokio::test]
    async fn what_a_server_says_at_connect_is_the_answer_to_the_first_command() {
        for (said, why) in [(&b"-ERR max number of clients reached\r\n"[..], "max number"), (b"SSH-2.0\r\n", "arse")] {
            let (wire, _task, mut server) = wire(4096);
            server.write_all(said).await.unwrap();
            drop(server);
            for _ in 0..9 {
                tokio::task::yield_now().await;
            }
            let message = wire.ask(&cmd("HELLO")).without_error().await.unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }

    #[tokio::test]
    async fn a_subscription_may_be_refused_and_one_that_nobody_asked_for_answers_nothing() {
        let (wire, _task, mut server) = wire(4096);
        let asked =
            [cmd("PING"), cmd("SUBSCRIBE").arg("c").to_owned(), cmd("DBSIZE")].map(|command| wire.ask(&command));
        server.write_all(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n+PONG\r\n-NOPERM no\r\n:7\r\n").await.unwrap();
        let [pong, subscribed, seven] = asked;
        assert_eq!(pong.await.unwrap(), Value::SimpleString("PONG".into()));
        assert!(!subscribed.succeeded().await);
        assert_eq!(seven.await.unwrap(), Value::Int(7));
        assert_eq!(wire.ask_all(&pipe()).replies().await.unwrap(), Vec::new(), "nothing is asked and nothing awaited");
    }

    #[tokio::test]
    async fn to_a_server_that_reads_nothing_only_so_much_is_sent() {
        let (wire, _task, _server) = wire(64);
        let asked: Vec<_> = (0..MOST_ASKED / 2).map(|_| wire.ask(&cmd("TIME"))).collect();
        assert!(wire.ask(&cmd("TIME")).await.is_err());
        let writes = (0..).take_while(|number| wire.write(*number, |commands| commands.add("TIME", 1, 0, |_| {}), &[]));
        assert_eq!(writes.count(), MOST_ASKED / 2, "questions leave room for writes");
        drop(asked);
    }

    /// Takes what is written and fails, once; flushes late.
    struct Odd {
        taken: Arc<Mutex<Vec<u8>>>,
        fails: bool,
        flush: Option<Waker>,
    }

    impl AsyncRead for Odd {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Odd {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.taken.lock().unwrap().extend_from_slice(bytes);
            if take(&mut self.fails) {
                Poll::Ready(Err(io::Error::other("no buffers")))
            } else {
                Poll::Ready(Ok(bytes.len()))
            }
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            // Each second one is refused.
            if self.flush.take().is_none() {
                self.flush = Some(cx.waker().clone());
                return Poll::Pending;
            }
            self.taken.lock().unwrap().extend_from_slice(b"flushed");
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn odd(fails: bool) -> (Wire, WireTask, Arc<Mutex<Vec<u8>>>) {
        let taken = Arc::<Mutex<Vec<u8>>>::default();
        let stream = Odd { taken: Arc::clone(&taken), fails, flush: None };
        let (wire, task) = Wire::begin(Box::new(stream), Box::new(drop), Arc::new(SystemClock), Process::this());
        tokio::task::yield_now().await;
        (wire, task, taken)
    }

    /// It would be carried out twice, and each later answer would be another's.
    #[tokio::test]
    async fn nothing_is_written_again_to_a_stream_that_has_failed() {
        let (wire, _task, taken) = odd(true).await;
        let message = timeout(Duration::from_secs(5), wire.ask(&cmd("TIME"))).await.unwrap().unwrap_err().to_string();
        assert!(message.contains("no buffers"), "{message}");
        assert_eq!(*taken.lock().unwrap(), cmd("TIME").get_packed_command());
    }

    #[tokio::test]
    async fn a_stream_that_keeps_what_it_takes_is_flushed_by_the_task() {
        let (wire, _task, taken) = odd(false).await;
        for _ in 0..2 {
            let _answer = wire.ask(&cmd("TIME"));
            for _ in 0..9 {
                tokio::task::yield_now().await;
            }
            assert!(taken.lock().unwrap().ends_with(b"flushed"));
        }
    }
}
