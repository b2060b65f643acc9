//! The thread for all work of a blocking client for which no caller waits.

use std::mem::forget;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::Redlock;
use crate::error::BuildError;

/// For how long the thread runs after its client, so that what was given up is released.
const LAST_RELEASES: Duration = Duration::from_secs(1);

/// A client and its thread. What is left of the client is released with the last of its handles.
pub(super) struct Running {
    client: Redlock,
    thread: RuntimeThread,
}

impl Running {
    pub(super) fn start<E>(build: impl AsyncFnOnce() -> Result<Redlock, E>) -> Result<(Redlock, Self), E>
    where
        E: From<BuildError>,
    {
        let thread = RuntimeThread::start()?;
        let client = thread.wait(build())?;
        Ok((client.clone(), Self { client, thread }))
    }

    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.thread.wait(future)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.thread.end(self.client.clone());
    }
}

/// A thread with a tokio runtime.
#[derive(Debug)]
struct RuntimeThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    /// Ends it, with the client whose releases are to be sent before.
    end: Option<oneshot::Sender<Redlock>>,
}

impl RuntimeThread {
    fn start() -> Result<Self, BuildError> {
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
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let _entered = self.handle.enter();
        pollster::block_on(future)
    }

    /// Has what `client` gave up released, for a second at most, and ends.
    fn end(&mut self, client: Redlock) {
        let Some(end) = self.end.take() else { return };
        if client.shared.is_forked() {
            return forget((end, client)); // the thread is the parent's: nothing here ends or wakes it
        }
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
