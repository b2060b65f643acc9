//! A lock that many read and one writes.

use std::time::Duration;

use crate::config::Renewal;
use crate::error::AcquireError;
use crate::guard::{Guard, ReadGuard};
use crate::holder::Holder;
use crate::lock::{Lock, lock_settings};

/// A lock that any number of readers have together, or one writer alone. Made by [`Redlock::rw_lock`](crate::Redlock::rw_lock).
///
/// A writer has the ordinary lock of this name: it excludes [`Redlock::lock`](crate::Redlock::lock), and clients of other libraries,
/// as they exclude readers and writers.
///
/// New readers wait behind a writer that waits, and go in together when it has gone: those of 64 clients are woken, others try again within
/// a second. So a task that reads, and reads the same lock again,
/// can wait for itself; so does one that writes what it reads, or takes the ordinary lock. Where a [`holder`](Self::holder) is set, its own
/// client refuses all of them as [`BadRequest::WaitsForItself`](crate::BadRequest::WaitsForItself). A reader cannot become a writer, or a writer
/// a reader.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = cluster.builder().connect().await?;
/// let config = redlock.rw_lock("config");
/// let (one, other) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await.is_err_and(|error| error.is_contended()), "it is read");
/// drop((one, other));
///
/// let guard = config.write().await?;
/// println!("written under token {}", guard.fencing_token());
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock {
    pub(crate) lock: Lock,
}

impl RwLock {
    lock_settings!(lock);

    /// Waits until it reads: until no writer has the lock, and none waits that came before.
    ///
    /// # Guarantees
    /// While the guard is valid no client writes, within the limits that the crate's documentation states. A reader has no fencing token:
    /// storage that must refuse late writes compares those of writers.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire).
    pub fn read(&self) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + use<> {
        self.lock.clone().acquire_as(true)
    }

    /// Tries to read once. It fails at once, without a request, while a caller of this client writes or waits to write.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`](crate::Lock::try_acquire). [`AcquireError::Contended`] names the writer, or one that waits.
    pub fn try_read(&self) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + use<> {
        self.lock.clone().acquire_as(false)
    }

    /// Waits until it has the lock for itself, as [`Lock::acquire`](crate::Lock::acquire) does.
    ///
    /// It leaves a mark where it finds readers, which lets in no more of them. So it waits for those that read when it came, and however
    /// many others come: the mark is left after a few round trips, and the last reader wakes the writer.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire). The mark is removed, too, and expires after three seconds.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire).
    pub fn write(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        self.lock.clone().acquire_as(true)
    }

    /// Tries once, as [`Lock::try_acquire`](crate::Lock::try_acquire) does. It leaves no mark.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`](crate::Lock::try_acquire). [`AcquireError::Contended`] says so if readers have it.
    pub fn try_write(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        self.lock.clone().acquire_as(false)
    }
}
