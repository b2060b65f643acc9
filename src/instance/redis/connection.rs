//! One connection that serves: what it knows of the instance, and what the answers to its requests count for.

use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::admission::handshake::AdmissionHandshake;
use super::admission::shared::SharedAdmission;
use super::classify::failed;
use super::conn::{Conn, ConnTask, Owner};
use super::denied::Denied;
use super::link::{Asked, Batch, Known, closed};
use super::options::ConnectOptions;
use super::scripts;
use crate::instance::{PublishFuture, ReplyTo, Request, Wake};
use crate::protocol::{Cause, Instant, Reply};

/// How often an idle instance's clock is read: often enough that drift between two samples
/// hides no step worth a lock.
pub(super) fn probe_interval(max_ttl: Duration) -> Duration {
    (max_ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// A connection and what is known of how it does.
pub(crate) struct InstanceConnection {
    pub(super) options: Arc<ConnectOptions>,
    pub(super) conn: Conn,
    #[expect(dead_code, reason = "it is kept for its end")]
    task: ConnTask,
    /// Whether changes of keys are pushed to the connection.
    pub(super) tracking: bool,
    /// Whether messages of other clients come over it; `None` if the client wants none.
    pub(super) hears: Option<bool>,
    /// `None` if admission is turned off.
    pub(super) admission: Option<SharedAdmission>,
    /// `None` until it is known.
    denied: Mutex<Option<Denied>>,
    runtime: Handle,
    loading_scripts: AtomicBool,
}

impl InstanceConnection {
    /// Must be called within a runtime.
    pub(super) fn new(
        options: Arc<ConnectOptions>,
        (conn, task): (Conn, ConnTask),
        tracking: bool,
        hears: Option<bool>,
        (admission, denied): (Option<SharedAdmission>, Option<Denied>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|connection: &Weak<Self>| {
            conn.serve(Weak::clone(connection) as Weak<dyn Owner>);
            let (denied, runtime, loading_scripts) = (Mutex::new(denied), Handle::current(), AtomicBool::new(false));
            Self { options, conn, task, tracking, hears, admission, denied, runtime, loading_scripts }
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
        let asked = timeout(self.deadline(), self.conn.ask_all(&scripts::rights()).replies()).await;
        let answers = asked.map_err(|_| Cause::TimedOut)?.map_err(|error| failed(&error))?;
        let denied = answers.last().map_or(Err(Cause::TimedOut), Denied::of)?;
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(denied);
        Ok(())
    }

    /// Resolves when the connection should be given up, to the reason.
    pub(super) async fn given_up(&self) -> Cause {
        self.conn.over().await;
        match self.options.standing.lock().trouble {
            _ if self.is_silent() => Cause::Silent,
            // Until it is connected again this is what its users must know.
            Some((Cause::ReadOnly, _)) => Cause::ReadOnly,
            _ => closed(),
        }
    }

    /// How many requests wait to be sent, or for their replies.
    #[cfg(feature = "testing")]
    pub(super) fn outstanding(&self) -> usize {
        self.conn.outstanding()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.options.client.instance_timeout
    }

    pub(super) fn is_silent(&self) -> bool {
        self.conn.is_silent()
    }

    /// Queues requests that were made at this time: on their way when this returns, or behind what is.
    pub(super) fn call(&self, requests: impl Iterator<Item = (Request, ReplyTo)>, made_at: Instant) {
        let asked = |(request, reply_to)| Asked { request, reply_to: Some(reply_to), since: made_at };
        for (asked, reply) in self.conn.put(requests.map(asked), made_at) {
            self.answer(asked, reply);
        }
    }

    /// The reply to a request, unless it has had one.
    fn answer(&self, asked: Asked, reply: Reply) {
        if let Some(reply_to) = asked.reply_to {
            self.options.standing.replied(&reply);
            reply_to.answer(reply);
        }
    }

    /// Sends a message to another client; returns within the deadline whether a client received it. It does not wait in the queue:
    /// nothing depends on its order.
    pub(super) fn publish(&self, wake: &Wake) -> PublishFuture {
        if self.is_silent() {
            return Box::pin(ready(false));
        }
        let Wake { to, message } = wake;
        let command = Cmd::new().arg("PUBLISH").arg(to.channel()).arg(message).to_owned();
        let (answer, deadline) = (self.conn.ask(&command), self.deadline());
        // A right that is missing only costs time.
        Box::pin(async move { matches!(timeout(deadline, answer).await, Ok(Ok(Value::Int(1..)))) })
    }

    /// Reads the instance's clock; returns how long the answer took. Without requests this also
    /// notices that an instance fell silent.
    pub(super) async fn probe(&self) -> Option<Duration> {
        let sent = self.now();
        let ask = self.conn.ask(&redis::cmd("TIME")).read::<(u64, u64)>();
        match timeout(self.deadline(), ask).await {
            Ok(Ok((seconds, micros))) => {
                let received = self.now();
                let round_trip = received.saturating_since(sent);
                self.conn.note_answer(round_trip);
                if let Some(admission) = &self.admission {
                    let us = seconds.saturating_mul(1_000_000).saturating_add(micros);
                    admission.observe(sent, received, us); // P17
                }
                Some(round_trip)
            }
            Ok(Err(_)) => None, // its task notices when the connection was closed
            Err(_) => {
                self.conn.note_silence(sent);
                None
            }
        }
    }

    /// Admission over this connection, once it has been admitted.
    pub(super) fn handshake(&self) -> AdmissionHandshake<'_> {
        AdmissionHandshake { conn: &self.conn, options: &self.options, tracking: self.tracking }
    }

    fn now(&self) -> Instant {
        self.options.now()
    }

    /// Takes in what a reply shows about the connection and the instance.
    fn note(self: &Arc<Self>, reply: &Reply, may_vote: bool, sent: Instant) {
        self.options.standing.note(self.options.address.shown(), reply, may_vote, sent);
        match reply {
            // A master that became a replica must be admitted anew.
            Reply::Unknown(Cause::ReadOnly) => self.conn.give_up(),
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
        let load = self.conn.ask_all(scripts::load()).without_error();
        let connection = Arc::clone(self);
        let sent = self.now();
        self.runtime.spawn(async move {
            let loaded = timeout(connection.deadline(), load).await;
            connection.loading_scripts.store(false, Ordering::Release); // the next request that misses one tries again
            if let Ok(Err(error)) = loaded {
                let why = Reply::Unknown(failed(&error)); // a right that is missing, say
                connection.options.standing.note(connection.options.address.shown(), &why, false, sent);
            }
        });
    }
}

impl Owner for InstanceConnection {
    fn known(&self, at: Instant) -> Known {
        let (attached, wall_us) = self.admission.as_ref().map(|admission| admission.state().known_at(at)).unzip();
        Known { at, attached, wall_us: wall_us.unwrap_or(0) }
    }

    fn sent(&self, requests: usize) {
        self.options.standing.sent(requests);
    }

    /// Gives each request of a batch its reply.
    fn answered(self: Arc<Self>, batch: Batch, received: Instant) {
        let Batch { at: sent, attached, requests: asked, mut replies, .. } = batch;
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

    fn ended(&self, asked: Asked, reply: Reply) {
        self.answer(asked, reply);
    }
}

impl fmt::Debug for InstanceConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceConnection").field("is_silent", &self.is_silent()).finish_non_exhaustive()
    }
}
