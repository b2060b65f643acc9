//! An instance inside the process, with faults, for tests.

pub(crate) mod bulk;
mod faults;
mod queue;
pub(crate) mod scripts;
mod server;
pub(crate) mod store;

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

pub use faults::{Hang, Requests};
pub(crate) use server::Server;

use super::{AdmissionStatus, Instance, InstanceStatus, ReplyFuture, Request};
use crate::protocol::{Cause, Instant, Reply};

/// As in `link.rs`: after this many unanswered requests in a row an instance counts as silent.
const SILENT_AFTER: u32 = 3;

/// One client's connection to an in-process instance.
#[derive(Debug)]
pub(crate) struct MemoryInstance {
    server: Arc<Server>,
    timeout: Duration,
    silence: Arc<Silence>,
}

/// How many requests in a row went unanswered since the faults last changed.
#[derive(Debug, Default)]
struct Silence(Mutex<(u64, u32)>);

impl Silence {
    fn note(&self, generation: u64, answered: bool) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if noted.0 == generation { noted.1 } else { 0 };
        *noted = (generation, if answered { 0 } else { before.saturating_add(1) });
    }

    fn is_silent(&self, generation: u64) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.0 == generation && noted.1 >= SILENT_AFTER
    }
}

impl MemoryInstance {
    pub(crate) fn connect(server: Arc<Server>, instance_timeout: Duration) -> Self {
        Self { server, timeout: instance_timeout, silence: Arc::default() }
    }
}

fn obstacle(server: &Server, silence: &Silence) -> Option<Cause> {
    let silent = server.is_hung() && silence.is_silent(server.generation());
    server.obstacle().or_else(|| silent.then_some(Cause::Silent))
}

impl Instance for MemoryInstance {
    fn address(&self) -> &str {
        self.server.address()
    }

    fn call(&self, request: Request) -> ReplyFuture {
        if let Some(cause) = self.obstacle() {
            return Box::pin(ready(Reply::NotSent(cause)));
        }
        let generation = self.server.generation();
        let ticket = match self.server.send(request) {
            Ok(ticket) => ticket,
            Err(reply) => return Box::pin(ready(reply)),
        };
        let (server, silence, deadline) = (Arc::clone(&self.server), Arc::clone(&self.silence), self.timeout);
        Box::pin(async move {
            let reply = timeout(deadline, server.answer(&ticket)).await;
            silence.note(generation, reply.is_ok());
            reply.unwrap_or(Reply::Unknown(Cause::TimedOut)) // P5
        })
    }

    fn wall_us(&self, _now: Instant) -> Option<u64> {
        self.obstacle().is_none().then(|| self.server.wall_us())
    }

    fn obstacle(&self) -> Option<Cause> {
        obstacle(&self.server, &self.silence)
    }

    fn status(&self) -> InstanceStatus {
        let obstacle = self.obstacle();
        InstanceStatus {
            address: self.address().to_owned(),
            connected: obstacle.is_none(),
            admission: if obstacle.is_none() { AdmissionStatus::Off } else { AdmissionStatus::Unknown },
            last_error: obstacle.map(|cause| cause.to_string()),
            ..InstanceStatus::default()
        }
    }

    fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (server, silence) = (Arc::clone(&self.server), Arc::clone(&self.silence));
        Box::pin(async move {
            let mut changes = server.changes();
            while obstacle(&server, &silence).is_some() {
                // The sender lives as long as `server`: an error cannot be.
                let _ = changes.changed().await;
            }
        })
    }
}
