//! A lock that threads read, and one writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::client::Running;
use super::guard::Guard;
use crate::config::Renewal;
use crate::error::{AcquireError, ExtendError, Loss, ReleaseError};
use crate::guard::Released;
use crate::holder::Holder;
use crate::lease::Redundancy;
use crate::lock::lock_settings;
use crate::names::ResourceName;
use crate::rw_lock::{ReadGuard as AsyncReadGuard, RwLock as AsyncRwLock};

/// As [`redquorum::RwLock`](crate::RwLock): what to read or write and how.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
/// let config = redlock.rw_lock("config");
/// let reader = config.read()?;
/// assert!(config.try_write().is_err_and(|error| error.is_contended()));
/// reader.release()?;
/// config.write()?.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock {
    lock: AsyncRwLock,
    running: Arc<Running>,
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::RwLock").field(&self.lock).finish()
    }
}

impl RwLock {
    pub(super) const fn new(lock: AsyncRwLock, running: Arc<Running>) -> Self {
        Self { lock, running }
    }

    lock_settings!(lock);

    /// Waits until it reads: see [`RwLock::read`](crate::RwLock::read).
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        let guard = self.running.wait(self.lock.read())?;
        Ok(ReadGuard { guard, running: Arc::clone(&self.running) })
    }

    /// Tries to read once: see [`RwLock::try_read`](crate::RwLock::try_read).
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        let guard = self.running.wait(self.lock.try_read())?;
        Ok(ReadGuard { guard, running: Arc::clone(&self.running) })
    }

    /// Waits until it has the lock for itself: see [`RwLock::write`](crate::RwLock::write).
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<Guard, AcquireError> {
        let guard = self.running.wait(self.lock.write())?;
        Ok(Guard::new(guard, Arc::clone(&self.running)))
    }

    /// Tries once to have the lock for itself: see [`RwLock::try_write`](crate::RwLock::try_write).
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        let guard = self.running.wait(self.lock.try_write())?;
        Ok(Guard::new(guard, Arc::clone(&self.running)))
    }
}

/// As [`redquorum::ReadGuard`](crate::ReadGuard): a lock that is read, renewed on the client's thread.
#[must_use = "the lock is released when its guard is dropped"]
pub struct ReadGuard {
    // In this order: what the guard lets go is released before the client ends.
    guard: AsyncReadGuard,
    running: Arc<Running>,
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::ReadGuard").field(&self.guard).finish()
    }
}

impl ReadGuard {
    /// What is read: the name that was given, without the namespace.
    #[must_use]
    pub fn resource(&self) -> ResourceName {
        self.guard.resource()
    }

    /// Whether it may still be relied on, by this machine's clock. Once false it stays so.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// How long it may still be relied on; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// How many instances have this reader, according to their answers so far.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        self.guard.redundancy()
    }

    /// Waits until it is lost, for `limit` at most; `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.running.wait(async { tokio::time::timeout(limit, self.guard.lost()).await.ok() })
    }

    /// Calls `notify` once when it is lost, on the client's thread: see [`LeaseView::on_lost`](crate::LeaseView::on_lost).
    pub fn on_lost(&self, notify: impl FnOnce(Loss) + Send + 'static) {
        self.guard.on_lost(notify);
    }

    /// A token that is cancelled when it is lost or given up: see [`LeaseView::loss_token`](crate::LeaseView::loss_token).
    #[cfg(feature = "tokio-util")]
    #[must_use]
    pub fn loss_token(&self) -> tokio_util::sync::CancellationToken {
        self.guard.loss_token()
    }

    /// Keeps it for another ttl from now: see [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend())
    }

    /// Keeps it for `ttl` from now: see [`Guard::extend_to`](crate::Guard::extend_to).
    ///
    /// # Errors
    /// As there.
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend_to(ttl))
    }

    /// Reads no more, and waits until a quorum of instances has answered: see [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.running.wait(self.guard.release())
    }
}
