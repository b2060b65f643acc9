//! A blocking client.

use std::sync::Arc;
use std::time::Duration;

use super::thread::RuntimeThread;
use super::{Blocking, Election, Guard, Lock, LockAll, RwLock, Semaphore};
use crate::config::{Builder, StartError};
use crate::detached::DetachedLease;
use crate::error::{BuildError, ConnectError, ExtendError, ShutdownError};
use crate::instance::InstanceStatus;
use crate::names::ResourceName;
use crate::stats::ClientStats;

/// As [`redquorum::Redlock`](crate::Redlock), for code without a runtime. Clones share the client and its thread.
pub type Redlock = Blocking<crate::Redlock>;

/// What is left of a client is released with the last of its handles.
pub(super) struct Running {
    client: crate::Redlock,
    thread: RuntimeThread,
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
    /// Checks the settings and begins to connect: see [`Builder::build`]. Fails also with [`BuildError::NoThread`].
    pub fn build(builder: Builder) -> Result<Self, BuildError> {
        let thread = RuntimeThread::start()?;
        let client = thread.wait(async { builder.build() })?;
        Ok(Self::on(thread, client))
    }

    /// As `build`, and waits until a quorum of instances is connected: see [`Builder::connect`].
    pub fn connect(builder: Builder) -> Result<Self, StartError> {
        let thread = RuntimeThread::start()?;
        let client = thread.wait(builder.connect())?;
        Ok(Self::on(thread, client))
    }

    fn on(thread: RuntimeThread, client: crate::Redlock) -> Self {
        Self { inner: client.clone(), running: Arc::new(Running { client, thread }) }
    }

    /// The same client for locks whose names begin so: see [`Redlock::namespace`](crate::Redlock::namespace).
    pub fn namespace(&self, namespace: impl AsRef<[u8]>) -> Self {
        self.with(self.inner.namespace(namespace))
    }

    /// A lock. Nothing is sent until it is acquired.
    pub fn lock(&self, name: impl Into<ResourceName>) -> Lock {
        self.with(self.inner.lock(name))
    }

    /// A lock that many read and one writes. Nothing is sent until it is acquired.
    pub fn rw_lock(&self, name: impl Into<ResourceName>) -> RwLock {
        self.with(self.inner.rw_lock(name))
    }

    /// Several locks to be held together. Nothing is sent until they are acquired.
    pub fn lock_all<I>(&self, names: I) -> LockAll
    where
        I: IntoIterator,
        I::Item: Into<ResourceName>,
    {
        self.with(self.inner.lock_all(names))
    }

    /// A semaphore: see [`Redlock::semaphore`](crate::Redlock::semaphore). Nothing is sent until a permit is acquired.
    pub fn semaphore(&self, name: impl Into<ResourceName>, permits: u32) -> Semaphore {
        self.with(self.inner.semaphore(name, permits))
    }

    /// An election: see [`Redlock::election`](crate::Redlock::election). Nothing is sent until a caller campaigns or reads the leader.
    pub fn election(&self, name: impl Into<ResourceName>) -> Election {
        self.with(self.inner.election(name))
    }

    /// Continues a lease that was detached: see [`Redlock::attach`](crate::Redlock::attach).
    pub fn attach(&self, lease: &DetachedLease) -> Result<Guard, ExtendError> {
        self.acquired(self.inner.attach(lease))
    }

    /// Who this client is, as others see it: see [`Redlock::client_id`](crate::Redlock::client_id).
    #[must_use]
    pub fn client_id(&self) -> String {
        self.inner.client_id()
    }

    /// Says that this client will want locks: see [`Redlock::want_locks`](crate::Redlock::want_locks).
    pub fn want_locks(&self) {
        self.inner.want_locks();
    }

    /// Waits until a quorum of instances is connected, at most `limit`: see [`Redlock::wait_connected`](crate::Redlock::wait_connected).
    pub fn wait_connected(&self, limit: Duration) -> Result<(), ConnectError> {
        self.wait(self.inner.wait_connected(limit))
    }

    /// What this client knows of each instance.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.inner.instances()
    }

    /// What this client has done and holds.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.inner.stats()
    }

    /// Ends everything that is held, gives no lock any more, and waits until what was set is released: see
    /// [`Redlock::shutdown`](crate::Redlock::shutdown).
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.wait(self.inner.shutdown(limit))
    }

    /// As `shutdown`, after waiting at most `patience` until held locks are released: see
    /// [`Redlock::shutdown_gracefully`](crate::Redlock::shutdown_gracefully).
    pub fn shutdown_gracefully(&self, patience: Duration, limit: Duration) -> Result<(), ShutdownError> {
        self.wait(self.inner.shutdown_gracefully(patience, limit))
    }
}
