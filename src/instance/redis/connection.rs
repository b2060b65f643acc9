//! One connection: sends requests over it, each under its deadline.

use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::admission::handshake::Admitting;
use super::admission::shared::Guarded;
use super::classify::{classify, classify_batch, is_of_the_instance};
use super::driver::{BoxFuture, Driver, queued};
use super::frames::TooLong;
use super::health::Known;
use super::scripts::{Scripts, releases_first};
use super::send_queue::{Lane, Turn, Waiting, closed};
use super::timer_wakeups::Pacer;
use crate::clock::Clock;
use crate::instance::{Call, Request};
use crate::protocol::{Cause, Instant, Named, Raw, Reply};

/// After this many unanswered commands in a row an instance is only probed until it answers.
const SILENT_AFTER: u32 = 3;

/// The most requests to one instance that may wait for their turn; more are not sent.
pub(super) const MAX_WAITING: usize = 16 * 1024;

/// How often an idle instance is asked for its clock: often enough that drift between two samples
/// hides no step worth a lock.
pub(super) fn heartbeat(max_ttl: Duration) -> Duration {
    (max_ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// What a link is made from.
pub(super) struct Parts {
    pub(super) connection: MultiplexedConnection,
    /// The task behind the connection: it ends when nobody awaits anything of the link any more.
    #[expect(dead_code, reason = "it is kept for its end")]
    pub(super) driver: Driver,
    /// Told when that task ended before.
    pub(super) broken: Arc<Notify>,
    /// Set if it ended because of what the instance sent.
    pub(super) too_long: Arc<OnceLock<TooLong>>,
    pub(super) scripts: &'static Scripts,
    pub(super) deadline: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pacer: Arc<Pacer>,
    /// The address without credentials, and what is known of the instance.
    pub(super) shown: String,
    pub(super) known: Arc<Known>,
    /// Whether changes of keys are pushed to the connection.
    pub(super) tracking: bool,
    /// `None` if admission is turned off.
    pub(super) guarded: Option<Guarded>,
}

/// A connection and what is known of how it does.
pub(crate) struct Link {
    parts: Parts,
    runtime: Handle,
    lane: Lane,
    unanswered: AtomicU32,
    loading_scripts: AtomicBool,
}

/// A command that was sent: when, what record it named, and its result on the way.
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) named: Option<Named>,
    pub(super) result: BoxFuture<RedisResult<Value>>,
}

impl Link {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            runtime: Handle::current(),
            lane: Lane::default(),
            unanswered: AtomicU32::new(0),
            loading_scripts: AtomicBool::new(false),
        }
    }

    /// Admission, unless it is turned off.
    pub(super) const fn guarded(&self) -> Option<&Guarded> {
        self.parts.guarded.as_ref()
    }

    /// Ends when the connection should be given up.
    pub(super) async fn given_up(&self) -> Cause {
        self.parts.broken.notified().await;
        match self.parts.too_long.get() {
            Some(too_long) => Cause::NotConnected(too_long.to_string()),
            None if self.is_silent() => Cause::Silent,
            None => closed(),
        }
    }

    /// Tells those who wait for their turn that it will not come.
    pub(super) fn close(&self) {
        self.lane.close();
    }

    /// Whether changes of keys are pushed to the connection.
    pub(super) const fn is_tracking(&self) -> bool {
        self.parts.tracking
    }

    pub(super) const fn scripts(&self) -> &'static Scripts {
        self.parts.scripts
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.parts.deadline
    }

    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.parts.connection.clone()
    }

    pub(super) fn note_request(&self) {
        self.parts.pacer.note_request();
    }

    pub(super) fn is_silent(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= SILENT_AFTER
    }

    /// Queues a request: on its way when this returns, or in line behind those made before.
    pub(super) fn call(self: &Arc<Self>, request: Request) -> Call {
        if self.is_silent() {
            return Box::pin(ready(Reply::NotSent(Cause::Silent)));
        }
        self.parts.pacer.note_request();
        match self.lane.enter(request, MAX_WAITING) {
            Turn::Now(request) => {
                let place = Place(Arc::clone(self));
                let sent = self.send(|named| self.parts.scripts.command(&request, named));
                Box::pin(async move { place.0.answer_to(&request, sent).await })
            }
            Turn::Later(reply) => {
                let deadline = self.parts.deadline;
                Box::pin(async move {
                    match timeout(deadline, reply).await {
                        Ok(Ok(reply)) => reply,
                        // Whoever sent it is gone, with the runtime.
                        Ok(Err(_)) => Reply::Unknown(closed()),
                        Err(_) => Reply::Unknown(Cause::TimedOut), // P5
                    }
                })
            }
            Turn::Refused(cause) => Box::pin(ready(Reply::NotSent(cause))),
        }
    }

    pub(super) fn send(&self, command: impl FnOnce(Option<&Named>) -> redis::Cmd) -> Sent {
        let at = self.parts.clock.now();
        let named = self.guarded().map(|guarded| guarded.named(at));
        let command = command(named.as_ref());
        let mut connection = self.parts.connection.clone();
        Sent { at, named, result: queued(async move { connection.send_packed_command(&command).await }) }
    }

    async fn answer_to(self: &Arc<Self>, request: &Request, sent: Sent) -> Reply {
        let Ok(result) = timeout(self.parts.deadline, sent.result).await else {
            self.note_silence();
            return Reply::Unknown(Cause::TimedOut); // P5
        };
        self.judge(classify(request, result), request.asks_for_a_vote(), sent.at, sent.named.as_ref())
    }

    /// What a reply counts for (P14, P17), and what it says of the connection.
    pub(super) fn judge(self: &Arc<Self>, raw: Raw, may_vote: bool, sent: Instant, named: Option<&Named>) -> Reply {
        self.note(&raw.reply);
        self.parts.known.troubles.note(&self.parts.shown, &raw.reply, may_vote, sent);
        match (self.guarded(), named) {
            (Some(guarded), Some(named)) => guarded.judge(raw, &named.record, sent),
            _ => raw.reply,
        }
    }

    /// Sends requests that waited together.
    fn send_together(&self, waiting: &mut [Waiting]) -> Sent {
        match waiting {
            [one] => self.send(|named| self.parts.scripts.command(&one.request, named)),
            many => {
                let releases = releases_first(many, |waiting| &waiting.request);
                let requests: Vec<&Request> = many.iter().map(|waiting| &waiting.request).collect();
                self.send(|named| self.parts.scripts.batch(&requests, releases, named))
            }
        }
    }

    /// Tells each of those that were sent together its reply.
    fn follow(self: &Arc<Self>, place: Place, waiting: Vec<Waiting>, sent: Sent) {
        let link = Arc::clone(self);
        let place = Followed(Some(place));
        self.runtime.spawn(async move {
            let replies = link.answers_to(&waiting, sent).await;
            place.leave(); // the next may be sent before those that waited are woken
            for (waiting, reply) in waiting.into_iter().zip(replies) {
                // Whoever gave up waiting has counted it as unknown.
                let _ = waiting.reply.send(reply);
            }
        });
    }

    async fn answers_to(self: &Arc<Self>, waiting: &[Waiting], sent: Sent) -> Vec<Reply> {
        if let [one] = waiting {
            return vec![self.answer_to(&one.request, sent).await];
        }
        let Ok(result) = timeout(self.parts.deadline, sent.result).await else {
            self.note_silence();
            return vec![Reply::Unknown(Cause::TimedOut); waiting.len()];
        };
        match &result {
            Ok(Value::ServerError(error)) if !is_of_the_instance(error) => self.lane.batch_failed(),
            Ok(Value::Array(_)) => self.lane.batch_answered(),
            _ => {}
        }
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        let raws = classify_batch(&requests, result);
        let judge =
            |(request, raw): (&&Request, Raw)| self.judge(raw, request.asks_for_a_vote(), sent.at, sent.named.as_ref());
        requests.iter().zip(raws).map(judge).collect()
    }

    /// Asks for the instance's clock; gives how long the answer took. Also a sign of life: without
    /// requests nobody would notice that it fell silent.
    pub(super) async fn beat(&self) -> Option<Duration> {
        let mut connection = self.parts.connection.clone();
        let sent = self.parts.clock.now();
        let ask = async move { redis::cmd("TIME").query_async::<(u64, u64)>(&mut connection).await };
        match timeout(self.parts.deadline, ask).await {
            Ok(Ok((seconds, micros))) => {
                let received = self.parts.clock.now();
                self.unanswered.store(0, Ordering::Relaxed);
                if let Some(guarded) = self.guarded() {
                    guarded.observe(sent, received, seconds.saturating_mul(1_000_000).saturating_add(micros));
                }
                Some(received.saturating_since(sent))
            }
            Ok(Err(_)) => None, // its driver tells when the connection was closed
            Err(_) => {
                self.note_silence();
                None
            }
        }
    }

    /// Admission over this connection, after it has been admitted once.
    pub(super) fn admitting<'a>(&self, guarded: &'a Guarded) -> Admitting<'a> {
        let (connection, scripts, tracking) = (self.parts.connection.clone(), self.parts.scripts, self.parts.tracking);
        let (rules, flushes) = (&guarded.rules, guarded.flushes.told());
        Admitting { connection, scripts, rules, tracking, again: true, flushes }
    }

    pub(super) fn note_silence(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_AFTER {
            self.parts.broken.notify_one();
        }
    }

    fn note(self: &Arc<Self>, reply: &Reply) {
        match reply {
            // A master that became a replica must be admitted anew.
            Reply::Unknown(Cause::Disconnected(_) | Cause::ReadOnly) => self.parts.broken.notify_one(),
            Reply::NotSent(Cause::ScriptMissing) => self.load_scripts(),
            _ => self.unanswered.store(0, Ordering::Relaxed),
        }
    }

    /// Loads the scripts again, once for however many requests miss them. The commands are queued
    /// at once, so that a round that is repeated finds the scripts.
    fn load_scripts(self: &Arc<Self>) {
        if self.loading_scripts.swap(true, Ordering::AcqRel) {
            return;
        }
        let link = Arc::clone(self);
        let mut connection = self.parts.connection.clone();
        let load = queued(async move { link.parts.scripts.load().query_async::<()>(&mut connection).await });
        let link = Arc::clone(self);
        self.runtime.spawn(async move {
            if !matches!(timeout(link.parts.deadline, load).await, Ok(Ok(()))) {
                tracing::warn!("scripts could not be loaded again; the next request tries again");
            }
            link.loading_scripts.store(false, Ordering::Release);
        });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

/// A place in the lane. Whoever gives it up sends those who wait for it.
struct Place(Arc<Link>);

impl Drop for Place {
    fn drop(&mut self) {
        let link = &self.0;
        if let Some((waiting, sent)) = link.lane.leave(|waiting| link.send_together(waiting)) {
            link.follow(Place(Arc::clone(link)), waiting, sent);
        }
    }
}

/// A place that a task holds. If the task is dropped, so is the runtime: then nobody can follow those
/// who wait, each of whom would be sent by the end of the one before.
struct Followed(Option<Place>);

impl Followed {
    fn leave(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            place.0.close();
        }
    }
}
