//! What the work that a lock protects sees of it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Settings;
use crate::error::{Loss, loss};
use crate::names::ResourceName;
use crate::protocol::{Access, FencingToken};
use crate::runtime::Shared;
use crate::runtime::held_lease::Tenure;
use crate::runtime::tasks::with_timers;

/// A read-only view of a lease: it neither extends nor releases it. Cheap to clone.
///
/// Given to the work by [`Lock::run`](crate::Lock::run) and by [`Guard::lease`](crate::Guard::lease). A guard has all its
/// methods, too. That of a [`Reader`] has no fencing token.
#[derive(Clone)]
pub struct LeaseView<M: Mode = Writer> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) tenure: Tenure,
    mode: PhantomData<M>,
}

/// How a lock is held: by a [`Writer`] or a [`Reader`].
pub trait Mode: Clone + Send + Sync + 'static {
    #[doc(hidden)]
    const ACCESS: Access;
}

/// In the type of a [`Guard`](crate::Guard): the lock is held alone.
#[derive(Clone, Copy, Debug)]
pub struct Writer;

/// In the type of a [`Guard`](crate::Guard): the lock is read, together with others.
#[derive(Clone, Copy, Debug)]
pub struct Reader;

impl Mode for Writer {
    const ACCESS: Access = Access::Write;
}

impl Mode for Reader {
    const ACCESS: Access = Access::Read;
}

/// How many instances store the keys of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redundancy {
    /// Those that granted the last round that was won, and were not found without the key since.
    pub held_on: usize,
    /// How many instances are configured.
    pub instances: usize,
    /// How many are needed.
    pub quorum: usize,
}

impl Redundancy {
    /// How many instances may lose the key before another client can take the lock. Zero means a bare
    /// quorum: the loss of the key on a single instance can end the lease.
    #[must_use]
    pub const fn spare(self) -> usize {
        // Another client needs a quorum of those that do not have it.
        (self.held_on + self.quorum).saturating_sub(self.instances + 1)
    }
}

impl LeaseView {
    /// The number to store with what the lock protects; larger for every later holder.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock, db: &dyn Fn(&str, i64)) -> Result<(), redquorum::AcquireError> {
    /// let guard = redlock.lock("account:7").acquire().await?;
    /// let fence = guard.fencing_token().as_i64();
    /// // 0 rows changed means: a later holder has written, give up.
    /// db("UPDATE account SET balance = 5, fence = $1 WHERE id = 7 AND fence <= $1", fence);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.tenure.token
    }
}

impl<M: Mode> LeaseView<M> {
    pub(crate) const fn new(shared: Arc<Shared>, settings: Arc<Settings>, tenure: Tenure) -> Self {
        Self { shared, settings, tenure, mode: PhantomData }
    }

    /// What is locked: the name that was given, without the namespace.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.namespace("account:").lock(7).acquire().await?;
    /// assert_eq!(guard.resource(), "7".into());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn resource(&self) -> ResourceName {
        self.tenure.claim().resource.name(&self.settings.namespace)
    }

    /// Whether the lock may still be relied on, by this machine's clock. Once false it stays so.
    ///
    /// True now does not mean true at the time of the next write: a pause may lie between. Only a
    /// fencing token protects against that.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lock may still be relied on; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.shared.is_forked() { Duration::ZERO } else { self.tenure.remaining(&*self.shared.clock) }
    }

    /// How many instances store the lock's keys, according to their answers so far.
    ///
    /// An acquire does not wait for slow instances, so the number may still grow for a moment after it.
    /// Each renewal sets the keys again where they are missing.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        let (quorum, rests_on) = (self.shared.quorum, self.tenure.held.state().lease.rests_on());
        Redundancy { held_on: rests_on.len(), instances: quorum.instances(), quorum: quorum.votes() }
    }

    /// Waits until the lock is lost, and returns why; [`Loss::GivenUp`] once its guard is gone. Any number of tasks may wait.
    ///
    /// It resolves at once when validity ends on the local clock. It also resolves when the keys were
    /// deleted or taken over on so many instances that no quorum can still hold them: within a few round
    /// trips where the instances push changes (`CLIENT TRACKING`, for up to 4 096 keys of a
    /// client), otherwise at the next renewal; with [`Renewal::Off`](crate::Renewal::Off) there is none. Instances push no changes of
    /// readers.
    ///
    /// ```no_run
    /// # async fn f(guard: redquorum::Guard, work: tokio::task::JoinHandle<()>) {
    /// tokio::select! {
    ///     loss = guard.lost() => eprintln!("stopping: {loss}"),
    ///     _ = work => {}
    /// }
    /// # }
    /// ```
    ///
    /// Where a future does not fit there is [`on_lost`](Self::on_lost), and with the feature `tokio-util` a token
    /// (`loss_token`).
    ///
    /// # Cancel safety
    /// Safe: it only waits, and may be called again.
    pub async fn lost(&self) -> Loss {
        if self.shared.is_forked() {
            return Loss::Forked;
        }
        self.shared.keep_alive.watch(&self.tenure.held);
        let end = with_timers(&self.shared.runtime, self.tenure.wait_for_end(&*self.shared.clock)).await;
        loss(&self.shared, end)
    }

    /// Calls `notify` once when the lock is lost, in a task of the client; never if the guard is released or dropped
    /// before. It must not block.
    ///
    /// If the runtime in which the client was built ends before, it is called then, with [`Loss::RuntimeEnded`]: the lock is
    /// not renewed any more.
    ///
    /// ```
    /// # use redquorum::testing::{Cluster, TestInstance};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let must_stop = Arc::new(AtomicBool::new(false));
    /// let guard = redlock.lock("job").acquire().await?;
    /// let stop = Arc::clone(&must_stop);
    /// guard.on_lost(move |loss| {
    ///     eprintln!("stopping: {loss}");
    ///     stop.store(true, Ordering::Relaxed);
    /// });
    /// # cluster.instances().for_each(|instance| { instance.remove("job"); });
    /// # while !must_stop.load(Ordering::Relaxed) { tokio::time::sleep(std::time::Duration::from_millis(5)).await; }
    /// # Ok(()) }
    /// ```
    pub fn on_lost(&self, notify: impl FnOnce(Loss) + Send + 'static) {
        if self.shared.is_forked() {
            return notify(Loss::Forked);
        }
        let (lease, notifier) = (self.clone(), LossNotifier(Some(notify)));
        self.shared.runtime.spawn(async move {
            let mut notifier = notifier; // whole, so that it is dropped with this
            match (lease.lost().await, notifier.0.take()) {
                (Loss::GivenUp, _) | (_, None) => {}
                (loss, Some(notify)) => notify(loss),
            }
        });
    }

    /// A token that is cancelled when the lock is lost or given up, for work that takes one.
    ///
    /// It is also cancelled when the runtime in which the client was built ends. Each call makes another token, and
    /// cancelling it changes nothing else.
    ///
    /// ```
    /// # use redquorum::testing::{Cluster, TestInstance};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.lock("job").acquire().await?;
    /// let token = guard.loss_token();
    /// let work = tokio::spawn(async move {
    ///     token.run_until_cancelled(std::future::pending::<()>()).await
    /// });
    /// # cluster.instances().for_each(|instance| { instance.remove("job"); });
    /// assert!(work.await?.is_none(), "it was dropped where it waited");
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tokio-util")]
    #[must_use]
    pub fn loss_token(&self) -> tokio_util::sync::CancellationToken {
        let token = tokio_util::sync::CancellationToken::new();
        let (lease, cancel) = (self.clone(), token.clone().drop_guard());
        if self.shared.is_forked() {
            return token; // and cancels it
        }
        self.shared.runtime.spawn(async move {
            let _ = lease.lost().await;
            drop(cancel); // it is also dropped if the runtime ends
        });
        token
    }

    /// Shows the lease under the name of what holds this view.
    pub(crate) fn show_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        shown.field("resource", &self.tenure.claim().resource);
        if M::ACCESS == Access::Write {
            shown.field("fencing_token", &self.tenure.token.get());
        }
        shown.field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

impl<M: Mode> fmt::Debug for LeaseView<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show_as("LeaseView", f)
    }
}

/// What is to be called when a lease is lost, or when the task that waits for that is dropped with its runtime.
struct LossNotifier<F: FnOnce(Loss)>(Option<F>);

impl<F: FnOnce(Loss)> Drop for LossNotifier<F> {
    fn drop(&mut self) {
        if let Some(notify) = self.0.take() {
            notify(Loss::RuntimeEnded);
        }
    }
}
