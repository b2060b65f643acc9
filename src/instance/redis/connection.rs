//! One connection: sends requests, each under its deadline.

use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::admission::handshake::AdmissionHandshake;
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::encode::Encoder;
use super::health::InstanceHealth;
use super::plain;
use super::publish;
use super::scripts::Scripts;
use super::send_queue::{Asked, KnownAtSending, Late, SendQueue, State, closed};
use super::wire::{TakesAnswers, Wire, WireTask};
use super::write::{self, Parts};
use crate::clock::Clock;
use crate::instance::{PublishFuture, ReplyTo, Request, Wake};
use crate::protocol::{AdmissionFollowUp, Cause, Instant, Reply};

/// The shortest wait for a deadline: timers count milliseconds.
const LEAST_WAIT: Duration = Duration::from_millis(1);

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
    /// Whether it has not answered for so long that it is only probed.
    is_silent: AtomicBool,
    loading_scripts: AtomicBool,
    /// Tells the task that looks at the deadlines that it is to look sooner.
    begun: Arc<Notify>,
    watch: AbortHandle,
}

impl InstanceConnection {
    /// Must be called within a runtime.
    pub(super) fn new(parts: ConnectionParts) -> Arc<Self> {
        Arc::new_cyclic(|connection: &Weak<Self>| {
            parts.wire.leave_writes_to(Weak::clone(connection) as Weak<dyn TakesAnswers>);
            let begun = Arc::<Notify>::default();
            let watch = tokio::spawn(watch(Weak::clone(connection), Arc::clone(&begun))).abort_handle();
            Self {
                parts,
                runtime: Handle::current(),
                send_queue: SendQueue::default(),
                is_silent: AtomicBool::new(false),
                loading_scripts: AtomicBool::new(false),
                begun,
                watch,
            }
        })
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

    /// Nothing is sent any more. Requests that wait to be sent are `NotSent`; what came of those on their way is not known.
    pub(super) fn close(&self) {
        let (waiting, in_flight) = self.send_queue.lock().close();
        waiting.into_iter().for_each(|asked| self.answer(asked, Reply::NotSent(closed())));
        for asked in in_flight.into_iter().flat_map(|write| write.requests) {
            self.answer(asked, Reply::Unknown(given_up()));
        }
    }

    /// Nothing is sent any more, and the next connection goes on.
    pub(super) fn give_up(&self) {
        self.close();
        self.parts.broken.notify_one();
    }

    /// How many requests wait to be sent, or for their replies.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.send_queue.lock().outstanding()
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

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Queues requests: on their way when this returns, or behind what is.
    pub(super) fn call(&self, requests: impl Iterator<Item = (Request, ReplyTo)>) {
        let refused = if self.is_silent() {
            requests.map(|(_, reply_to)| (reply_to, Cause::Silent)).collect()
        } else {
            self.queue(requests)
        };
        for (reply_to, cause) in refused {
            reply_to.answer(self.counted(Reply::NotSent(cause)));
        }
    }

    /// Gives those that are refused.
    fn queue(&self, requests: impl Iterator<Item = (Request, ReplyTo)>) -> Vec<(ReplyTo, Cause)> {
        let mut refused = Vec::new();
        let mut state = self.send_queue.lock();
        let since = self.now();
        for (request, reply_to) in requests {
            let asked = Asked { request, reply_to: Some(reply_to), since };
            if let Err((asked, cause)) = state.put(asked, MAX_WAITING) {
                refused.extend(asked.reply_to.map(|reply_to| (reply_to, cause)));
            }
        }
        let unsent = self.send_what_may_be_sent(&mut state, since);
        let needs_watch = state.needs_watch(since, self.deadline());
        drop(state);
        if needs_watch {
            self.begun.notify_one();
        }
        self.end_unsent(unsent);
        refused
    }

    /// Sends what waits, as far as it may. Gives what the connection did not take.
    fn send_what_may_be_sent(&self, state: &mut State, now: Instant) -> Vec<Asked> {
        let mut unsent = Vec::new();
        while state.may_send(now) {
            let now = self.what_is_known();
            let is_plain = |request: &Request| plain::may_be_plain(request, now.attached.as_ref(), now.wall_us);
            let (number, requests, parts) = state.next_write(is_plain);
            if self.send(number, parts, &requests, &now) {
                self.parts.health.counts.sent(requests.len());
                state.sent(now, parts, requests);
            } else {
                unsent.extend(requests);
            }
        }
        unsent
    }

    /// The connection has ended, or has taken more than it could send.
    fn end_unsent(&self, unsent: Vec<Asked>) {
        if !unsent.is_empty() {
            self.parts.broken.notify_one();
        }
        unsent.into_iter().for_each(|asked| self.answer(asked, Reply::Unknown(given_up())));
    }

    /// Sends what waits, behind those who were just answered.
    pub(super) fn send_waiting(&self) {
        let mut state = self.send_queue.lock();
        state.end_gathering();
        let unsent = self.send_what_may_be_sent(&mut state, self.now());
        drop(state);
        self.end_unsent(unsent);
    }

    /// Ends the requests that have no answer in time, and sends what they kept waiting. Returns how long there is nothing to do;
    /// `None` if nothing is under way.
    fn end_late(&self) -> Option<Duration> {
        let (now, deadline) = (self.now(), self.deadline());
        let mut state = self.send_queue.lock();
        let Late { requests, first_write, next } = state.take_late(now, deadline);
        let unsent = self.send_what_may_be_sent(&mut state, now);
        drop(state);
        first_write.into_iter().for_each(|sent| self.note_silence(sent));
        requests.into_iter().for_each(|asked| self.answer(asked, Reply::Unknown(Cause::TimedOut))); // P5
        self.end_unsent(unsent);
        next.map(|next| next.saturating_since(self.now()).clamp(LEAST_WAIT, deadline.max(LEAST_WAIT)))
    }

    /// The reply to a request, unless it has had one.
    pub(super) fn answer(&self, asked: Asked, reply: Reply) {
        if let Some(reply_to) = asked.reply_to {
            reply_to.answer(self.counted(reply));
        }
    }

    /// Sends a message to another client. It does not wait in the send queue: nothing depends on its order.
    pub(super) fn publish(&self, wake: &Wake) -> PublishFuture {
        if self.is_silent() {
            return Box::pin(ready(false));
        }
        publish::publish(&self.parts.wire, wake, self.parts.deadline)
    }

    /// Counts how a request has ended.
    fn counted(&self, reply: Reply) -> Reply {
        self.parts.health.counts.replied(&reply, 1);
        reply
    }

    /// What is known of the instance as something is sent.
    pub(super) fn what_is_known(&self) -> KnownAtSending {
        let at = self.parts.clock.now();
        let (attached, wall_us) = self.admission().map(|admission| admission.known_at(at)).unzip();
        KnownAtSending { at, attached, wall_us: wall_us.unwrap_or(0) }
    }

    /// Sends one write; whether the connection takes it.
    fn send(&self, number: u64, parts: Parts, requests: &[Asked], now: &KnownAtSending) -> bool {
        let (wire, scripts) = (&self.parts.wire, self.parts.scripts);
        let encode =
            |commands: &mut Encoder<'_>| write::encode(commands, scripts, parts, requests, now.attached.as_ref());
        wire.write(number, encode, &publish::behind(requests))
    }

    /// Asks for the instance's clock; returns how long the answer took. Without requests it is also what
    /// notices that an instance fell silent.
    pub(super) async fn probe(&self) -> Option<Duration> {
        let sent = self.parts.clock.now();
        let ask = self.parts.wire.ask(&redis::cmd("TIME")).read::<(u64, u64)>();
        match timeout(self.parts.deadline, ask).await {
            Ok(Ok((seconds, micros))) => {
                let received = self.parts.clock.now();
                self.note_sign_of_life();
                self.observe_clock(sent, Some(seconds.saturating_mul(1_000_000).saturating_add(micros)));
                let round_trip = received.saturating_since(sent);
                self.send_queue.lock().note_round_trip(round_trip);
                Some(round_trip)
            }
            Ok(Err(_)) => None, // its task notices when the connection was closed
            Err(_) => {
                self.note_silence(sent);
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

    /// What was sent then was not answered in time.
    fn note_silence(&self, sent: Instant) {
        if self.send_queue.lock().note_unanswered(sent, self.now(), self.deadline()) {
            self.is_silent.store(true, Ordering::Relaxed);
            self.parts.broken.notify_one();
        }
    }

    fn note_sign_of_life(&self) {
        self.send_queue.lock().note_answer();
        self.is_silent.store(false, Ordering::Relaxed);
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
            _ => {}
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
        f.debug_struct("InstanceConnection").field("is_silent", &self.is_silent).finish_non_exhaustive()
    }
}

impl Drop for InstanceConnection {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Looks at the deadlines, for as long as there are any: one timer for all requests of the connection.
async fn watch(connection: Weak<InstanceConnection>, begun: Arc<Notify>) {
    while let Some(pause) = connection.upgrade().map(|connection| connection.end_late()) {
        match pause {
            Some(pause) => drop(timeout(pause, begun.notified()).await),
            None => begun.notified().await,
        }
    }
}

/// The cause where a connection ended before it was heard what became of a request.
fn given_up() -> Cause {
    Cause::Disconnected("the connection was closed".to_owned())
}
