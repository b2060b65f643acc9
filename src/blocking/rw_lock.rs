//! A lock that threads read, and one writes.

use std::time::Duration;

use super::{Blocking, Guard, ReadGuard};
use crate::config::Renewal;
use crate::error::AcquireError;
use crate::holder::Holder;
use crate::lock::lock_settings;

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
pub type RwLock = Blocking<crate::RwLock>;

impl RwLock {
    lock_settings!(inner);

    /// Waits until it reads: see [`RwLock::read`](crate::RwLock::read).
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.acquired(self.inner.read())
    }

    /// Tries to read once: see [`RwLock::try_read`](crate::RwLock::try_read).
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.acquired(self.inner.try_read())
    }

    /// Waits until it has the lock for itself: see [`RwLock::write`](crate::RwLock::write).
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.acquired(self.inner.write())
    }

    /// Tries once to have the lock for itself: see [`RwLock::try_write`](crate::RwLock::try_write).
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.acquired(self.inner.try_write())
    }
}
