//! The thread for all work of a blocking client for which no caller waits.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::Redlock;
use crate::error::BuildError;

/// For how long the thread runs after its client, so that what was given up is released.
const LAST_RELEASES: Duration = Duration::from_secs(1);

/// A thread with a tokio runtime.
#[derive(Debug)]
pub(super) struct RuntimeThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    /// Ends it, with the client whose releases are to be sent before.
    end: Option<oneshot::Sender<Redlock>>,
}

impl RuntimeThread {
    pub(super) fn start() -> Result<Self, BuildError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<Redlock>();
        let run = move || {
            if let Ok(client) = runtime.block_on(ended) {
                let _ = runtime.block_on(client.shutdown(LAST_RELEASES)); // what is left expires
            }
        };
        let thread = thread::Builder::new().name("redquorum".to_owned()).spawn(run).map_err(no_thread)?;
        Ok(Self { handle, thread: Some(thread), end: Some(end) })
    }

    /// Carries a future out on the calling thread; its timers and connections are those of this one.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let _entered = self.handle.enter();
        pollster::block_on(future)
    }

    /// Has what `client` gave up released, for a second at most, and ends.
    pub(super) fn end(&mut self, client: Redlock) {
        let Some(end) = self.end.take() else { return };
        let _ = end.send(client);
        // A callback that has the last handle runs on this very thread, which ends behind it.
        let thread = self.thread.take().filter(|running| running.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn no_thread(error: std::io::Error) -> BuildError {
    BuildError::NoThread(error.to_string())
}
