//! Several locks that a thread acquires and holds together.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::client::Running;
use super::guard::Guard;
use super::lock::seen_to_its_end;
use crate::config::Renewal;
use crate::error::{AcquireError, ExtendError, Loss, ReleaseError, RunError};
use crate::guard::Released;
use crate::holder::Holder;
use crate::lock::lock_settings;
use crate::lock_all::{AllGuard as AsyncAllGuard, AllLeases, LockAll as AsyncLockAll};

/// As [`redquorum::LockAll`](crate::LockAll): several names to lock together, and how.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct LockAll {
    lock: AsyncLockAll,
    running: Arc<Running>,
}

/// As [`redquorum::AllGuard`](crate::AllGuard): several locks that are held together. Dropped, they are released in the background. It
/// has all that [`AllLeases`] have.
#[must_use = "the locks are released when their guard is dropped"]
pub struct AllGuard {
    // In this order: what the guard lets go is released before the client ends.
    guard: AsyncAllGuard,
    running: Arc<Running>,
}

impl LockAll {
    pub(super) const fn new(lock: AsyncLockAll, running: Arc<Running>) -> Self {
        Self { lock, running }
    }

    lock_settings!(lock);

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
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<AllGuard, AcquireError> {
        let guard = self.running.wait(self.lock.acquire())?;
        Ok(AllGuard { guard, running: Arc::clone(&self.running) })
    }

    /// Tries once: see [`LockAll::try_acquire`](crate::LockAll::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<AllGuard, AcquireError> {
        let guard = self.running.wait(self.lock.try_acquire())?;
        Ok(AllGuard { guard, running: Arc::clone(&self.running) })
    }

    /// Acquires all, waiting as [`acquire`](Self::acquire) does, runs `work` on this thread while they are held, and releases them: see
    /// [`Lock::run`](super::Lock::run). The work is not interrupted if one is lost.
    ///
    /// # Errors
    /// As there.
    pub fn run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<T, RunError> {
        let work =
            async |leases: AllLeases| seen_to_its_end(work(leases.clone()), leases.is_valid(), leases.lost()).await;
        self.running.wait(self.lock.run(work))
    }

    /// Runs `work` as [`run`](Self::run) does if all are free, and returns `None` at once if another client holds one: see
    /// [`LockAll::try_run`](crate::LockAll::try_run).
    ///
    /// # Errors
    /// As there.
    pub fn try_run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<Option<T>, RunError> {
        let work =
            async |leases: AllLeases| seen_to_its_end(work(leases.clone()), leases.is_valid(), leases.lost()).await;
        self.running.wait(self.lock.try_run(work))
    }
}

/// What it shows of its leases.
impl Deref for AllGuard {
    type Target = AllLeases;

    fn deref(&self) -> &AllLeases {
        &self.guard
    }
}

impl AllGuard {
    /// A view of the leases, for other threads; it does not keep the locks.
    #[must_use]
    pub fn leases(&self) -> AllLeases {
        self.guard.leases()
    }

    /// Waits until the first of them is lost, for `limit` at most; `None` if none was.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.running.wait(async { tokio::time::timeout(limit, self.guard.lost()).await.ok() })
    }

    /// Extends all of them by their ttl from now: see [`AllGuard::extend`](crate::AllGuard::extend).
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend())
    }

    /// Extends all of them to `ttl` from now: see [`AllGuard::extend_to`](crate::AllGuard::extend_to).
    ///
    /// # Errors
    /// As there.
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend_to(ttl))
    }

    /// Releases all of them: see [`AllGuard::release`](crate::AllGuard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.running.wait(self.guard.release())
    }

    /// Gives the guard up without releasing anything: see [`AllGuard::keep_for`](crate::AllGuard::keep_for).
    ///
    /// # Errors
    /// As there.
    pub fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        self.running.wait(self.guard.keep_for(time))
    }

    /// The single guards: see [`AllGuard::into_guards`](crate::AllGuard::into_guards).
    #[must_use = "the locks are released when the guards are dropped"]
    pub fn into_guards(self) -> Vec<Guard> {
        let running = &self.running;
        self.guard.into_guards().into_iter().map(|guard| Guard::new(guard, Arc::clone(running))).collect()
    }
}

impl fmt::Debug for LockAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::LockAll").field(&self.lock).finish()
    }
}

impl fmt::Debug for AllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::AllGuard").field(&self.guard).finish()
    }
}
