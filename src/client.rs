//! The client: makes locks, and shuts down.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::config::{Builder, Renewal, Settings};
use crate::detached::DetachedLease;
use crate::election::Election;
use crate::error::{
    BadRequest, ConnectError, ExtendError, ShutdownError, Unreleased, connect_error, extend_error, not_shut_down,
    unreleased,
};
use crate::guard::Guard;
use crate::inspection::{ForcedRelease, Inspection, force_release, inspect};
use crate::instance::{AdmissionStatus, InstanceStatus};
use crate::lock::Lock;
use crate::lock_all::LockAll;
use crate::names::{ResourceName, display_name};
use crate::protocol::{Access, CurrentHolder};
use crate::resource::Resource;
use crate::runtime::Shared;
use crate::runtime::acquire::{AcquireParams, Purpose};
use crate::runtime::attach::{Detached, attach};
use crate::runtime::extend::ExtendFailure;
use crate::runtime::tasks::with_timers;
use crate::rw_lock::RwLock;
use crate::semaphore::Semaphore;
use crate::span;
use crate::stats::{ClientStats, stats};

/// A client of N independent instances. Cheap to clone; clones share connections.
///
/// Connections are made and kept up in the background. When the last clone, the last [`Lock`] and the last guard are
/// dropped, outstanding releases are finished and then the connections are closed; call
/// [`shutdown`](Self::shutdown) before the runtime ends to wait for that.
///
/// A client does not survive `fork()`: connections and locks stay with the process that built it, which a child cannot
/// disturb. In the child every call fails at once, acquires with
/// [`AcquireError::ClientUnusable`](crate::AcquireError::ClientUnusable), others with [`BadRequest::Forked`]; no guard is valid, and
/// dropping one releases nothing. Fork before you build a client, and build one in each process. Do not continue a tokio
/// runtime in a child: it has the parent's registry of sockets.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<&str> = self.shared.instances.iter().map(|instance| instance.address()).collect();
        f.debug_struct("Redlock")
            .field("instances", &addresses)
            .field("quorum", &self.shared.quorum.votes())
            .field("namespace", &display_name(&self.settings.namespace))
            .field("ttl", &self.settings.ttl)
            .finish_non_exhaustive()
    }
}

impl Redlock {
    /// Begins to set up a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    #[cfg(feature = "testing")]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) const fn new(shared: Arc<Shared>, settings: Arc<Settings>) -> Self {
        Self { shared, settings }
    }

    /// A client over the same connections whose keys begin with `namespace` after this one's.
    ///
    /// ```no_run
    /// # fn f(redlock: redquorum::Redlock) {
    /// let orders = redlock.namespace("orders:");
    /// let lock = orders.lock("42"); // the key is "orders:42"
    /// # let _ = lock; }
    /// ```
    #[must_use]
    pub fn namespace(&self, namespace: impl AsRef<[u8]>) -> Self {
        let namespace = [&*self.settings.namespace, namespace.as_ref()].concat();
        Self {
            shared: Arc::clone(&self.shared),
            settings: Arc::new(Settings { namespace: namespace.into(), ..Settings::clone(&self.settings) }),
        }
    }

    /// The id of this client, in twelve hexadecimal digits. Errors, events and messages of other clients name it. Drawn anew for each
    /// client.
    ///
    /// ```no_run
    /// # fn f(redlock: redquorum::Redlock) {
    /// println!("this is client {}", redlock.client_id());
    /// # }
    /// ```
    #[must_use]
    pub fn client_id(&self) -> String {
        self.shared.tokens.client().to_string()
    }

    /// A lock. Nothing is sent until it is acquired.
    pub fn lock(&self, name: impl Into<ResourceName>) -> Lock {
        Lock::new(Arc::clone(&self.shared), Arc::clone(&self.settings), name.into())
    }

    /// A lock that many read and one writes: [`RwLock`]. Nothing is sent until it is acquired.
    pub fn rw_lock(&self, name: impl Into<ResourceName>) -> RwLock {
        RwLock { lock: self.lock(name) }
    }

    /// Several locks to be held together: [`LockAll`]. Nothing is sent until they are acquired.
    pub fn lock_all<I>(&self, names: I) -> LockAll
    where
        I: IntoIterator,
        I::Item: Into<ResourceName>,
    {
        LockAll { names: names.into_iter().map(Into::into).collect(), each: self.lock("") }
    }

    /// A semaphore: at most so many permits are valid at any time, in all clients together. Nothing is sent until one is acquired.
    ///
    /// Bad numbers, zero or more than 256, are refused when one is acquired.
    pub fn semaphore(&self, name: impl Into<ResourceName>, permits: u32) -> Semaphore {
        Semaphore { name: name.into(), permits, each: self.lock("").meant_for(Purpose::Permit) }
    }

    /// An election: one of several candidates leads, and others can see which. Nothing is sent until a caller campaigns or reads the leader.
    pub fn election(&self, name: impl Into<ResourceName>) -> Election {
        Election { lock: self.lock(name) }
    }

    /// Continues a lease that was [detached](Guard::detach), by this client or by another one.
    ///
    /// It sends one round, which extends the keys that exist and sets none. Fencing token and holder stay the same. The lease is renewed
    /// by this client's defaults, and released with its guard.
    ///
    /// A copy that is attached while another guard of the lease lives shares the lease with it. In one client the last of them releases
    /// it, and no copy is attached after that. In two clients the first does, and the other loses it. So attach one copy only.
    ///
    /// Behind a mark of [`keep_for`](Guard::keep_for) a copy has the lock again, as no other client has had it since. Its release ends
    /// the mark.
    ///
    /// # Guarantees
    /// On success a quorum stores this lease, so no other client holds the lock. Attach it before its ttl has passed: after that, extends
    /// of the former client that arrive late may have set its keys again, and another client may have held the lock in between. If it fails
    /// nothing is deleted.
    ///
    /// # Cancel safety
    /// Safe: the lease stays detached. It may be extended by what was sent.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] if no quorum has it any more, or if it was over when it was detached; [`ExtendError::Unconfirmed`] if too few
    /// instances answered: try again, here or elsewhere; [`ExtendError::ClientUnusable`] if this client was shut down: attach it elsewhere;
    /// [`ExtendError::BadRequest`] for a ttl above `max_ttl`.
    pub async fn attach(&self, lease: &DetachedLease) -> Result<Guard, ExtendError> {
        self.shared.check_process().map_err(BadRequest::from)?;
        let resource = Resource::new(b"", &lease.key).map_err(BadRequest::from)?;
        let terms = self.settings.terms(Some(lease.ttl))?;
        let span = span::operation!("attach", resource.display());
        let value = lease.value.as_ref();
        let holder = value.and_then(|value| CurrentHolder::from_value(value.as_bytes()).holder);
        let holder = holder.unwrap_or_default().into();
        let (renews, max_hold) = (self.settings.renewal == Renewal::Auto, self.settings.max_hold);
        let (access, purpose) = (Access::Write, Purpose::Lock);
        let params = Arc::new(AcquireParams { resource, access, terms, holder, renews, max_hold, purpose });
        let detached = value.map(|value| Detached { value: value.clone(), token: lease.token });
        let result = match detached {
            Some(detached) => attach(&self.shared, &params, detached).instrument(span.clone()).await,
            None => Err(ExtendFailure::LeaseLost(None)),
        };
        let guard = |tenure| Guard::new(Arc::clone(&self.shared), Arc::clone(&self.settings), tenure);
        let result = result.map(guard).map_err(|failure| extend_error(&self.shared, failure));
        match &result {
            Ok(_) => span::ended(&span, "attached"),
            Err(error) => span::failed(&span, error.kind(), error),
        }
        result
    }

    /// Starts the quarantine of new instances, as the first acquire does: from now on this client writes the admission records of
    /// instances that have none. Before that a client changes nothing on any instance. Call it if a service reports that it is ready
    /// before it locks anything.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), redquorum::StartError> {
    /// let redlock = redquorum::Redlock::builder().instances(["redis://10.0.0.1"]).connect().await?;
    /// redlock.want_locks();
    /// # Ok(()) }
    /// ```
    pub fn want_locks(&self) {
        self.shared.instances.iter().for_each(|instance| instance.want_locks());
    }

    /// Waits until a quorum of instances is connected, at most `limit`.
    ///
    /// Instances in quarantine count as connected; those that refuse this client for its settings do not. It may take one instance
    /// timeout longer, for the other instances to connect.
    ///
    /// # Cancel safety
    /// Safe: it only waits.
    ///
    /// # Errors
    /// [`ConnectError`] with the cause for each instance that is not connected.
    pub async fn wait_connected(&self, limit: Duration) -> Result<(), ConnectError> {
        let begun = self.shared.clock.now();
        if self.shared.unusable().is_some() {
            return Err(connect_error(&self.shared, begun));
        }
        let waits: FuturesUnordered<_> =
            self.shared.instances.iter().map(|instance| instance.wait_accepted()).collect();
        let quorum = waits.take(self.shared.quorum.votes()).for_each(|()| std::future::ready(()));
        let connected = async {
            timeout(limit, quorum).await.map_err(|_| connect_error(&self.shared, begun))?;
            self.settled().await;
            Ok(())
        };
        with_timers(&self.shared.runtime, connected).await
    }

    /// Gives all instances a moment to be connected, so that the first lock need not do with a bare quorum.
    async fn settled(&self) {
        let begun = self.shared.clock.now();
        while self.instances().iter().any(|status| status.admission == AdmissionStatus::Unknown) {
            if self.shared.clock.now().saturating_since(begun) >= self.shared.instance_timeout {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The status of each instance, in the configured order. Cheap: nothing is sent.
    ///
    /// ```no_run
    /// # fn f(redlock: redquorum::Redlock) {
    /// for instance in redlock.instances() {
    ///     println!("{}: {:?}", instance.address, instance.admission);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceStatus> {
        self.shared.instances.iter().map(|instance| instance.status()).collect()
    }

    /// Who holds a lock: for how long, on which instances, and who waits. Changes nothing.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// # let _guard = redlock.lock("job").acquire().await?;
    /// let inspection = redlock.inspect("job").await?;
    /// match inspection.holder() {
    ///     Some(holder) => println!("{} has it on {:?}, for {:?}", holder.by, holder.on, holder.expires_in),
    ///     None => println!("no client has it on a quorum: {inspection:?}"),
    /// }
    /// # assert!(inspection.holder().is_some()); Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    ///
    /// # Errors
    /// [`BadRequest`] for a name that cannot be locked. Instances that do not answer within the instance
    /// timeout are named in the [`Inspection`].
    pub async fn inspect(&self, name: impl Into<ResourceName>) -> Result<Inspection, BadRequest> {
        let resource = self.lock(name).resource_to_ask()?;
        Ok(inspect(&self.shared, &resource).await)
    }

    /// Takes a lock away from `expected`: deletes its key on every instance where that client still has it. For operators: the former
    /// holder's work may continue beside that of the next one until it notices the loss, and only the fencing token decides whose
    /// writes count.
    ///
    /// The former holder notices it like any loss: by push, or at its next renewal, a third of its ttl later at the latest. With
    /// [`Renewal::Off`] it notices only while it waits for the loss, and else when its validity ends. All clients of another library
    /// look the same here. What is no lock of this library stays: it may be another program's data.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let (redlock, stuck) = (cluster.builder().connect().await?, cluster.builder().connect().await?);
    /// # let guard = stuck.lock("job").acquire().await?;
    /// if let Some(holder) = redlock.inspect("job").await?.holder() {
    ///     let forced = redlock.force_release("job", &holder.by).await?;
    ///     assert!(forced.is_complete(), "{forced:?}");
    /// }
    /// # guard.lost().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// What was sent is carried out. It may be called again.
    ///
    /// # Errors
    /// [`BadRequest`] for a name that cannot be locked. What happened on each instance is in the
    /// [`ForcedRelease`]; nothing is sent again.
    pub async fn force_release(
        &self,
        name: impl Into<ResourceName>,
        expected: &CurrentHolder,
    ) -> Result<ForcedRelease, BadRequest> {
        let resource = self.lock(name).resource_to_ask()?;
        Ok(force_release(&self.shared, &resource, expected).await)
    }

    /// Counters of this client since it was built, and its present state. Cheap: nothing is sent.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.lock("job").acquire().await?;
    /// assert!(redlock.lock("job").try_acquire().await.is_err());
    /// let stats = redlock.stats();
    /// assert_eq!((stats.acquired, stats.contended, stats.held), (1, 1, 1));
    /// # drop(guard); Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        stats(&self.shared)
    }

    /// Records gauges, and the requests to each instance since the last call, for the facade `metrics`. Call it before
    /// each scrape, or every few seconds. Acquires and renewals are recorded as they happen.
    /// `docs/operations.md` names all metrics.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock) {
    /// tokio::spawn(async move {
    ///     loop {
    ///         redlock.record_metrics();
    ///         tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    ///     }
    /// });
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        crate::recording::record(&self.shared);
    }

    /// Ends the client: it grants no lock from the moment of the call, ends and releases those that are held, and waits until all
    /// reachable instances confirm that, at most `limit`. It waits for instances without a connection for one instance timeout at most.
    ///
    /// A held lock ends at once, as [`Loss::ShutDown`](crate::Loss::ShutDown): it is not valid or renewed any more,
    /// [`lost`](crate::LeaseView::lost) resolves, and [`run`](Lock::run) drops its work. It is released when its guard is
    /// dropped, so that no other client gets it before its work has stopped; but one instance timeout later in any case, or after half
    /// of the `limit` if that is shorter. To let work end first, call
    /// [`shutdown_gracefully`](Self::shutdown_gracefully).
    ///
    /// An acquire that is under way returns no lock any more: it ends with
    /// [`AcquireError::ClientUnusable`](crate::AcquireError::ClientUnusable), and the keys that it has set are released. A
    /// lock that was won before for a future that is not polled is released when that is polled or
    /// dropped, and ends with its ttl.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// use redquorum::{AcquireError, Loss};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.lock("job").acquire().await?;
    /// let stopping = tokio::spawn(async move { guard.lost().await }); // and drops the guard then
    /// redlock.shutdown(Duration::from_secs(5)).await?;
    /// assert!(matches!(stopping.await?, Loss::ShutDown));
    /// assert!(matches!(redlock.lock("job").acquire().await, Err(AcquireError::ClientUnusable(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: releases continue in the background. The client stays shut down.
    ///
    /// # Errors
    /// [`ShutdownError`] if a lock may still be held: no quorum has confirmed its release in time.
    ///
    /// If a quorum has confirmed each of them, the result names the other instances that have not, as those that are down: how many
    /// releases, and why. Keys that are left expire with their ttl.
    pub async fn shutdown(&self, limit: Duration) -> Result<Vec<Unreleased>, ShutdownError> {
        if self.shared.is_forked() {
            return Err(not_shut_down(&self.shared));
        }
        let is_released = with_timers(&self.shared.runtime, self.shared.drain(limit)).await;
        let unreleased = unreleased(&self.shared);
        if is_released { Ok(unreleased) } else { Err(ShutdownError { unreleased }) }
    }

    /// Grants no lock from the moment of the call, waits until held ones are released or dropped, at most `patience`, and then
    /// does what [`shutdown`](Self::shutdown) does. Held locks are renewed meanwhile.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.lock("job").acquire().await?;
    /// let work = tokio::spawn(async move {
    ///     tokio::time::sleep(Duration::from_millis(20)).await;
    ///     guard.is_valid()
    /// });
    /// redlock.shutdown_gracefully(Duration::from_secs(30), Duration::from_secs(5)).await?;
    /// assert!(work.await?, "it came to its end under the lock");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: the client grants no more locks, and held ones continue.
    ///
    /// # Errors
    /// As for [`shutdown`](Self::shutdown).
    pub async fn shutdown_gracefully(
        &self,
        patience: Duration,
        limit: Duration,
    ) -> Result<Vec<Unreleased>, ShutdownError> {
        if !self.shared.is_forked() {
            with_timers(&self.shared.runtime, self.shared.wait_for_guards(patience)).await;
        }
        self.shutdown(limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;

    #[tokio::test]
    async fn in_another_process_than_its_own_a_client_gives_no_locks() {
        let mut redlock = Redlock::builder().instances(["redis://127.0.0.1:1"]).build().unwrap();
        Arc::get_mut(&mut redlock.shared).unwrap().process = Process::OTHER;
        for error in [redlock.lock("a").acquire().await, redlock.lock("a").holder("me".into()).try_acquire().await] {
            assert!(matches!(error, Err(ref error) if error.kind() == "forked"), "{error:?}");
        }
    }
}
