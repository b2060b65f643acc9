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
#[cfg(feature = "testing")]
mod dialed;
mod examine;
mod excess;
mod extend_many;
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
mod sent_command;
mod sentinel;
mod stream;
mod supervisor;
mod timer_wakeups;
mod tls;
mod trouble;
mod votes;
mod wire;
pub(crate) mod write;

pub(crate) use address::{Address, InstanceSettings};
#[cfg(feature = "config")]
pub(crate) use address::{USER_ALONE, is_readable, with_scheme};
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

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::instance::{
    Claim, ExamineFuture, ExtendManyFuture, FoundRecord, Instance, KeyCheckFuture, KeyState, PublishFuture, ReadFuture,
    RecordFuture, ReplyFuture, Request, ScanFuture, Trace, Wake,
};
use crate::protocol::{Cause, Instant, RecordMeaning, Reply};
use crate::resource::Resource;
use admission::operator;
use admission::shared::{SharedAdmission, VoteObstacle};
use connection::InstanceConnection;
use health::InstanceHealth;
use options::ConnectOptions;
use supervisor::ConnectionState;

/// An instance behind a Redis or Valkey server.
pub(crate) struct RedisInstance {
    options: ConnectOptions,
    state: watch::Receiver<ConnectionState>,
    /// Those of all instances of the client, this one's too.
    states: Arc<[watch::Receiver<ConnectionState>]>,
    health: Arc<InstanceHealth>,
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
        Self { options, state, states: Arc::default(), health, task }
    }

    fn none_extended(&self, cause: &Cause, leases: usize) -> ExtendManyFuture {
        let reply = self.not_sent(cause, leases);
        Box::pin(ready(vec![reply; leases]))
    }

    fn not_sent(&self, cause: &Cause, requests: usize) -> Reply {
        let reply = Reply::NotSent(cause.clone());
        self.health.counts.replied(&reply, requests);
        reply
    }

    /// Sends a request, unless it asks for a vote that cannot be had.
    fn call_over(&self, connection: &Arc<InstanceConnection>, request: Request) -> ReplyFuture {
        let obstacle = connection.admission().and_then(|admission| admission.vote_obstacle(&request));
        let cause = match obstacle {
            None => return connection.call(request),
            Some(VoteObstacle::NotYet) => return self.when_recorded(connection),
            Some(VoteObstacle::Refused(reason)) => Cause::NotUsable(reason),
            Some(VoteObstacle::Unrecorded) => Cause::Unrecorded,
        };
        Box::pin(ready(self.not_sent(&cause, 1)))
    }

    /// Has the record written, and ends once there is one to go by: then the request is worth repeating, and not before the
    /// other instances are as far, or a bare quorum would have the first lock. It is not sent from here, as its own release
    /// may have been called meanwhile, and must come behind it (P6).
    fn when_recorded(&self, connection: &InstanceConnection) -> ReplyFuture {
        connection.admission().into_iter().for_each(SharedAdmission::request_record);
        let (states, health, limit) = (self.states.to_vec(), Arc::clone(&self.health), self.options.instance_timeout);
        let records = Arc::clone(&self.options.records);
        let is_settled = |state: &watch::Receiver<ConnectionState>| match &*state.borrow() {
            ConnectionState::Up(connection) => connection.admission().is_none_or(|it| !it.is_being_settled()),
            ConnectionState::Down(_) => true,
        };
        Box::pin(async move {
            let _ = timeout(limit, records.settled(|| states.iter().all(is_settled))).await;
            let reply = Reply::NotSent(Cause::Unrecorded);
            health.counts.replied(&reply, 1);
            reply
        })
    }
}

/// Why none of these leases is extended over a connection: for what admission says of each of them.
fn why_not_extended(connection: &InstanceConnection, claims: &[Arc<Claim>]) -> Option<Cause> {
    let admission = connection.admission()?;
    let obstacle = |claim: &Arc<Claim>| admission.vote_obstacle(&Request::Extend(Arc::clone(claim)));
    claims.iter().find_map(obstacle).map(|obstacle| match obstacle {
        VoteObstacle::Refused(reason) => Cause::NotUsable(reason),
        VoteObstacle::Unrecorded | VoteObstacle::NotYet => Cause::Unrecorded,
    })
}

impl Instance for RedisInstance {
    fn address(&self) -> &str {
        self.options.address.shown()
    }

    fn call(&self, request: Request) -> ReplyFuture {
        if matches!(request, Request::Acquire(_)) {
            self.options.records.want_locks();
        }
        match &*self.state.borrow() {
            ConnectionState::Down(cause) => Box::pin(ready(self.not_sent(cause, 1))),
            ConnectionState::Up(connection) => self.call_over(connection, request),
        }
    }

    fn extend_many(&self, claims: Vec<Arc<Claim>>, repairs: bool) -> ExtendManyFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => match why_not_extended(connection, &claims) {
                None => extend_many::extend_many(connection, &claims, repairs),
                Some(cause) => self.none_extended(&cause, claims.len()),
            },
            ConnectionState::Down(cause) => self.none_extended(cause, claims.len()),
        }
    }

    fn check_keys(&self, claims: Vec<Arc<Claim>>) -> KeyCheckFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => key_check::check_keys(connection, claims),
            ConnectionState::Down(_) => Box::pin(ready(vec![KeyState::Unknown; claims.len()])),
        }
    }

    fn read(&self, resource: Resource) -> ReadFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => read::read(connection, &resource),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn examine(&self) -> ExamineFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => examine::examine(connection, Arc::clone(&self.options.clock)),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn scan(&self, pattern: Vec<u8>, most: usize) -> ScanFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => examine::scan(connection, pattern, most),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn read_record(&self) -> RecordFuture<FoundRecord> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::read(connection),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn open_record(&self, writes: bool) -> RecordFuture<Trace> {
        let channel = self.options.listener.as_ref().map(|listener| listener.client.channel()).unwrap_or_default();
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::open(connection, channel, writes),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn set_record(&self, found: FoundRecord) -> RecordFuture<bool> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => operator::set(connection, found),
            ConnectionState::Down(cause) => Box::pin(ready(Err(cause.clone()))),
        }
    }

    fn hears(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Up(connection) if connection.hears())
    }

    fn publish(&self, wake: Wake) -> PublishFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => connection.publish(&wake),
            ConnectionState::Down(_) => Box::pin(ready(false)),
        }
    }

    fn wall_us(&self, now: Instant) -> Option<u64> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => Some(connection.admission()?.wall_us(now)),
            ConnectionState::Down(_) => None,
        }
    }

    fn obstacle(&self) -> Option<Cause> {
        match &*self.state.borrow() {
            ConnectionState::Up(_) => None,
            ConnectionState::Down(cause) => Some(cause.clone()),
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.health.lock().round_trip
    }

    fn refusal(&self) -> Option<Cause> {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => connection.refusal(),
            ConnectionState::Down(_) => None,
        }
    }

    fn want_locks(&self) {
        self.options.records.want_locks();
    }

    fn wait_accepted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut state = self.state.clone();
        let is_accepted = |state: &ConnectionState| matches!(state, ConnectionState::Up(connection) if connection.refusal().is_none());
        Box::pin(async move {
            if state.wait_for(is_accepted).await.is_err() {
                std::future::pending().await // its task has ended, with the client or its runtime
            }
        })
    }

    fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut state = self.state.clone();
        Box::pin(async move {
            if state.wait_for(|state| matches!(state, ConnectionState::Up(_))).await.is_err() {
                std::future::pending().await // its task has ended, with the client or its runtime
            }
        })
    }

    fn status(&self) -> InstanceStatus {
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

    #[cfg(feature = "testing")]
    fn outstanding(&self) -> usize {
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
