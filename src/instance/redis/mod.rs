//! A real instance: one connection, kept up by one task.

mod address;
mod admission;
mod byte_stream;
pub(crate) mod classify;
mod connect;
mod connection;
#[cfg(feature = "testing")]
mod dialed;
mod driver;
mod extend_many;
mod flushes;
mod frames;
mod health;
mod hello;
mod log_limit;
mod options;
mod pushes;
pub(crate) mod scripts;
mod send_queue;
mod supervisor;
mod timer_wakeups;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod tls;
mod trouble;
mod wire;

pub(crate) use address::Address;
#[cfg(feature = "testing")]
pub(crate) use dialed::Dialer;
pub(crate) use options::ClientOptions;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::instance::{Call, Claim, Instance, Look, Renewal, Request, Sight};
use crate::protocol::{Cause, Instant, Reply};
use admission::first_use::open_when_never_used;
use health::Known;
use options::Dial;
use supervisor::Reach;

/// An instance behind a Redis or Valkey server.
pub(crate) struct RedisInstance {
    dial: Dial,
    reach: watch::Receiver<Reach>,
    known: Arc<Known>,
    task: JoinHandle<()>,
}

impl RedisInstance {
    /// Begins to connect to all instances of a client. Must be called within a tokio runtime.
    pub(crate) fn start_all(addresses: Vec<Address>, options: ClientOptions) -> Vec<Self> {
        let admission = options.admission;
        let instances: Vec<_> = options.for_each(addresses).map(Self::start).collect();
        if admission && !instances.is_empty() {
            tokio::spawn(open_when_never_used(instances.iter().map(|instance| instance.reach.clone()).collect()));
        }
        instances
    }

    fn start(dial: Dial) -> Self {
        let (sender, reach) = watch::channel(Reach::Down(Cause::Connecting));
        let known = Arc::<Known>::default();
        let task = tokio::spawn(supervisor::keep_up(dial.clone(), sender, Arc::clone(&known)));
        Self { dial, reach, known, task }
    }
}

impl Instance for RedisInstance {
    fn address(&self) -> &str {
        self.dial.address.shown()
    }

    fn call(&self, request: Request) -> Call {
        match &*self.reach.borrow() {
            Reach::Up(link) => link.call(request),
            Reach::Down(cause) => Box::pin(ready(Reply::NotSent(cause.clone()))),
        }
    }

    fn renew(&self, claims: Vec<Arc<Claim>>) -> Renewal {
        match &*self.reach.borrow() {
            Reach::Up(link) => link.renew(claims),
            Reach::Down(cause) => Box::pin(ready(vec![Some(Reply::NotSent(cause.clone())); claims.len()])),
        }
    }

    fn look(&self, claims: Vec<Arc<Claim>>) -> Look {
        match &*self.reach.borrow() {
            Reach::Up(link) => link.look(claims),
            Reach::Down(_) => Box::pin(ready(vec![Sight::Unknown; claims.len()])),
        }
    }

    fn wall_us(&self, now: Instant) -> Option<u64> {
        match &*self.reach.borrow() {
            Reach::Up(link) => Some(link.guarded()?.wall_us(now)),
            Reach::Down(_) => None,
        }
    }

    fn obstacle(&self) -> Option<Cause> {
        match &*self.reach.borrow() {
            Reach::Up(_) => None,
            Reach::Down(cause) => Some(cause.clone()),
        }
    }

    fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut reach = self.reach.clone();
        Box::pin(async move {
            if reach.wait_for(|reach| matches!(reach, Reach::Up(_))).await.is_err() {
                std::future::pending().await // its task has ended, with the client or its runtime
            }
        })
    }

    fn status(&self) -> InstanceStatus {
        let known = self.known.get().clone();
        let mut status = InstanceStatus {
            address: self.address().to_owned(),
            round_trip: known.round_trip,
            trouble: self.known.troubles.present(self.dial.clock.now()),
            last_error: known.last_error,
            ..InstanceStatus::default()
        };
        if let Some(about) = known.about {
            status.is_master = Some(about.is_master);
            status.version = about.version;
            status.run_id = about.run_id;
            status.evicts = about.evicts;
        }
        match &*self.reach.borrow() {
            Reach::Up(link) => {
                status.connected = true;
                status.admission = AdmissionStatus::Off;
                if let Some(guarded) = link.guarded() {
                    let standing = guarded.snapshot();
                    let left = standing.quarantine_left(self.dial.clock.now());
                    status.admission =
                        if left.is_zero() { AdmissionStatus::Admitted } else { AdmissionStatus::Quarantine(left) };
                    status.clock_offset = Some(standing.watch().offset_ns() as f64 / 1e9);
                    status.clock_steps = standing.watch().steps();
                }
            }
            Reach::Down(cause) => status.last_error = Some(cause.to_string()),
        }
        status
    }
}

impl fmt::Debug for RedisInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisInstance").field("address", &self.address()).field("reach", &*self.reach.borrow()).finish()
    }
}

impl Drop for RedisInstance {
    fn drop(&mut self) {
        self.task.abort();
    }
}
