//! One connection: sends requests, each under its deadline.

use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::admission::handshake::AdmissionHandshake;
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::denied::Denied;
use super::encode::Encoder;
use super::options::ConnectOptions;
use super::scripts;
use super::send_queue::{Asked, KnownAtSending, Late, SendQueue, Write, closed};
use super::wire::{TakesAnswers, Wire, WireTask};
use super::write::{self, Answers, Parts, may_be_plain};
use crate::instance::{PublishFuture, ReplyTo, Request, Wake};
use crate::protocol::{Cause, Instant, Reply};

/// The shortest wait for a deadline: timers count milliseconds.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The most requests to one instance that may wait for their turn; more are not sent.
pub(super) const MAX_WAITING: usize = 16 * 1024;

/// How often an idle instance's clock is read: often enough that drift between two samples
/// hides no step worth a lock.
pub(super) fn probe_interval(max_ttl: Duration) -> Duration {
    (max_ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// A connection and what is known of how it does.
pub(crate) struct InstanceConnection {
    pub(super) options: Arc<ConnectOptions>,
    pub(super) wire: Wire,
    #[expect(dead_code, reason = "it is kept for its end")]
    wire_task: WireTask,
    /// Whether changes of keys are pushed to the connection.
    pub(super) tracking: bool,
    /// Whether messages of other clients come over it; `None` if the client wants none.
    pub(super) hears: Option<bool>,
    /// `None` if admission is turned off.
    pub(super) admission: Option<SharedAdmission>,
    /// `None` until it is known.
    denied: Mutex<Option<Denied>>,
    runtime: Handle,
    send_queue: Mutex<SendQueue>,
    /// Whether it has not answered for so long that it is only probed.
    is_silent: AtomicBool,
    loading_scripts: AtomicBool,
    /// Notifies the task that looks at the deadlines that it is to look sooner.
    begun: Arc<Notify>,
    watch: AbortHandle,
}

impl InstanceConnection {
    /// Must be called within a runtime.
    pub(super) fn new(
        options: Arc<ConnectOptions>,
        (wire, wire_task): (Wire, WireTask),
        tracking: bool,
        hears: Option<bool>,
        (admission, denied): (Option<SharedAdmission>, Option<Denied>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|connection: &Weak<Self>| {
            wire.leave_writes_to(Weak::clone(connection) as Weak<dyn TakesAnswers>);
            let begun = Arc::<Notify>::default();
            let watch = tokio::spawn(watch(Weak::clone(connection), Arc::clone(&begun))).abort_handle();
            Self {
                options,
                wire,
                wire_task,
                tracking,
                hears,
                admission,
                denied: Mutex::new(denied),
                runtime: Handle::current(),
                send_queue: Mutex::default(),
                is_silent: AtomicBool::new(false),
                loading_scripts: AtomicBool::new(false),
                begun,
                watch,
            }
        })
    }

    /// Why this client gets no vote over it, if that is for its settings.
    pub(super) fn refusal(&self) -> Option<Cause> {
        self.admission.as_ref()?.refusal()
    }

    /// What its user may not do; `None` if that is not known.
    pub(super) fn denied(&self) -> Option<Denied> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds out what its user may not do.
    ///
    /// # Errors
    /// Why that is not known now. What was known before stays.
    pub(super) async fn ask_rights(&self) -> Result<(), Cause> {
        let asked = timeout(self.deadline(), self.wire.ask_all(&scripts::rights()).replies()).await;
        let answers = asked.map_err(|_| Cause::TimedOut)?.map_err(|error| failed(&error))?;
        let denied = answers.last().map_or(Err(Cause::TimedOut), Denied::of)?;
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(denied);
        Ok(())
    }

    /// Resolves when the connection should be given up, to the reason.
    pub(super) async fn given_up(&self) -> Cause {
        self.wire.broken().notified().await;
        match self.wire.too_much().get() {
            Some(too_much) => Cause::NotConnected(too_much.to_string()),
            None if self.is_silent() => Cause::Silent,
            // Until it is connected again this is what its users must know.
            None if self.options.health.trouble.is(&Cause::ReadOnly) => Cause::ReadOnly,
            None => closed(),
        }
    }

    /// Nothing is sent any more. Requests that wait to be sent are `NotSent`; the results of those on their way are not known.
    pub(super) fn close(&self) {
        let (waiting, in_flight) = self.queue().close();
        waiting.into_iter().for_each(|asked| self.answer(asked, Reply::NotSent(closed())));
        for asked in in_flight.into_iter().flat_map(|write| write.requests) {
            self.answer(asked, Reply::Unknown(given_up()));
        }
    }

    /// Nothing is sent any more, and the next connection continues.
    pub(super) fn give_up(&self) {
        self.close();
        self.wire.broken().notify_one();
    }

    /// How many requests wait to be sent, or for their replies.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.queue().outstanding()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.options.client.instance_timeout
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Queues requests that were made at this time: on their way when this returns, or behind what is.
    pub(super) fn call(&self, requests: impl Iterator<Item = (Request, ReplyTo)>, made_at: Instant) {
        let refused = if self.is_silent() {
            requests.map(|(_, reply_to)| (reply_to, Cause::Silent)).collect()
        } else {
            self.put(requests, made_at)
        };
        for (reply_to, cause) in refused {
            reply_to.answer(self.counted(Reply::NotSent(cause)));
        }
    }

    /// Returns the refused ones.
    fn put(&self, requests: impl Iterator<Item = (Request, ReplyTo)>, made_at: Instant) -> Vec<(ReplyTo, Cause)> {
        let mut refused = Vec::new();
        let mut state = self.queue();
        for (request, reply_to) in requests {
            let asked = Asked { request, reply_to: Some(reply_to), since: made_at };
            if let Err((asked, cause)) = state.put(asked, MAX_WAITING) {
                refused.extend(asked.reply_to.map(|reply_to| (reply_to, cause)));
            }
        }
        let unsent = self.send_what_may_be_sent(&mut state, made_at);
        let needs_watch = state.needs_watch(made_at, self.deadline());
        drop(state);
        if needs_watch {
            self.begun.notify_one();
        }
        self.end_unsent(unsent);
        refused
    }

    /// Sends what waits, as far as it may. Gives what the connection did not take.
    fn send_what_may_be_sent(&self, state: &mut SendQueue, now: Instant) -> Vec<Asked> {
        let mut unsent = Vec::new();
        while state.may_send(now) {
            let now = self.what_is_known();
            let is_plain = |request: &Request| may_be_plain(request, now.attached.as_ref(), now.wall_us);
            let (number, requests, parts) = state.next_write(is_plain);
            if self.send(number, parts, &requests, &now) {
                self.options.health.counts.sent(requests.len());
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
            self.wire.broken().notify_one();
        }
        unsent.into_iter().for_each(|asked| self.answer(asked, Reply::Unknown(given_up())));
    }

    /// Ends the requests that have no answer in time, and sends what they kept waiting. Returns how long there is nothing to do;
    /// `None` if nothing is under way.
    fn end_late(&self) -> Option<Duration> {
        let (now, deadline) = (self.now(), self.deadline());
        let mut state = self.queue();
        let Late { requests, first_write, next } = state.take_late(now, deadline);
        let unsent = self.send_what_may_be_sent(&mut state, now);
        drop(state);
        first_write.into_iter().for_each(|sent| self.note_silence(sent));
        requests.into_iter().for_each(|asked| self.answer(asked, Reply::Unknown(Cause::TimedOut))); // P5
        self.end_unsent(unsent);
        next.map(|next| next.saturating_since(now).max(LEAST_WAIT))
    }

    /// The reply to a request, unless it has had one.
    fn answer(&self, asked: Asked, reply: Reply) {
        if let Some(reply_to) = asked.reply_to {
            reply_to.answer(self.counted(reply));
        }
    }

    /// Sends a message to another client; returns within the deadline whether a client received it. It does not wait in the send queue:
    /// nothing depends on its order.
    pub(super) fn publish(&self, wake: &Wake) -> PublishFuture {
        if self.is_silent() {
            return Box::pin(ready(false));
        }
        let (answer, deadline) = (self.wire.ask(&publish(wake)), self.deadline());
        // A right that is missing only costs time.
        Box::pin(async move { matches!(timeout(deadline, answer).await, Ok(Ok(Value::Int(1..)))) })
    }

    /// Counts how a request has ended.
    fn counted(&self, reply: Reply) -> Reply {
        self.options.health.counts.replied(&reply);
        reply
    }

    /// What is known of the instance as something is sent.
    fn what_is_known(&self) -> KnownAtSending {
        let at = self.now();
        let (attached, wall_us) = self.admission.as_ref().map(|admission| admission.state().known_at(at)).unzip();
        KnownAtSending { at, attached, wall_us: wall_us.unwrap_or(0) }
    }

    /// Sends one write; whether the connection takes it.
    fn send(&self, number: u64, parts: Parts, requests: &[Asked], now: &KnownAtSending) -> bool {
        let encode = |commands: &mut Encoder<'_>| write::encode(commands, parts, requests, now.attached.as_ref());
        // P26: the next waiter is woken behind the release, in the same write.
        let behind: Vec<Cmd> = requests.iter().flat_map(|asked| asked.request.wakes()).map(publish).collect();
        self.wire.write(number, encode, &behind)
    }

    /// Reads the instance's clock; returns how long the answer took. Without requests this also
    /// notices that an instance fell silent.
    pub(super) async fn probe(&self) -> Option<Duration> {
        let sent = self.now();
        let ask = self.wire.ask(&redis::cmd("TIME")).read::<(u64, u64)>();
        match timeout(self.deadline(), ask).await {
            Ok(Ok((seconds, micros))) => {
                let received = self.now();
                self.queue().note_answer();
                self.is_silent.store(false, Ordering::Relaxed);
                if let Some(admission) = &self.admission {
                    let us = seconds.saturating_mul(1_000_000).saturating_add(micros);
                    admission.observe(sent, received, us); // P17
                }
                let round_trip = received.saturating_since(sent);
                self.queue().note_round_trip(round_trip);
                Some(round_trip)
            }
            Ok(Err(_)) => None, // its task notices when the connection was closed
            Err(_) => {
                self.note_silence(sent);
                None
            }
        }
    }

    /// Admission over this connection, once it has been admitted.
    pub(super) fn handshake(&self) -> AdmissionHandshake<'_> {
        AdmissionHandshake { wire: &self.wire, options: &self.options, tracking: self.tracking }
    }

    /// What was sent then was not answered in time.
    fn note_silence(&self, sent: Instant) {
        if self.queue().note_unanswered(sent, self.now(), self.deadline()) {
            self.is_silent.store(true, Ordering::Relaxed);
            self.wire.broken().notify_one();
        }
    }

    /// The send queue, locked.
    fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.send_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        self.options.now()
    }

    /// Gives each request of a write its reply.
    fn take_in(self: &Arc<Self>, write: Write, answer: &RedisResult<Value>) {
        let Write { at: sent, attached, parts, requests: asked, .. } = write;
        let received = self.now();
        let Answers { mut replies, has_failed } = write::classify(parts, &asked, attached.as_ref(), answer);
        match answer {
            _ if asked.len() < 2 => {}
            Ok(_) if has_failed => self.queue().batch_failed(),
            Ok(_) => self.queue().batch_answered(),
            Err(_) => {}
        }
        for (asked, raw) in asked.iter().zip(&replies) {
            self.note(&raw.reply, asked.request.asks_for_a_vote(), sent);
        }
        if let (Some(admission), Some(attached)) = (&self.admission, &attached) {
            admission.judge(&asked, &mut replies, &attached.record, (sent, received));
        }
        for (asked, raw) in asked.into_iter().zip(replies) {
            self.answer(asked, raw.reply);
        }
    }

    /// Takes in what a reply shows about the connection and the instance.
    fn note(self: &Arc<Self>, reply: &Reply, may_vote: bool, sent: Instant) {
        self.options.health.trouble.note(self.options.address.shown(), reply, may_vote, sent);
        match reply {
            // A master that became a replica must be admitted anew.
            Reply::Unknown(Cause::Disconnected(_) | Cause::ReadOnly) => self.wire.broken().notify_one(),
            Reply::NotSent(Cause::ScriptMissing) => self.load_scripts(),
            // Rights were taken away: the next acquire asks which first.
            Reply::Unknown(Cause::NoPermission(_)) => {
                *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = None
            }
            _ => {}
        }
    }

    /// Loads the scripts again, once for however many requests miss them. The commands are queued
    /// at once, so that a round that is repeated finds the scripts.
    fn load_scripts(self: &Arc<Self>) {
        if self.loading_scripts.swap(true, Ordering::AcqRel) {
            return;
        }
        let load = self.wire.ask_all(scripts::load()).without_error();
        let connection = Arc::clone(self);
        let sent = self.now();
        self.runtime.spawn(async move {
            let loaded = timeout(connection.deadline(), load).await;
            connection.loading_scripts.store(false, Ordering::Release); // the next request that misses one tries again
            if let Ok(Err(error)) = loaded {
                let why = Reply::Unknown(failed(&error)); // a right that is missing, say
                connection.options.health.trouble.note(connection.options.address.shown(), &why, false, sent);
            }
        });
    }
}

impl TakesAnswers for InstanceConnection {
    fn answered(self: Arc<Self>, number: u64, answer: RedisResult<Value>) {
        let Some(write) = self.queue().take_answered(number, self.now()) else { return };
        self.take_in(write, &answer);
    }

    fn gathers(&self) -> bool {
        self.queue().gathers()
    }

    fn send_gathered(&self) {
        let mut state = self.queue();
        state.end_gathering();
        let unsent = self.send_what_may_be_sent(&mut state, self.now());
        drop(state);
        self.end_unsent(unsent);
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

/// The command for a message.
fn publish(wake: &Wake) -> Cmd {
    let Wake { to, message } = wake;
    redis::cmd("PUBLISH").arg(to.channel()).arg(message).to_owned()
}

/// The cause where a connection ended before the result of a request was known.
fn given_up() -> Cause {
    Cause::Disconnected("the connection was closed".to_owned())
}
