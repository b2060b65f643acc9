//! The same locks for code that does not run on tokio, with the same words.
//!
//! A client has its own thread for all that must not wait for callers: connections, renewals, callbacks of
//! [`on_lost`](crate::LeaseView::on_lost), releases of dropped guards. So a lease is renewed while its holder computes or blocks.
//! Every call that sends a request blocks the calling thread until the answer is there; do not call it in async code, where it
//! blocks everything else on that thread.
//!
//! ```
//! # use redquorum::testing::Cluster;
//! use std::time::Duration;
//! use redquorum::blocking;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cluster = Cluster::new(3);
//! # let builder = cluster.builder();
//! // let builder = redquorum::Redlock::builder().instances(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
//! let redlock = blocking::Redlock::connect(builder)?;
//! let guard = redlock.lock("orders:42").wait_at_most(Duration::from_secs(5)).acquire()?;
//! println!("token {}", guard.fencing_token()); // .. the work; the lease is renewed meanwhile ..
//! guard.release()?;
//! let report = redlock.lock("job:nightly").run(|_lease| std::fs::metadata("/"))??; // work that can fail: two errors
//! redlock.shutdown(Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! Types and methods have the names of their asynchronous twins, and do the same: guarantees, defaults and errors are described there.
//! A thread cannot be interrupted: work continues when its lock is lost. Look at [`is_valid`](crate::LeaseView::is_valid) before each step that
//! cannot be taken back, or give the fencing token to the storage. If the lock was lost when the work of a `run` ends, what the work returned
//! is dropped, and the loss is the error.

#![expect(clippy::missing_errors_doc, reason = "the errors of a method are those of its twin")]

mod twins;

use std::fmt;
use std::mem::forget;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;

pub use twins::{
    AllGuard, Election, Guard, Leadership, Lock, LockAll, Observer, Permit, ReadGuard, Redlock, RwLock, Semaphore,
};

use crate::error::BuildError;

/// For how long the thread of a client runs after its last handle, so that what was given up is released.
const LAST_RELEASES: Duration = Duration::from_secs(1);

/// Something of the asynchronous interface, for threads. Each type of this module is one of these, or contains one. Clones share the client
/// and its thread.
///
/// The last handle of a client, guards included, waits when it is dropped until released locks are confirmed, for a second
/// at most; an instance that cannot be reached is not waited for longer than an instance timeout.
#[derive(Clone)]
#[must_use = "it does nothing by itself; a guard that is dropped releases its lock"]
pub struct Blocking<T> {
    // In this order: what a guard lets go is released before the client ends.
    inner: T,
    client: Arc<Client>,
}

impl<T> Blocking<T> {
    /// Something else of the same client.
    fn with<U>(&self, inner: U) -> Blocking<U> {
        Blocking { inner, client: Arc::clone(&self.client) }
    }
}

/// What a guard shows of its lease.
impl<T: Deref> Deref for Blocking<T> {
    type Target = T::Target;

    fn deref(&self) -> &T::Target {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(&self.inner).finish()
    }
}

/// A client with the thread on which its tokio runtime runs.
struct Client {
    redlock: crate::Redlock,
    runtime: runtime::Handle,
    /// The thread, and what ends it: the client whose releases are to be sent before.
    thread: Option<(JoinHandle<()>, oneshot::Sender<crate::Redlock>)>,
}

impl Client {
    fn start<E: From<BuildError>>(build: impl Future<Output = Result<crate::Redlock, E>>) -> Result<Redlock, E> {
        let failed = |error: std::io::Error| BuildError::NoThread(error.to_string());
        let all = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let runtime = all.handle().clone();
        let (end, ended) = oneshot::channel::<crate::Redlock>();
        let run = move || {
            if let Ok(redlock) = all.block_on(ended) {
                let _ = all.block_on(redlock.shutdown(LAST_RELEASES)); // what is left expires
            }
        };
        let thread = thread::Builder::new().name("redquorum".to_owned()).spawn(run).map_err(failed)?;
        let redlock = wait_in(&runtime, build)?;
        let client = Self { redlock: redlock.clone(), runtime, thread: Some((thread, end)) };
        Ok(Blocking { inner: redlock, client: Arc::new(client) })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        wait_in(&self.runtime, future)
    }
}

/// Carries a future out on the calling thread; its timers and connections are those of the client's thread.
fn wait_in<T>(runtime: &runtime::Handle, future: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    pollster::block_on(future)
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some((thread, end)) = self.thread.take() else { return };
        if self.redlock.shared.is_forked() {
            return forget((end, self.redlock.clone())); // the thread is the parent's: nothing here ends or wakes it
        }
        let _ = end.send(self.redlock.clone());
        // A callback that has the last handle runs on this very thread, which ends behind it.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}
