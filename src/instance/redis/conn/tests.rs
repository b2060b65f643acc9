//! Over streams in the process.

use std::io;
use std::mem::take;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use redis::{cmd, pipe};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::super::link::MOST_IN_FLIGHT;
use super::*;
use crate::clock::SystemClock;
use crate::instance::{Claim, ReplyTo, Request, TakesReplies};
use crate::protocol::InstanceId;

fn options() -> ConnOptions {
    let (clock, process, deadline) = (Arc::new(SystemClock), Process::this(), Duration::from_secs(5));
    ConnOptions { clock, process, deadline, gathering: Arc::default() }
}

fn now() -> Instant {
    SystemClock.now()
}

/// A connection whose stream takes so many bytes at once, and the server's end of it.
fn conn(room: usize) -> (Conn, ConnTask, DuplexStream) {
    let (ours, theirs) = duplex(room);
    let (conn, task) = Conn::begin(Box::new(ours), Box::new(|_| {}), options());
    (conn, task, theirs)
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
        commands.cmd("PTTL").arg("k").cmd("TIME").cmd("GET").arg("r");
        commands
    };
    let (usual, of_another) =
        (&b":1\r\n*2\r\n$1\r\n7\r\n$1\r\n8\r\n$1\r\nr\r\n"[..], [&b"$1\r\nx\r\n"[..], b":1\r\n", b"+PONG\r\n"]);
    for inserted in of_another {
        let (conn, _task, mut server) = conn(4096);
        let asked = [conn.ask_all(&plain()), conn.ask_all(&plain()), conn.ask_all(&plain())];
        server.write_all(&[usual, inserted, usual, usual].concat()).await.unwrap();
        let [first, second, third] = asked;
        assert_eq!(first.replies().await.unwrap().len(), 3);
        let words = second.await.unwrap_err().to_string();
        assert!(words.contains("is that to another command"), "{words}");
        assert!(third.await.unwrap_err().is_io_error());
        assert!(matches!(conn.broken_by(), Some(Broken::Shifted(_))));
    }
}

/// P6: a later command must not overtake an earlier one, in any order in which their answers are awaited.
#[tokio::test]
async fn a_command_is_sent_when_it_is_asked_and_not_when_its_answer_is_awaited() {
    for room in [1, 7, 4096] {
        let (conn, _task, mut server) = conn(room);
        tokio::task::yield_now().await; // the task waits already
        let (first, second, third) = (cmd("ECHO").arg("a").to_owned(), cmd("ECHO").arg("b").to_owned(), {
            let mut commands = pipe();
            commands.cmd("KEYS").cmd("PING");
            commands
        });
        let asked = [conn.ask(&first), conn.ask(&second), conn.ask_all(&third)];
        let expected = [first.get_packed_command(), second.get_packed_command(), third.get_packed_pipeline()].concat();
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
    let (conn, _task, mut server) = conn(4096);
    tokio::task::yield_now().await;
    let answer = conn.ask(&cmd("PING"));
    server.write_all(b"+PONG\r\n").await.unwrap();
    let answer = timeout(Duration::from_secs(5), answer).await.unwrap();
    assert_eq!(answer.unwrap(), Value::SimpleString("PONG".into()));
}

#[tokio::test]
async fn a_reply_is_read_however_it_is_cut_and_a_push_answers_nothing_but_a_subscription() {
    let replies =
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n$2\r\nab\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n:7\r\n";
    for cut in 1..replies.len() {
        let (conn, _task, mut server) = conn(4096);
        let asked = [cmd("ECHO").arg("k").to_owned(), cmd("SUBSCRIBE").arg("c").to_owned(), cmd("PING")]
            .map(|command| conn.ask(&command));
        server.write_all(&replies[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        server.write_all(&replies[cut..]).await.unwrap();
        let [got, subscribed, seven] = asked;
        assert_eq!(got.await.unwrap(), Value::BulkString(b"ab".into()), "cut after {cut}");
        assert!(subscribed.succeeded().await);
        assert_eq!(seven.await.unwrap(), Value::Int(7));
    }
}

#[tokio::test]
async fn the_end_of_a_connection_ends_all_that_wait_for_answers_and_the_first_gets_its_cause() {
    for (said, why) in [
        (&b""[..], "broken pipe"),
        (b"\x15\x03\x03", "arse"),
        (b"$9999999\r\n", "longer than"),
        (b":5\r\n", "another command"),
    ] {
        let (conn, _task, mut server) = conn(4096);
        let asked = [conn.ask(&cmd("TIME")), conn.ask(&cmd("TIME"))];
        server.write_all(said).await.unwrap();
        drop(server);
        let [first, second] = asked;
        let first = first.await.unwrap_err().to_string();
        assert!(first.contains(why), "{first} for {said:?}");
        assert!(second.await.unwrap_err().is_io_error());
        timeout(Duration::from_secs(5), conn.over()).await.unwrap();
        assert!(conn.ask(&cmd("TIME")).await.unwrap_err().is_io_error(), "nothing is sent any more");
        assert_eq!(conn.broken_by().is_some(), why != "broken pipe");
    }
}

#[tokio::test]
async fn the_end_of_its_task_closes_the_stream() {
    let (conn, task, mut server) = conn(4096);
    let answer = conn.ask(&cmd("TIME"));
    drop(task);
    assert!(timeout(Duration::from_secs(5), answer).await.unwrap().is_err());
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, cmd("TIME").get_packed_command());
}

/// As a guard that is dropped by a thread of its own.
#[tokio::test]
async fn commands_are_sent_from_any_thread_and_by_a_task_that_has_used_up_its_budget() {
    let (conn, _task, mut server) = conn(8);
    tokio::task::yield_now().await;
    let from_elsewhere = conn.clone();
    let first = std::thread::spawn(move || from_elsewhere.ask(cmd("ECHO").arg("first"))).join().unwrap();
    while tokio::task::coop::has_budget_remaining() {
        tokio::task::coop::consume_budget().await;
    }
    let second = conn.ask(cmd("ECHO").arg("second"));
    let expected = [cmd("ECHO").arg("first").get_packed_command(), cmd("ECHO").arg("second").get_packed_command()];
    assert_eq!(heard(&mut server, expected.concat().len()).await, expected.concat());
    server.write_all(b":1\r\n:2\r\n").await.unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Value::Int(1), Value::Int(2)));
}

/// A server that has no room for more clients says so and hangs up, before the first command.
#[tokio::test]
async fn what_a_server_says_at_connect_is_the_answer_to_the_first_command() {
    for (said, why) in [(&b"-ERR max number of clients reached\r\n"[..], "max number"), (b"SSH-2.0\r\n", "arse")] {
        let (conn, _task, mut server) = conn(4096);
        server.write_all(said).await.unwrap();
        drop(server);
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        let message = conn.ask(&cmd("HELLO")).without_error().await.unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }
}

#[tokio::test]
async fn a_subscription_may_be_refused_and_one_that_nobody_asked_for_answers_nothing() {
    let (conn, _task, mut server) = conn(4096);
    let asked = [cmd("PING"), cmd("SUBSCRIBE").arg("c").to_owned(), cmd("DBSIZE")].map(|command| conn.ask(&command));
    server.write_all(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n+PONG\r\n-NOPERM no\r\n:7\r\n").await.unwrap();
    let [pong, subscribed, seven] = asked;
    assert_eq!(pong.await.unwrap(), Value::SimpleString("PONG".into()));
    assert!(!subscribed.succeeded().await);
    assert_eq!(seven.await.unwrap(), Value::Int(7));
    assert_eq!(conn.ask_all(&pipe()).replies().await.unwrap(), Vec::new(), "nothing is asked and nothing awaited");
}

#[tokio::test]
async fn to_a_server_that_reads_nothing_only_so_much_is_sent() {
    let (conn, _task, _server) = conn(64);
    let asked: Vec<_> = (0..MOST_IN_FLIGHT / 2).map(|_| conn.ask(&cmd("TIME"))).collect();
    assert!(conn.ask(&cmd("TIME")).await.is_err());
    let (owner, replies) = (Arc::<Requests>::default(), Arc::<Replies>::default());
    conn.serve(Arc::downgrade(&owner) as Weak<dyn Owner>);
    assert!(conn.put(asks(&replies, 1), now()).is_empty());
    assert_eq!(owner.0.load(Ordering::Relaxed), 1, "questions leave room for requests");
    drop(asked);
}

/// Counter-example: what such a server had taken was kept for as long as anything was left.
#[tokio::test]
async fn a_stream_that_always_leaves_a_rest_keeps_only_that() {
    let (conn, _task, mut server) = conn(64);
    let size = cmd("TIME").get_packed_command().len();
    let mut answers: Vec<_> = (0..10).map(|_| conn.ask(&cmd("TIME"))).collect();
    for _ in 0..2_000 {
        heard(&mut server, size).await;
        server.write_all(b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n").await.unwrap();
        tokio::task::yield_now().await;
        answers.push(conn.ask(&cmd("TIME")));
    }
    let kept = conn.0.state().unwrap().unsent.capacity();
    assert!(kept <= 40 * size, "{kept} bytes");
}

/// Counts what is written.
#[derive(Default)]
struct Requests(AtomicUsize, Mutex<Vec<Reply>>);

impl Owner for Requests {
    fn known(&self, at: Instant) -> Known {
        Known { at, attached: None, wall_us: 0 }
    }
    fn sent(&self, requests: usize) {
        self.0.fetch_add(requests, Ordering::Relaxed);
    }
    fn answered(self: Arc<Self>, batch: Batch, _: Instant) {
        self.1.lock().unwrap().extend(batch.replies.into_iter().map(|raw| raw.reply));
    }
    fn ended(&self, _: Asked, reply: Reply) {
        self.1.lock().unwrap().push(reply);
    }
}

#[derive(Default)]
struct Replies;

impl TakesReplies for Replies {
    fn take(self: Arc<Self>, _: InstanceId, _: usize, _: Reply) {}
}

/// Acquires of so many locks.
fn asks(replies: &Arc<Replies>, count: usize) -> impl Iterator<Item = Asked> + use<'_> {
    (0..count).map(|number| {
        let request = Request::Acquire(Arc::new(Claim::sample(number as u128, &number.to_string())));
        let reply_to = ReplyTo::new(Arc::clone(replies) as Arc<_>, InstanceId::new(0));
        Asked { request, reply_to: Some(reply_to), since: now() }
    })
}

/// P6: what waits of a connection that ends is known not to be sent, and of what is on its way nothing is known.
#[tokio::test]
async fn the_end_of_a_connection_ends_what_is_on_its_way_and_what_waits() {
    let (conn, task, _server) = conn(4096);
    let (owner, replies) = (Arc::<Requests>::default(), Arc::<Replies>::default());
    conn.serve(Arc::downgrade(&owner) as Weak<dyn Owner>);
    assert!(conn.put(asks(&replies, 1), now()).is_empty() && conn.put(asks(&replies, 2), now()).is_empty());
    assert_eq!(owner.0.load(Ordering::Relaxed), 1);
    drop(task);
    timeout(Duration::from_secs(5), conn.over()).await.unwrap();
    let ended = owner.1.lock().unwrap().clone();
    assert!(
        matches!(ended[..], [Reply::Unknown(Cause::Disconnected(_)), Reply::NotSent(_), Reply::NotSent(_)]),
        "{ended:?}"
    );
    let refused = conn.put(asks(&replies, 1), now());
    assert!(matches!(refused[..], [(_, Reply::NotSent(Cause::NotConnected(_)))]));
}

/// They are woken one by one, and each alone would be one batch.
async fn gather(is_aborted: bool) {
    let (gathering, replies) = (Arc::<Gathering>::default(), Arc::<Replies>::default());
    let owner = Arc::<Requests>::default();
    let begin = || {
        let (ours, theirs) = duplex(1 << 16);
        let options = ConnOptions { gathering: Arc::clone(&gathering), ..options() };
        let (conn, task) = Conn::begin(Box::new(ours), Box::new(|_| {}), options);
        conn.serve(Arc::downgrade(&owner) as Weak<dyn Owner>);
        (conn, task, theirs)
    };
    let (one, other) = (begin(), begin());
    let sent = || owner.0.load(Ordering::Relaxed);
    let mut gathered = Box::pin(gathering.gather(Shared::send_gathered));
    assert!(gathered.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for conn in [&one.0, &other.0] {
        assert!(
            conn.put(asks(&replies, 4).take(1), now()).is_empty()
                && conn.put(asks(&replies, 4).skip(1), now()).is_empty()
        );
    }
    for _ in 0..9 {
        tokio::task::yield_now().await; // the tasks of the connections see that it is gathered
    }
    assert_eq!(sent(), 0);
    match is_aborted {
        true => drop(gathered),
        false => gathered.await,
    }
    assert_eq!(sent(), 8);
}

#[tokio::test]
async fn callers_that_were_answered_together_share_the_next_batch_to_each_instance() {
    gather(false).await;
}

/// Counter-example: where the connection of the task that gathers was replaced, the requests to all others waited until their deadline.
#[tokio::test]
async fn what_was_gathered_is_written_though_the_task_that_gathers_is_aborted() {
    gather(true).await;
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

async fn odd(fails: bool) -> (Conn, ConnTask, Arc<Mutex<Vec<u8>>>) {
    let taken = Arc::<Mutex<Vec<u8>>>::default();
    let stream = Odd { taken: Arc::clone(&taken), fails, flush: None };
    let (conn, task) = Conn::begin(Box::new(stream), Box::new(|_| {}), options());
    tokio::task::yield_now().await;
    (conn, task, taken)
}

/// It would be carried out twice, and each later answer would be another's.
#[tokio::test]
async fn nothing_is_written_again_to_a_stream_that_has_failed() {
    let (conn, _task, taken) = odd(true).await;
    let message = timeout(Duration::from_secs(5), conn.ask(&cmd("TIME"))).await.unwrap().unwrap_err().to_string();
    assert!(message.contains("no buffers"), "{message}");
    assert_eq!(*taken.lock().unwrap(), cmd("TIME").get_packed_command());
}

#[tokio::test]
async fn a_stream_that_keeps_what_it_takes_is_flushed_by_the_task() {
    let (conn, _task, taken) = odd(false).await;
    for _ in 0..2 {
        let _answer = conn.ask(&cmd("TIME"));
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        assert!(taken.lock().unwrap().ends_with(b"flushed"));
    }
}

/// A clock that shows what it is set to, in milliseconds.
#[derive(Debug)]
struct Set(AtomicU64);

impl Set {
    fn to(&self, ms: u64) -> Instant {
        self.0.store(ms, Ordering::Relaxed);
        self.now()
    }
}

impl Clock for Set {
    fn now(&self) -> Instant {
        Instant::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A connection with such a clock, and what becomes of its requests.
fn at_set_times() -> (Conn, ConnTask, DuplexStream, Arc<Set>, Arc<Requests>) {
    let (ours, theirs) = duplex(4096);
    let (clock, owner) = (Arc::new(Set(AtomicU64::new(60_000))), Arc::<Requests>::default());
    let options = ConnOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..options() };
    let (conn, task) = Conn::begin(Box::new(ours), Box::new(|_| {}), options);
    conn.serve(Arc::downgrade(&owner) as Weak<dyn Owner>);
    (conn, task, theirs, clock, owner)
}

/// The request for one of those locks, made then.
fn ask(replies: &Arc<Replies>, number: usize, since: Instant) -> impl Iterator<Item = Asked> + use<'_> {
    asks(replies, number + 1).skip(number).map(move |asked| Asked { since, ..asked })
}

/// Counter-example: what others had put meanwhile was dated as its request, and was too late at once.
#[tokio::test]
async fn a_caller_that_was_paused_before_it_puts_its_request_ages_no_other_one() {
    let (conn, _task, _server, clock, owner) = at_set_times();
    let replies = Arc::<Replies>::default();
    let (paused_at, now) = (clock.to(40_000), clock.to(60_000));
    assert!(conn.put(ask(&replies, 0, now).chain(ask(&replies, 1, paused_at)), paused_at).is_empty());
    conn.0.end_late();
    assert_eq!(*owner.1.lock().unwrap(), [Reply::Unknown(Cause::TimedOut)], "the other is not late");
    assert!(!conn.is_silent());
}

/// P6: an instance that hangs never carries out what has been given up by then.
#[tokio::test]
async fn nothing_is_sent_to_an_instance_that_is_just_found_to_be_silent() {
    let (conn, _task, _server, clock, owner) = at_set_times();
    let replies = Arc::<Replies>::default();
    let put = |number, ms: u64| {
        let now = clock.to(60_000 + ms);
        assert!(conn.put(ask(&replies, number, now), now).is_empty());
    };
    put(0, 0);
    clock.to(65_000);
    conn.0.end_late();
    put(1, 5_001);
    let mut gathered = Box::pin(conn.0.options.gathering.gather(Shared::send_gathered)); // so that the next one waits
    assert!(gathered.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    put(2, 9_999);
    clock.to(70_001);
    conn.0.end_late();
    assert!(conn.is_silent());
    conn.close();
    let ended = owner.1.lock().unwrap().clone();
    assert!(matches!(ended[..], [Reply::Unknown(_), Reply::Unknown(_), Reply::NotSent(_)]), "{ended:?}");
    assert_eq!(owner.0.load(Ordering::Relaxed), 2);
}
