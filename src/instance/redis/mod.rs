//! One Redis or Valkey master: a connection that is kept up by one task, and what is sent over it.

mod address;
mod admission;
mod byte_stream;
pub(crate) mod classify;
mod connect;
mod connection;
mod credentials;
mod deadline;
#[cfg(feature = "testing")]
mod dialed;
mod driver;
mod examine;
mod extend_many;
mod flushes;
mod forget_tokens;
mod health;
mod hello;
mod log_limit;
mod lone_write;
mod lookup;
mod options;
mod plain;
mod pushes;
mod read;
mod relay;
mod reply_counts;
mod reply_limit;
pub(crate) mod scripts;
mod send_queue;
mod sent_command;
mod sentinel;
mod shared_write;
mod stream;
mod supervisor;
mod timer_wakeups;
mod tls;
mod trouble;
mod votes;

pub(crate) use address::{Address, InstanceSettings};
pub use credentials::Credentials;
pub(crate) use credentials::CredentialsSource;
#[cfg(feature = "testing")]
pub(crate) use dialed::Dialer;
pub(crate) use options::ClientOptions;
#[cfg(feature = "testing")]
pub(crate) use plain::commands as plain_commands;
#[cfg(feature = "testing")]
pub(crate) use shared_write::{classify_shared, shared_commands};
pub use tls::Tls;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::instance::{
    Claim, ExamineFuture, ExtendManyFuture, ExtendReply, Instance, KeyCheckFuture, KeyState, ReadFuture, Relay,
    RelayFuture, ReplyFuture, Request, ScanFuture,
};
use crate::protocol::{Cause, Instant, NotUsable, Reply};
use crate::resource::Resources;
use admission::first_use::watch_first_use;
use health::InstanceHealth;
use options::ConnectOptions;
use supervisor::ConnectionState;

/// An instance behind a Redis or Valkey server.
pub(crate) struct RedisInstance {
    options: ConnectOptions,
    state: watch::Receiver<ConnectionState>,
    health: Arc<InstanceHealth>,
    task: JoinHandle<()>,
}

impl RedisInstance {
    /// Begins to connect to all instances of a client. Must be called within a tokio runtime.
    pub(crate) fn start_all(addresses: Vec<Address>, options: ClientOptions) -> Vec<Self> {
        let admission = options.admission;
        let instances: Vec<_> = options.for_each(addresses).map(Self::start).collect();
        if admission && !instances.is_empty() {
            tokio::spawn(watch_first_use(instances.iter().map(|instance| instance.state.clone()).collect()));
        }
        instances
    }

    fn start(options: ConnectOptions) -> Self {
        let (sender, state) = watch::channel(ConnectionState::Down(Cause::Connecting));
        let health = Arc::<InstanceHealth>::default();
        let task = tokio::spawn(supervisor::supervise(options.clone(), sender, Arc::clone(&health)));
        Self { options, state, health, task }
    }

    fn not_sent(&self, cause: &Cause, requests: usize) -> Reply {
        let reply = Reply::NotSent(cause.clone());
        self.health.counts.replied(&reply, requests);
        reply
    }
}

impl Instance for RedisInstance {
    fn address(&self) -> &str {
        self.options.address.shown()
    }

    fn call(&self, request: Request) -> ReplyFuture {
        let conflict = if matches!(request, Request::Acquire(_)) { self.options.conflicts.first() } else { None };
        match (&*self.state.borrow(), conflict) {
            (ConnectionState::Down(cause), _) => Box::pin(ready(self.not_sent(cause, 1))),
            (ConnectionState::Up(_), Some(address)) => {
                let cause = Cause::NotUsable(NotUsable::ClusterConflict(address));
                Box::pin(ready(self.not_sent(&cause, 1)))
            }
            (ConnectionState::Up(connection), None) => connection.call(request),
        }
    }

    fn extend_many(&self, claims: Vec<Arc<Claim>>) -> ExtendManyFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => extend_many::extend_many(connection, &claims),
            ConnectionState::Down(cause) => {
                let reply = self.not_sent(cause, claims.len());
                Box::pin(ready(vec![ExtendReply::Decided(reply); claims.len()]))
            }
        }
    }

    fn check_keys(&self, claims: Vec<Arc<Claim>>) -> KeyCheckFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => extend_many::check_keys(connection, claims),
            ConnectionState::Down(_) => Box::pin(ready(vec![KeyState::Unknown; claims.len()])),
        }
    }

    fn read(&self, resources: Resources) -> ReadFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => read::read(connection, &resources),
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

    fn hears(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Up(connection) if connection.hears())
    }

    fn relay(&self, relay: Relay) -> RelayFuture {
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => relay::relay(connection, relay),
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
            status.version = info.version;
            status.run_id = info.run_id;
            status.evicts = info.evicts;
        }
        match &*self.state.borrow() {
            ConnectionState::Up(connection) => {
                status.connected = true;
                status.admission = AdmissionStatus::Off;
                if let Some(admission) = connection.admission() {
                    let state = admission.snapshot();
                    let left = state.quarantine_left(self.options.clock.now());
                    status.admission =
                        if left.is_zero() { AdmissionStatus::Admitted } else { AdmissionStatus::Quarantine(left) };
                    status.clock_offset = Some(state.watch().offset_ns() as f64 / 1e9);
                    status.clock_steps = state.watch().steps();
                }
            }
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
