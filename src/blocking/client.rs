//! A blocking client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::election::Election;
use super::guard::Guard;
use super::lock::Lock;
use super::lock_all::LockAll;
use super::rw_lock::RwLock;
use super::semaphore::Semaphore;
use super::thread::RuntimeThread;
use crate::client::Redlock as AsyncRedlock;
use crate::config::{Builder, StartError};
use crate::detached::DetachedLease;
use crate::error::{BuildError, ConnectError, ExtendError, ShutdownError};
use crate::instance::InstanceStatus;
use crate::names::{ResourceName, ResourceNames};
use crate::stats::ClientStats;

/// As [`redquorum::Redlock`](crate::Redlock), for code without a runtime. Clones share the client and its thread.
///
/// The last of its handles, guards included, waits when it is dropped until released locks are confirmed, for a second
/// at most; an instance that cannot be reached is not waited for longer than an instance timeout.
#[derive(Clone)]
pub struct Redlock {
    client: AsyncRedlock,
    running: Arc<Running>,
}

/// What is left of a client is released with the last of its handles.
pub(super) struct Running {
    client: AsyncRedlock,
    thread: RuntimeThread,
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Redlock").field(&self.client).finish()
    }
}

impl Running {
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.thread.wait(future)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.thread.end(self.client.clone());
    }
}

impl Redlock {
    /// As [`Builder::build`]: checks the settings and begins to connect.
    ///
    /// # Errors
    /// As there, and [`BuildError::NoThread`].
    pub fn build(builder: Builder) -> Result<Self, BuildError> {
        let thread = RuntimeThread::start()?;
        let client = thread.wait(async { builder.build() })?;
        let running = Arc::new(Running { client: client.clone(), thread });
        Ok(Self { client, running })
    }

    /// As [`Builder::connect`]: also waits until a quorum of instances is connected.
    ///
    /// # Errors
    /// As there, and [`BuildError::NoThread`].
    pub fn connect(builder: Builder) -> Result<Self, StartError> {
        let thread = RuntimeThread::start()?;
        let client = thread.wait(builder.connect())?;
        let running = Arc::new(Running { client: client.clone(), thread });
        Ok(Self { client, running })
    }

    /// The same client for locks whose names begin so: see [`Redlock::namespace`](crate::Redlock::namespace).
    pub fn namespace(&self, namespace: impl AsRef<[u8]>) -> Self {
        Self { client: self.client.namespace(namespace), running: Arc::clone(&self.running) }
    }

    /// A lock. Nothing is sent until it is acquired.
    pub fn lock(&self, name: impl Into<ResourceName>) -> Lock {
        Lock::new(self.client.lock(name), Arc::clone(&self.running))
    }

    /// A lock that many read and one writes. Nothing is sent until it is acquired.
    pub fn rw_lock(&self, name: impl Into<ResourceName>) -> RwLock {
        RwLock::new(self.client.rw_lock(name), Arc::clone(&self.running))
    }

    /// Several locks to be held together. Nothing is sent until they are acquired.
    pub fn lock_all(&self, names: impl Into<ResourceNames>) -> LockAll {
        LockAll::new(self.client.lock_all(names), Arc::clone(&self.running))
    }

    /// A semaphore: see [`Redlock::semaphore`](crate::Redlock::semaphore). Nothing is sent until a permit is acquired.
    pub fn semaphore(&self, name: impl Into<ResourceName>, permits: u32) -> Semaphore {
        Semaphore::new(self.client.semaphore(name, permits), Arc::clone(&self.running))
    }

    /// An election: see [`Redlock::election`](crate::Redlock::election). Nothing is sent until somebody campaigns or asks.
    pub fn election(&self, name: impl Into<ResourceName>) -> Election {
        Election::new(self.client.election(name), Arc::clone(&self.running))
    }

    /// Continues a lease that was detached: see [`Redlock::attach`](crate::Redlock::attach).
    ///
    /// # Errors
    /// As there.
    pub fn attach(&self, lease: &DetachedLease) -> Result<Guard, ExtendError> {
        let guard = self.running.wait(self.client.attach(lease))?;
        Ok(Guard::new(guard, Arc::clone(&self.running)))
    }

    /// Who this client is, as others see it: see [`Redlock::client_id`](crate::Redlock::client_id).
    #[must_use]
    pub fn client_id(&self) -> String {
        self.client.client_id()
    }

    /// Says that this client will want locks: see [`Redlock::want_locks`](crate::Redlock::want_locks).
    pub fn want_locks(&self) {
        self.client.want_locks();
    }

    /// Waits until a quorum of instances is connected, at most `limit`.
    ///
    /// # Errors
    /// [`ConnectError`] says what is missing.
    pub fn wait_connected(&self, limit: Duration) -> Result<(), ConnectError> {
        self.running.wait(self.client.wait_connected(limit))
    }

    /// What this client knows of each instance.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.client.instances()
    }

    /// What this client has done and holds.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.client.stats()
    }

    /// Ends everything that is held, gives no lock any more, and waits until what was set is released: see
    /// [`Redlock::shutdown`](crate::Redlock::shutdown).
    ///
    /// # Errors
    /// [`ShutdownError`] names what could not be released in time.
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.running.wait(self.client.shutdown(limit))
    }

    /// As [`shutdown`](Self::shutdown), after waiting at most `patience` until held locks are released: see
    /// [`Redlock::shutdown_gracefully`](crate::Redlock::shutdown_gracefully).
    ///
    /// # Errors
    /// As for [`shutdown`](Self::shutdown).
    pub fn shutdown_gracefully(&self, patience: Duration, limit: Duration) -> Result<(), ShutdownError> {
        self.running.wait(self.client.shutdown_gracefully(patience, limit))
    }
}
