//! The same locks for code that does not run on tokio, with the same words.
//!
//! A client has its own thread for all that must not wait for callers: connections, renewals,
//! notices of losses, releases. So a lease is renewed while its holder computes or blocks. Every call that sends a request
//! blocks the calling thread until the answer is there; do not call it in async code, where it
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
//! redlock.shutdown(Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! Types and methods have the names of their asynchronous twins, and do the same: guarantees, defaults and errors are described there.
//! A thread cannot be interrupted: work continues when its lock is lost. Look at [`is_valid`](crate::LeaseView::is_valid) before each step that
//! cannot be taken back, or give the fencing token to the storage.

#![expect(clippy::missing_errors_doc, reason = "the errors of a method are those of its twin")]

mod thread;
mod twins;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use thread::Running;
pub use twins::{
    AllGuard, Election, Guard, Leadership, Lock, LockAll, Observer, Permit, ReadGuard, Redlock, RwLock, Semaphore,
};

/// Something of the asynchronous interface, for threads. Each type of this module is one of these, or contains one.
///
/// The last handle of a client, guards included, waits when it is dropped until released locks are confirmed, for a second
/// at most; an instance that cannot be reached is not waited for longer than an instance timeout.
#[derive(Clone)]
#[must_use = "it does nothing by itself; a guard that is dropped releases its lock"]
pub struct Blocking<T> {
    // In this order: what a guard lets go is released before the client ends.
    inner: T,
    running: Arc<Running>,
}

impl<T> Blocking<T> {
    /// Something else of the same client.
    fn with<U>(&self, inner: U) -> Blocking<U> {
        Blocking { inner, running: Arc::clone(&self.running) }
    }

    /// Waits on this thread.
    fn wait<U>(&self, future: impl Future<Output = U>) -> U {
        self.running.wait(future)
    }

    /// Waits for a guard.
    fn acquired<G, E>(&self, future: impl Future<Output = Result<G, E>>) -> Result<Blocking<G>, E> {
        self.wait(future).map(|guard| self.with(guard))
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
