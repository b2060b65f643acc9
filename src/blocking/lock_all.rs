//! Several locks that a thread acquires and holds together.

use std::sync::Arc;
use std::time::Duration;

use super::lock::seen_to_its_end;
use super::{Blocking, Guard};
use crate::config::Renewal;
use crate::error::{AcquireError, ExtendError, Loss, ReleaseError, RunError};
use crate::guard::Released;
use crate::holder::Holder;
use crate::lock::lock_settings;
use crate::lock_all::AllLeases;

/// As [`redquorum::LockAll`](crate::LockAll): several names to lock together, and how.
pub type LockAll = Blocking<crate::LockAll>;

/// As [`redquorum::AllGuard`](crate::AllGuard): several locks that are held together. Dropped, they are released in the background. It
/// has all that [`AllLeases`] have.
pub type AllGuard = Blocking<crate::AllGuard>;

impl LockAll {
    lock_settings!(inner);

    /// Waits until all are acquired: see [`LockAll::acquire`](crate::LockAll::acquire).
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
    /// let guard = redlock.lock_all(["account:7", "account:12"]).acquire()?;
    /// println!("{:?}", guard.fencing_tokens());
    /// guard.release()?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Result<AllGuard, AcquireError> {
        self.acquired(self.inner.acquire())
    }

    /// Tries once: see [`LockAll::try_acquire`](crate::LockAll::try_acquire).
    pub fn try_acquire(&self) -> Result<AllGuard, AcquireError> {
        self.acquired(self.inner.try_acquire())
    }

    /// Acquires all, waiting as `acquire` does, runs `work` on this thread while they are held, and releases them: see
    /// [`LockAll::run`](crate::LockAll::run). The work is not interrupted if one is lost.
    pub fn run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<T, RunError> {
        let work = async |all: AllLeases| seen_to_its_end(work(all.clone()), all.is_valid(), all.lost()).await;
        self.wait(self.inner.run(work))
    }

    /// Runs `work` as `run` does if all are free, and returns `None` at once if another client holds one: see
    /// [`LockAll::try_run`](crate::LockAll::try_run).
    pub fn try_run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<Option<T>, RunError> {
        let work = async |all: AllLeases| seen_to_its_end(work(all.clone()), all.is_valid(), all.lost()).await;
        self.wait(self.inner.try_run(work))
    }
}

impl AllGuard {
    /// A view of the leases, for other threads; it does not keep the locks.
    #[must_use]
    pub fn leases(&self) -> AllLeases {
        self.inner.leases()
    }

    /// Waits until the first of them is lost, for `limit` at most; `None` if none was.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.wait(async { tokio::time::timeout(limit, self.lost()).await.ok() })
    }

    /// Extends all of them by their ttl from now: see [`AllGuard::extend`](crate::AllGuard::extend).
    pub fn extend(&self) -> Result<Duration, ExtendError> {
        self.wait(self.inner.extend())
    }

    /// Extends all of them to `ttl` from now: see [`AllGuard::extend_to`](crate::AllGuard::extend_to).
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.wait(self.inner.extend_to(ttl))
    }

    /// Releases all of them: see [`AllGuard::release`](crate::AllGuard::release).
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.running.wait(self.inner.release())
    }

    /// Gives the guard up without releasing anything: see [`AllGuard::keep_for`](crate::AllGuard::keep_for).
    pub fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        self.running.wait(self.inner.keep_for(time))
    }

    /// The single guards: see [`AllGuard::into_guards`](crate::AllGuard::into_guards).
    #[must_use = "the locks are released when the guards are dropped"]
    pub fn into_guards(self) -> Vec<Guard> {
        let running = &self.running;
        let guards = self.inner.into_guards().into_iter();
        guards.map(|inner| Blocking { inner, running: Arc::clone(running) }).collect()
    }
}
