//! One Redis or Valkey master: a connection that is kept up by one task, and what is sent over it.

mod address;
mod admission;
mod byte_stream;
pub(crate) mod classify;
mod connect;
mod connection;
mod connection_log;
mod credentials;
mod deadline;
mod decode;
#[cfg(feature = "testing")]
mod dialed;
pub(crate) mod encode;
mod examine;
mod excess;
mod flushes;
mod forget_tokens;
mod health;
mod key_check;
mod login;
mod lookup;
mod options;
mod plain;
mod publish;
mod pushes;
mod read;
mod reply_bound;
mod reply_counts;
mod reply_limit;
pub(crate) mod scripts;
mod send_queue;
mod sentinel;
mod stream;
mod supervisor;
mod tls;
mod trouble;
mod votes;
mod wire;
pub(crate) mod write;

#[cfg(all(test, feature = "config"))]
pub(crate) use address::USER_ALONE;
pub(crate) use address::{Address, InstanceSettings};
#[cfg(feature = "config")]
pub(crate) use address::{Fallback, is_readable};
pub use credentials::Credentials;
pub(crate) use credentials::CredentialsSource;
#[cfg(feature = "testing")]
pub(crate) use dialed::Dialer;
pub(crate) use options::ClientOptions;
pub use tls::Tls;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::instance::{
    AreFreeFuture, Claim, ExamineFuture, FoundRecord, KeyCheckFuture, KeyState, LookFuture, PublishFuture, ReadFuture,
    RecordFuture, ReplyTo, Request, ScanFuture, Trace, Wake,
};
use crate::protocol::{Cause, Instant, RecordMeaning, Reply};
use crate::resource::Resource;
use admission::operator;
use admission::shared::{SharedAdmission, VoteObstacle};
use connection::InstanceConnection;
use health::InstanceHealth;
use options::ConnectOptions;
use supervisor::ConnectionState;

/// One instance.
///
/// The contract, which the layers above rely on:
///
/// - *Queued when `call` returns.* Calls reach the instance in the order in which `call` was
///   called, so a release that is called after an acquire is carried out after it (P6).
/// - *One reply.* Each request is answered once, whoever waits for that: by the task of the connection, or before `call` returns.
/// - *No waiting for a connection.* Without one the call is `NotSent` at once; likewise when the
///   instance is known to be silent or has too many calls outstanding.
/// - *A deadline.* The reply comes within the instance timeout, `Unknown` if need be. What an instance answers later is dropped.
/// - *`NotSent` is certain*: the request had and will have no effect.
/// - *From any thread*: `call` needs no runtime and does not block, so that it can be called from a
///   destructor.
pub(crate) struct RedisInstance {
    options: ConnectOptions,
    state: watch::Receiver<ConnectionState>,
    /// Those of all instances of the client, this one's too.
    states: Arc<[watch::Receiver<ConnectionState>]>,
    health: Arc<InstanceHealth>,
    runtime: Handle,
    task: JoinHandle<()>,
}

impl RedisInstance {
    /// Begins to connect to all instances of a client. Must be called within a tokio runtime.
    pub(crate) fn start_all(addresses: Vec<Address>, options: ClientOptions) -> Vec<Self> {
        let mut instances: Vec<_> = options.for_each(addresses).map(Self::start).collect();
        let states: Arc<[_]> = instances.iter().map(|instance| instance.state.clone()).collect();
        instances.iter_mut().for_each(|instance| instance.states = Arc::clone(&states));
        instances
    }

    fn start(options: ConnectOptions) -> Self {
        let (sender, state) = watch::channel(ConnectionState::Down(Cause::Connecting));
        let health = Arc::<InstanceHealth>::default();
        let task = tokio::spawn(supervisor::supervise(options.clone(), sender, Arc::clone(&health)));
        Self { options, state, states: Arc::default(), health, runtime: Handle::current(), task }
    }

    /// The connection, if there is one.
    fn connection(&self) -> Result<Arc<InstanceConnection>, Cause> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => Ok(Arc::clone(connection)),
            ConnectionState::Down(cause) => Err(cause.clone()),
        }
    }

    fn not_sent(&self, reply_to: ReplyTo, cause: Cause) {
        let reply = Reply::NotSent(cause);
        self.health.counts.replied(&reply, 1);
        reply_to.answer(reply);
    }

    /// A request, unless it asks for a vote that cannot be had.
    fn unless_in_vain(
        &self,
        connection: &InstanceConnection,
        (request, reply_to): (Request, ReplyTo),
    ) -> Option<(Request, ReplyTo)> {
        let obstacle = connection.admission().and_then(|admission| admission.vote_obstacle(&request));
        match obstacle {
            None => return Some((request, reply_to)),
            Some(VoteObstacle::NotYet) => self.answer_when_recorded(connection, reply_to),
            Some(VoteObstacle::Refused(reason)) => self.not_sent(reply_to, Cause::NotUsable(reason)),
            Some(VoteObstacle::Unrecorded) => self.not_sent(reply_to, Cause::Unrecorded),
        }
        None
    }

    /// Has the record written, and answers once there is one to go by: then the request is worth repeating, and not before the
    /// other instances are as far, or a bare quorum would have the first lock. It is not sent from here, as its own release
    /// may have been called meanwhile, and must come behind it (P6).
    fn answer_when_recorded(&self, connection: &InstanceConnection, reply_to: ReplyTo) {
        connection.admission().into_iter().for_each(SharedAdmission::request_record);
        let (states, health, limit) = (self.states.to_vec(), Arc::clone(&self.health), self.options.instance_timeout);
        let records = Arc::clone(&self.options.records);
        let is_settled = |state: &watch::Receiver<ConnectionState>| match &*state.borrow() {
            ConnectionState::Up(connection) => connection.admission().is_none_or(|it| !it.is_being_settled()),
            ConnectionState::Down(_) => true,
        };
        self.runtime.spawn(async move {
            let _ = timeout(limit, records.settled(|| states.iter().all(is_settled))).await;
            let reply = Reply::NotSent(Cause::Unrecorded);
            health.counts.replied(&reply, 1);
            reply_to.answer(reply);
        });
    }
}

/// What is asked of it.
impl RedisInstance {
    /// The address for people, without credentials.
    pub(crate) fn address(&self) -> &str {
        self.options.address.shown()
    }

    /// Queues a request.
    pub(crate) fn call(&self, request: Request, reply_to: ReplyTo) {
        if matches!(request, Request::Acquire(_)) {
            self.options.records.want_locks();
        }
        match self.connection() {
            Err(cause) => self.not_sent(reply_to, cause),
            Ok(connection) => {
                let sent = self.unless_in_vain(&connection, (request, reply_to));
                connection.call(sent.into_iter());
            }
        }
    }

    /// Queues several requests, which share writes.
    pub(crate) fn call_all(&self, requests: Vec<(Request, ReplyTo)>) {
        match self.connection() {
            Err(cause) => requests.into_iter().for_each(|(_, reply_to)| self.not_sent(reply_to, cause.clone())),
            Ok(connection) => {
                let sent = requests.into_iter().filter_map(|request| self.unless_in_vain(&connection, request));
                let sent: Vec<_> = sent.collect(); // what is not sent is answered before the mutex of the queue is taken
                connection.call(sent.into_iter());
            }
        }
    }

    /// Checks the keys of leases, and asks for one push at the next change of them.
    pub(crate) fn check_keys(&self, claims: Vec<Arc<Claim>>) -> KeyCheckFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => key_check::check_keys(connection, claims),
            ConnectionState::Down(_) => Box::pin(ready(vec![KeyState::Unknown; claims.len()])),
        }
    }

    /// Reads what is stored for a lock of one resource; changes nothing.
    pub(crate) fn read(&self, resource: Resource) -> ReadFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => read::read(connection, &resource),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Asks which of several locks are free; changes nothing.
    pub(crate) fn are_free(&self, resources: &[Resource]) -> AreFreeFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => read::are_free(connection, resources),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Reads the value of a lock that others hold, and asks for one push at its next change.
    pub(crate) fn look(&self, resource: &Resource) -> LookFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => key_check::look(connection, resource),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Asks the server about itself; changes nothing.
    pub(crate) fn examine(&self) -> ExamineFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => examine::examine(connection, Arc::clone(&self.options.clock)),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Looks for keys of texts that match, at about so many keys; changes nothing.
    pub(crate) fn scan(&self, pattern: Vec<u8>, most: usize) -> ScanFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => examine::scan(connection, pattern, most),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Reads its admission record; changes nothing.
    pub(crate) fn read_record(&self) -> RecordFuture<FoundRecord> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::read(connection),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Writes its first record, so that it votes at once, if it shows no trace of use; or only looks (P15).
    pub(crate) fn open_record(&self, writes: bool) -> RecordFuture<Trace> {
        let channel = self.options.listener.as_ref().map(|listener| listener.client.channel()).unwrap_or_default();
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::open(connection, channel, writes),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Gives a record that was found, and is for its process, this client's time (P29); gives whether it was still there.
    pub(crate) fn set_record(&self, found: FoundRecord) -> RecordFuture<bool> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::set(connection, found),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    /// Whether messages to this client come over it (P25).
    pub(crate) fn hears(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Up(connection) if connection.hears())
    }

    /// Queues a message for another client.
    pub(crate) fn publish(&self, wake: Wake) -> PublishFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => connection.publish(&wake),
            ConnectionState::Down(_) => Box::pin(ready(false)),
        }
    }

    /// What its wall clock shows at least at `now` of the own clock, in microseconds since the Unix epoch;
    /// `None` if that is not known.
    pub(crate) fn wall_us(&self, now: Instant) -> Option<u64> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => Some(connection.admission()?.wall_us(now)),
            ConnectionState::Down(_) => None,
        }
    }

    /// Why requests would not be sent now; `None` when connected.
    pub(crate) fn obstacle(&self) -> Option<Cause> {
        match &*self.state.borrow() {
            ConnectionState::Up(_) => None,
            ConnectionState::Down(cause) => Some(cause.clone()),
        }
    }

    /// How long a question to it took lately, as far as that is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.health.lock().round_trip
    }

    /// Why it is connected and gives this client no vote, if that is for the client's settings.
    pub(crate) fn refusal(&self) -> Option<Cause> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => connection.refusal(),
            ConnectionState::Down(_) => None,
        }
    }

    /// The client wants locks: from now on it writes the records of its instances where that is to be done.
    pub(crate) fn want_locks(&self) {
        self.options.records.want_locks();
    }

    /// Ends when the instance is connected and does not refuse this client for its settings, at once if it is.
    pub(crate) fn wait_accepted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut state = self.state.clone();
        let is_accepted = |state: &ConnectionState| matches!(state, ConnectionState::Up(connection) if connection.refusal().is_none());
        Box::pin(async move {
            if state.wait_for(is_accepted).await.is_err() {
                std::future::pending().await // its task has ended, with the client or its runtime
            }
        })
    }

    /// Ends when the instance is connected, at once if it is.
    pub(crate) fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut state = self.state.clone();
        Box::pin(async move {
            if state.wait_for(|state| matches!(state, ConnectionState::Up(_))).await.is_err() {
                std::future::pending().await // its task has ended, with the client or its runtime
            }
        })
    }

    /// How it does, without asking it.
    pub(crate) fn status(&self) -> InstanceStatus {
        let known = self.health.lock().clone();
        let mut status = InstanceStatus {
            address: self.address().to_owned(),
            round_trip: known.round_trip,
            trouble: self.health.trouble.present(self.options.clock.now()),
            last_error: known.last_error,
            counts: self.health.counts.snapshot(),
            ..InstanceStatus::default()
        };
        if let Some(info) = known.info {
            status.is_master = Some(info.is_master);
            status.version = Some(info.version);
            status.run_id = Some(info.run_id);
            status.evicts = info.evicts;
        }
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => {
                status.connected = true;
                status.admission = AdmissionStatus::Off;
                if let Some(admission) = connection.admission() {
                    let state = admission.snapshot();
                    let left = state.quarantine_left(self.options.clock.now());
                    status.admission = match state.meaning() {
                        RecordMeaning::Refused(_) => AdmissionStatus::Refused,
                        RecordMeaning::Unrecorded => AdmissionStatus::Unrecorded,
                        RecordMeaning::Recorded if left.is_zero() => AdmissionStatus::Admitted,
                        RecordMeaning::Recorded => AdmissionStatus::Quarantine(left),
                    };
                    match state.meaning() {
                        RecordMeaning::Recorded => {
                            status.max_ttl = Some(Duration::from_millis(state.record().longest_ttl_ms));
                            status.flushed_ago = state.flushed_ago(self.options.clock.now());
                        }
                        RecordMeaning::Refused(reason) => status.refusal = Some(reason.to_string()),
                        RecordMeaning::Unrecorded => {}
                    }
                    status.clock_steps = state.watch().steps();
                }
            }
            ConnectionState::Down(Cause::Connecting) => {} // nothing has gone wrong yet
            ConnectionState::Down(cause) => status.last_error = Some(cause.to_string()),
        }
        status
    }

    /// How many requests over its present connection wait to be sent or for their replies.
    #[cfg(feature = "testing")]
    pub(crate) fn outstanding(&self) -> usize {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => connection.outstanding(),
            ConnectionState::Down(_) => 0,
        }
    }
}

impl fmt::Debug for RedisInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisInstance").field("address", &self.address()).field("state", &*self.state.borrow()).finish()
    }
}

impl Drop for RedisInstance {
    fn drop(&mut self) {
        self.task.abort();
    }
}
