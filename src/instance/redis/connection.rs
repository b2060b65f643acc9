//! One connection: sends requests, each under its deadline.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::admission::handshake::AdmissionHandshake;
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::health::InstanceHealth;
use super::plain::{self, LastAcquire};
use super::publish;
use super::scripts::Scripts;
use super::send_queue::{QueuedRequest, SendDecision, SendQueue, closed};
use super::sent_command::{KnownAtSending, SentWrite};
use super::timer_wakeups::TimerWakeups;
use super::wire::{Wire, WireTask};
use super::write::{self, Parts};
use crate::clock::Clock;
use crate::instance::{PublishFuture, ReplyFuture, Request, Wake};
use crate::protocol::{AdmissionFollowUp, Cause, Instant, Reply};

/// After this many unanswered commands in a row an instance is only probed until it answers.
const SILENT_AFTER: u32 = 3;

/// The most requests to one instance that may wait for their turn; more are not sent.
pub(super) const MAX_WAITING: usize = 16 * 1024;

/// How often an idle instance is asked for its clock: often enough that drift between two samples
/// hides no step worth a lock.
pub(super) fn probe_interval(max_ttl: Duration) -> Duration {
    (max_ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// What a connection is made from.
pub(super) struct ConnectionParts {
    pub(super) wire: Wire,
    /// Its task, which ends with the connection.
    #[expect(dead_code, reason = "it is kept for its end")]
    pub(super) wire_task: WireTask,
    /// Notified when that task ended before.
    pub(super) broken: Arc<Notify>,
    pub(super) scripts: &'static Scripts,
    pub(super) deadline: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakeups: Arc<TimerWakeups>,
    /// Shared with the other instances of the client.
    pub(super) last_acquire: Arc<LastAcquire>,
    /// The address without credentials, and what is known of the instance.
    pub(super) shown: String,
    pub(super) health: Arc<InstanceHealth>,
    /// Whether changes of keys are pushed to the connection.
    pub(super) tracking: bool,
    /// Whether messages of other clients come over it.
    pub(super) hears: bool,
    /// `None` if admission is turned off.
    pub(super) admission: Option<SharedAdmission>,
}

/// A connection and what is known of how it does.
pub(crate) struct InstanceConnection {
    parts: ConnectionParts,
    runtime: Handle,
    pub(super) send_queue: SendQueue,
    unanswered: AtomicU32,
    loading_scripts: AtomicBool,
}

impl InstanceConnection {
    pub(super) fn new(parts: ConnectionParts) -> Self {
        Self {
            parts,
            runtime: Handle::current(),
            send_queue: SendQueue::default(),
            unanswered: AtomicU32::new(0),
            loading_scripts: AtomicBool::new(false),
        }
    }

    /// Admission, unless it is turned off.
    pub(super) const fn admission(&self) -> Option<&SharedAdmission> {
        self.parts.admission.as_ref()
    }

    /// Why this client gets no vote over it, if that is for its settings.
    pub(super) fn refusal(&self) -> Option<Cause> {
        self.admission()?.refusal()
    }

    /// Has the record read again.
    pub(super) fn reread_record(&self) {
        self.admission().into_iter().for_each(|it| it.request_follow_up(AdmissionFollowUp::RereadRecord));
    }

    /// Resolves when the connection should be given up, to the reason.
    pub(super) async fn given_up(&self) -> Cause {
        self.parts.broken.notified().await;
        match self.parts.wire.too_much().get() {
            Some(too_much) => Cause::NotConnected(too_much.to_string()),
            None if self.is_silent() => Cause::Silent,
            None => closed(),
        }
    }

    /// Ends the requests that wait to be sent: they are `NotSent`.
    pub(super) fn close(&self) {
        self.send_queue.close();
    }

    /// Nothing is sent any more, and the next connection goes on.
    pub(super) fn give_up(&self) {
        self.close();
        self.parts.broken.notify_one();
    }

    /// How many requests wait to be sent, and commands for their replies.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.send_queue.outstanding()
    }

    /// Whether changes of keys are pushed to the connection.
    pub(super) const fn is_tracking(&self) -> bool {
        self.parts.tracking
    }

    /// Whether something under a key was too long to be read.
    pub(super) fn has_long_values(&self) -> bool {
        self.parts.health.has_long_values.load(Ordering::Relaxed)
    }

    /// Whether messages of other clients come over it.
    pub(super) const fn hears(&self) -> bool {
        self.parts.hears
    }

    /// Notes what is odd about it, though it serves.
    pub(super) fn note_error(&self, error: &str) {
        self.parts.health.lock().last_error = Some(error.to_owned());
    }

    pub(super) const fn scripts(&self) -> &'static Scripts {
        self.parts.scripts
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.parts.deadline
    }

    pub(super) const fn wire(&self) -> &Wire {
        &self.parts.wire
    }

    pub(super) fn note_request(&self) {
        self.parts.wakeups.note_request();
    }

    pub(super) fn is_silent(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= SILENT_AFTER
    }

    /// Queues a request: in flight when this returns, or behind those that wait to be sent.
    pub(super) fn call(self: &Arc<Self>, request: Request) -> ReplyFuture {
        if self.is_silent() {
            return Box::pin(ready(self.counted(Reply::NotSent(Cause::Silent), 1)));
        }
        self.parts.wakeups.note_request();
        match self.send_queue.submit(request, MAX_WAITING) {
            SendDecision::SendNow(request) => {
                let permit = SendPermit(Arc::clone(self), 1);
                let sent = self.send_one(&request);
                let connection = Arc::clone(self);
                Box::pin(async move {
                    let replies = connection.replies(&[&request], sent).await;
                    let reply = replies.and_then(|mut replies| replies.pop());
                    let reply = reply.unwrap_or(Reply::Unknown(Cause::TimedOut)); // P5
                    drop(permit);
                    connection.counted(reply, 1)
                })
            }
            SendDecision::Queued(reply) => {
                let connection = Arc::clone(self);
                Box::pin(async move {
                    let reply = match timeout(connection.parts.deadline, reply).await {
                        Ok(Ok(reply)) => reply,
                        // The task that sent it is gone, with the runtime.
                        Ok(Err(_)) => Reply::Unknown(closed()),
                        Err(_) => Reply::Unknown(Cause::TimedOut), // P5
                    };
                    connection.counted(reply, 1)
                })
            }
            SendDecision::Refused(cause) => Box::pin(ready(self.counted(Reply::NotSent(cause), 1))),
        }
    }

    /// Sends a message to another client. It does not wait in the send queue: nothing depends on its order.
    pub(super) fn publish(&self, wake: &Wake) -> PublishFuture {
        if self.is_silent() {
            return Box::pin(ready(false));
        }
        self.parts.wakeups.note_request();
        publish::publish(&self.parts.wire, wake, self.parts.deadline)
    }

    /// Counts how so many requests have ended, for whoever made them.
    pub(super) fn counted(&self, reply: Reply, requests: usize) -> Reply {
        self.parts.health.counts.replied(&reply, requests);
        reply
    }

    /// What is known of the instance as something is sent.
    pub(super) fn what_is_known(&self) -> KnownAtSending {
        let at = self.parts.clock.now();
        let (attached, wall_us) = self.admission().map(|admission| admission.known_at(at)).unzip();
        KnownAtSending { at, attached, wall_us: wall_us.unwrap_or(0) }
    }

    /// Sends the only request of a write.
    fn send_one(&self, request: &Request) -> SentWrite {
        let now = self.what_is_known();
        let is_plain = plain::may_be_plain(request, now.attached.as_ref(), now.wall_us);
        let parts = Parts::of_one(request, is_plain);
        if is_plain {
            return self.send(now, parts, 1, &self.parts.last_acquire.commands(request.claim()), &[]);
        }
        let commands = write::commands(self.parts.scripts, parts, &[request], now.attached.as_ref());
        self.send(now, parts, 1, &commands, &publish::behind(&[request]))
    }

    /// Sends several commands in one write, with so many requests.
    pub(super) fn send(
        &self,
        now: KnownAtSending,
        parts: Parts,
        requests: usize,
        commands: &Pipeline,
        behind: &[Cmd],
    ) -> SentWrite {
        self.parts.health.counts.sent(requests);
        let answer = self.parts.wire.ask_all_before(commands, behind);
        SentWrite { at: now.at, attached: now.attached, parts, answer }
    }

    /// Sends what waits, as far as it may.
    fn send_waiting(self: &Arc<Self>) {
        loop {
            let now = self.what_is_known();
            let (attached, wall_us) = (now.attached.clone(), now.wall_us);
            let is_plain = |request: &Request| plain::may_be_plain(request, attached.as_ref(), wall_us);
            let next = self.send_queue.send_next(is_plain, |waiting, parts| {
                let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
                let commands = write::commands(self.parts.scripts, parts, &requests, attached.as_ref());
                self.send(now, parts, requests.len(), &commands, &publish::behind(&requests))
            });
            let Some((waiting, sent)) = next else { return };
            self.deliver_replies(SendPermit(Arc::clone(self), waiting.len()), waiting, sent);
        }
    }

    /// Delivers the replies to requests that were sent together.
    fn deliver_replies(self: &Arc<Self>, permit: SendPermit, waiting: Vec<QueuedRequest>, sent: SentWrite) {
        let connection = Arc::clone(self);
        let permit = TaskPermit(Some(permit));
        self.runtime.spawn(async move {
            let (requests, callers): (Vec<_>, Vec<_>) =
                waiting.into_iter().map(|waiting| (waiting.request, waiting.reply)).unzip();
            let requests: Vec<&Request> = requests.iter().collect();
            let replies = connection.replies(&requests, sent).await;
            let replies = replies.unwrap_or_else(|| vec![Reply::Unknown(Cause::TimedOut); callers.len()]); // P5
            for (caller, reply) in callers.into_iter().zip(replies) {
                let _ = caller.send(reply); // whoever gave up waiting has counted it as unknown
            }
            yield_now().await; // what those who were answered ask next goes with what waits
            permit.give_up();
        });
    }

    /// Asks for the instance's clock; returns how long the answer took. Without requests it is also what
    /// notices that an instance fell silent.
    pub(super) async fn probe(&self) -> Option<Duration> {
        let mut wire = self.parts.wire.clone();
        let sent = self.parts.clock.now();
        let ask = async move { redis::cmd("TIME").query_async::<(u64, u64)>(&mut wire).await };
        match timeout(self.parts.deadline, ask).await {
            Ok(Ok((seconds, micros))) => {
                let received = self.parts.clock.now();
                self.note_sign_of_life();
                self.observe_clock(sent, Some(seconds.saturating_mul(1_000_000).saturating_add(micros)));
                let round_trip = received.saturating_since(sent);
                self.send_queue.note_round_trip(round_trip);
                Some(round_trip)
            }
            Ok(Err(_)) => None, // its task notices when the connection was closed
            Err(_) => {
                self.note_silence();
                None
            }
        }
    }

    /// Takes in what the instance's clock showed in the answer to what was sent then (P17).
    pub(super) fn observe_clock(&self, sent: Instant, instance_us: Option<u64>) {
        if let (Some(admission), Some(us)) = (self.admission(), instance_us) {
            admission.observe(sent, self.parts.clock.now(), us);
        }
    }

    /// Admission over this connection, once it has been admitted.
    pub(super) fn handshake<'a>(&self, admission: &'a SharedAdmission) -> AdmissionHandshake<'a> {
        let (wire, scripts, tracking) = (self.parts.wire.clone(), self.parts.scripts, self.parts.tracking);
        AdmissionHandshake { wire, scripts, config: &admission.config, tracking }
    }

    pub(super) fn note_silence(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_AFTER {
            self.parts.broken.notify_one();
        }
    }

    pub(super) fn note_sign_of_life(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// The own clock.
    pub(super) fn now(&self) -> Instant {
        self.parts.clock.now()
    }

    /// Takes in what a reply shows about the connection and the instance.
    pub(super) fn note(self: &Arc<Self>, reply: &Reply, may_vote: bool, sent: Instant) {
        self.parts.health.trouble.note(&self.parts.shown, reply, may_vote, sent);
        match reply {
            // A master that became a replica must be admitted anew.
            Reply::Unknown(Cause::Disconnected(_) | Cause::ReadOnly) => self.parts.broken.notify_one(),
            Reply::NotSent(Cause::ScriptMissing) => self.load_scripts(),
            _ => self.note_sign_of_life(),
        }
    }

    /// Loads the scripts again, once for however many requests miss them. The commands are queued
    /// at once, so that a round that is repeated finds the scripts.
    fn load_scripts(self: &Arc<Self>) {
        if self.loading_scripts.swap(true, Ordering::AcqRel) {
            return;
        }
        let load = self.parts.wire.ask_all(self.parts.scripts.load()).without_error();
        let connection = Arc::clone(self);
        let sent = self.now();
        self.runtime.spawn(async move {
            let loaded = timeout(connection.parts.deadline, load).await;
            connection.loading_scripts.store(false, Ordering::Release); // the next request that misses one tries again
            if let Ok(Err(error)) = loaded {
                let why = Reply::Unknown(failed(&error)); // a right that is missing, say
                connection.parts.health.trouble.note(&connection.parts.shown, &why, false, sent);
            }
        });
    }
}

impl fmt::Debug for InstanceConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceConnection").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

/// The right to have one write on its way, with so many requests. Giving it up sends the requests that wait for it.
struct SendPermit(Arc<InstanceConnection>, usize);

impl Drop for SendPermit {
    fn drop(&mut self) {
        let Self(connection, requests) = self;
        connection.send_queue.finish(*requests);
        connection.send_waiting();
    }
}

/// A permit that is held by a task. If the task is dropped, by the end of the runtime or by a panic, nobody follows those
/// who wait, each of whom would be sent by the end of the one before: then the connection is given up.
struct TaskPermit(Option<SendPermit>);

impl TaskPermit {
    fn give_up(mut self) {
        drop(self.0.take());
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        if let Some(permit) = &self.0 {
            permit.0.give_up();
        }
    }
}
