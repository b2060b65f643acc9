//! Several servers, as a quorum needs them.

use std::ops::Deref;
use std::thread;

use crate::{Error, Program, Server, ServerBuilder};

/// Servers that were started together; a slice of them, so `fleet[1].hang()` and `fleet.iter()`.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Server>,
}

impl Fleet {
    /// Starts `count` empty servers side by side.
    ///
    /// # Errors
    /// When one does not come up; the others are ended.
    pub fn start(program: &Program, count: usize) -> Result<Self, Error> {
        Self::start_with(program, count, |_, builder| builder)
    }

    /// Starts `count` servers; `set` is given the number of each, from 0, and its settings.
    ///
    /// # Errors
    /// When one does not come up; the others are ended.
    pub fn start_with(
        program: &Program,
        count: usize,
        set: impl Fn(usize, ServerBuilder) -> ServerBuilder,
    ) -> Result<Self, Error> {
        let builders: Vec<_> = (0..count).map(|number| set(number, Server::builder(program))).collect();
        let servers = thread::scope(|scope| {
            let starts: Vec<_> = builders.into_iter().map(|builder| scope.spawn(|| builder.start())).collect();
            let join = |start: thread::ScopedJoinHandle<'_, _>| {
                start.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            starts.into_iter().map(join).collect::<Vec<_>>() // all of them, before the first error counts
        });
        Ok(Self { servers: servers.into_iter().collect::<Result<_, _>>()? })
    }

    /// The addresses, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }
}

impl From<Vec<Server>> for Fleet {
    /// Of servers that were started one by one, perhaps of different kinds.
    fn from(servers: Vec<Server>) -> Self {
        Self { servers }
    }
}

impl Deref for Fleet {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}
