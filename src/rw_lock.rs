//! A lock that many read and one writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Renewal, Settings};
use crate::error::{AcquireError, ExtendError, Loss, ReleaseError};
use crate::guard::{Guard, Released};
use crate::holder::Holder;
use crate::lease::Redundancy;
use crate::lock::{Lock, lock_settings};
use crate::names::ResourceName;
use crate::protocol::Access;
use crate::runtime::Shared;

/// A lock that any number of readers have together, or one writer alone. Made by [`Redlock::rw_lock`](crate::Redlock::rw_lock).
///
/// A writer has the ordinary lock of this name: it excludes [`Redlock::lock`](crate::Redlock::lock), and clients of other libraries,
/// as they exclude readers and writers.
///
/// New readers wait behind a writer that waits, and go in together when it has gone. So a task that reads, and reads the same lock again,
/// can wait for itself; so does one that writes what it reads. Where a [`holder`](Self::holder) is set, its own client refuses both as
/// [`BadRequest::WaitsForItself`](crate::BadRequest::WaitsForItself). A reader cannot become a writer, or a writer a reader.
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
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock {
    lock: Lock,
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLock").field(&self.lock).finish()
    }
}

impl RwLock {
    pub(crate) fn new(shared: Arc<Shared>, settings: Arc<Settings>, name: ResourceName) -> Self {
        Self { lock: Lock::new(shared, settings, name) }
    }

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
        let lock = self.lock.clone(); // so that the future borrows nothing
        async move {
            lock.refuse_to_wait_for_itself(Access::Read)?;
            Ok(ReadGuard { guard: lock.acquire_as(Access::Read).await? })
        }
    }

    /// Tries to read once. It fails at once, without a request, while a caller of this client writes or waits to write.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`](crate::Lock::try_acquire). [`AcquireError::Contended`] names the writer, or one that waits.
    pub fn try_read(&self) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + use<> {
        let lock = self.lock.clone();
        async move {
            lock.refuse_to_wait_for_itself(Access::Read)?;
            Ok(ReadGuard { guard: lock.try_acquire_as(Access::Read).await? })
        }
    }

    /// Waits until it has the lock for itself, as [`Lock::acquire`](crate::Lock::acquire) does.
    ///
    /// It leaves a mark where it finds readers, which lets in no more of them. So it waits for those that read when it came, and however
    /// many others come: the mark is left after a few round trips, and the last reader wakes the writer.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire). The mark is taken away, too, and expires after three seconds.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire).
    pub fn write(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        let lock = self.lock.clone();
        async move {
            lock.refuse_to_wait_for_itself(Access::Write)?;
            lock.acquire_as(Access::Write).await
        }
    }

    /// Tries once, as [`Lock::try_acquire`](crate::Lock::try_acquire) does. It leaves no mark.
    ///
    /// # Cancel safety
    /// Safe, as for [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`](crate::Lock::try_acquire). [`AcquireError::Contended`] says so if readers have it.
    pub fn try_write(&self) -> impl Future<Output = Result<Guard, AcquireError>> + Send + use<> {
        let lock = self.lock.clone();
        async move {
            lock.refuse_to_wait_for_itself(Access::Write)?;
            lock.try_acquire_as(Access::Write).await
        }
    }
}

/// A lock that is read, for as long as [`remaining`](Self::remaining) says.
///
/// It is renewed, and released when it is dropped, as a [`Guard`] is. It has no fencing token, and is no lease that can be moved.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard {
    guard: Guard,
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReadGuard");
        shown.field("resource", &self.resource()).field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

impl ReadGuard {
    #[cfg(feature = "testing")]
    pub(crate) fn lease(&self) -> crate::lease::LeaseView {
        self.guard.lease()
    }

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

    /// Waits until it is lost, and returns why. Instances push no changes of readers: a loss shows with the next renewal, or when
    /// the validity ends.
    ///
    /// # Cancel safety
    /// Safe: it only waits, and may be called again.
    pub async fn lost(&self) -> Loss {
        self.guard.lost().await
    }

    /// Calls `notify` once when it is lost: see [`LeaseView::on_lost`](crate::LeaseView::on_lost).
    pub fn on_lost(&self, notify: impl FnOnce(Loss) + Send + 'static) {
        self.guard.on_lost(notify);
    }

    /// A token that is cancelled when it is lost or given up: see [`LeaseView::loss_token`](crate::LeaseView::loss_token).
    #[cfg(feature = "tokio-util")]
    #[must_use]
    pub fn loss_token(&self) -> tokio_util::sync::CancellationToken {
        self.guard.loss_token()
    }

    /// Keeps it for another ttl from now, and returns the new remaining validity: see [`Guard::extend`].
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        self.guard.extend().await
    }

    /// As [`extend`](Self::extend), with a new ttl, which must not be below its own.
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As for [`Guard::extend_to`].
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.guard.extend_to(ttl).await
    }

    /// Reads no more, and waits until a quorum of instances has answered: see [`Guard::release`].
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<Released, ReleaseError> {
        self.guard.release().await
    }
}
