//! The handle of a lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::config::Settings;
use crate::detached::DetachedLease;
use crate::error::{ExtendError, Loss, ReleaseError, extend_error, release_error};
use crate::lease::{LeaseView, Redundancy};
use crate::names::ResourceName;
use crate::protocol::FencingToken;
use crate::runtime::Shared;
use crate::runtime::extend::{ExtendFailure, extend};
use crate::runtime::held_lease::Tenure;
use crate::runtime::keep::keep_for;
use crate::runtime::release::{ReleaseOutcome, release};
use crate::span;

/// A held lock, valid for as long as [`remaining`](Self::remaining) says.
///
/// It is renewed in the background until it is released, unless [`Renewal::Off`](crate::Renewal::Off)
/// is set. Dropping it releases the lock in the background, from any thread, and never blocks.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    lease: LeaseView,
    /// Whether the lease was left: nothing to do when this is dropped.
    has_left: bool,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether a quorum of instances still held the lock for this guard. If not, it had expired or
    /// was taken away, and the work may have run beside that of another holder: the fencing token
    /// decides whose writes count.
    pub was_still_held: bool,
}

impl Guard {
    pub(crate) const fn new(shared: Arc<Shared>, settings: Arc<Settings>, tenure: Tenure) -> Self {
        Self { lease: LeaseView::new(shared, settings, tenure), has_left: false }
    }

    /// Whether somebody else of this client had the lease before.
    pub(crate) const fn was_handed_over(&self) -> bool {
        self.lease.tenure.was_handed_over()
    }

    /// Whether less than a fifth is left of what was asked for, or of what its lease is for where that is less: then a lock
    /// is not given (P2).
    pub(crate) fn has_aged(&self, asked: Duration) -> bool {
        let Ok(terms) = self.lease.settings.terms(Some(self.lease.tenure.claim().ttl.min(asked))) else { return true };
        self.remaining() < terms.min_remaining()
    }

    /// The name of the lock, without the namespace.
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
        self.lease.resource()
    }

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
        self.lease.fencing_token()
    }

    /// Whether the lock may still be relied on, by this machine's clock. Once false it stays so.
    ///
    /// True now does not mean true at the time of the next write: a pause may lie between. Only a
    /// fencing token protects against that.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// How long the lock may still be relied on; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// How many instances store the lock's keys, according to their answers so far.
    ///
    /// An acquire does not wait for slow instances, so the number may still grow for a moment after it.
    /// Each renewal sets the keys again where they are missing.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        self.lease.redundancy()
    }

    /// Waits until the lock is lost, and returns why. Any number of tasks may wait.
    ///
    /// It resolves at once when validity ends on the local clock. It also resolves when the keys were
    /// deleted or taken over on so many instances that no quorum can still hold them: within a few round
    /// trips where the instances push changes (`CLIENT TRACKING`, for up to 4 096 keys of a
    /// client), otherwise at the next renewal.
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
        self.lease.lost().await
    }

    /// Calls `notify` once when the lock is lost, in a task of the client; never if the guard is released or dropped
    /// before. It must not block.
    ///
    /// If the runtime in which the client was built ends before, it is called then, with [`Loss::RuntimeEnded`]: nobody
    /// renews the lock any more.
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
        self.lease.on_lost(notify);
    }

    /// A token that is cancelled when the lock is lost or given up, for work that takes one.
    ///
    /// It is also cancelled when the runtime in which the client was built ends. Each call makes another token; to cancel it
    /// changes nothing else.
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
        self.lease.loss_token()
    }

    /// A view of the lease, to be given to the work that the lock protects.
    #[must_use]
    pub fn lease(&self) -> LeaseView {
        self.lease.clone()
    }

    /// Keeps the lock for another ttl from now, and returns the new remaining validity.
    ///
    /// Where an instance has lost the key (it was restarted, or was unreachable when the lock was
    /// taken), the key is set again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redquorum::testing::{Cluster, TestInstance};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// # let guard = redlock.lock("job").acquire().await?;
    /// # let mut steps = 0;
    /// let loss = loop {
    ///     tokio::select! {
    ///         loss = guard.lost() => break loss,
    ///         () = tokio::time::sleep(Duration::from_millis(20)) => match guard.extend().await {
    ///             Ok(left) => println!("valid for {left:?}"),
    ///             Err(error) => println!("not extended: {error}"), // if it is lost, the branch above says so
    ///         },
    ///     }
    /// #   steps += 1;
    /// #   if steps == 2 { cluster.instances().for_each(TestInstance::flush); }
    /// };
    /// # println!("{loss}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Guarantees
    /// On success a quorum confirmed the lock while it was still valid; a lock that is lost is never
    /// revived. On failure nothing is deleted and the lock stays valid for as long as it was.
    ///
    /// # Cancel safety
    /// Safe: it continues in the background and may still move the validity. It may be called again.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] once the validity has passed; [`ExtendError::Unconfirmed`] if no
    /// quorum answered in time, which may be tried again.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        let ttl = self.lease.tenure.claim().ttl;
        self.extend_with(Some(ttl)).await
    }

    /// As [`extend`](Self::extend), with a new ttl, which must not be below the lock's own.
    ///
    /// # Cancel safety
    /// As for [`extend`](Self::extend).
    ///
    /// # Errors
    /// Also [`ExtendError::WouldShorten`], and [`ExtendError::BadRequest`] for a ttl above `max_ttl`.
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.extend_with(Some(ttl)).await
    }

    async fn extend_with(&self, ttl: Option<Duration>) -> Result<Duration, ExtendError> {
        let terms = self.lease.settings.terms(ttl)?;
        let LeaseView { shared, tenure, .. } = &self.lease;
        let span = span::operation!("extend", tenure.claim().resource.display());
        let extended = async {
            if !self.is_valid() {
                return Err(ExtendFailure::LeaseLost(None)); // others of its holder may have the lease still
            }
            extend(shared, tenure.held(), Some(tenure.guard()), terms).await
        };
        let result = extended.instrument(span.clone()).await;
        let result = result.map_err(|failure| extend_error(shared, failure));
        match &result {
            Ok(_) => span::ended(&span, "extended"),
            Err(error) => span::failed(&span, error.kind(), error),
        }
        result
    }

    /// Releases the lock and waits until a quorum of instances has answered.
    ///
    /// If another caller of this client waits for the lock, it gets it at once instead, without a request:
    /// then [`was_still_held`](Released::was_still_held) is what this client knows.
    ///
    /// # Guarantees
    /// Only keys that still hold this lock's own value are deleted. From the moment of the call the lock
    /// counts as released, also if the release is not confirmed.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # Errors
    /// [`ReleaseError::Unconfirmed`] if too few instances answered. The release continues in the
    /// background, and the keys expire with their ttl at the latest: do not repeat it.
    pub async fn release(mut self) -> Result<Released, ReleaseError> {
        self.has_left = true;
        let LeaseView { shared, tenure, .. } = &self.lease;
        let (is_valid, is_gone) = (self.is_valid(), tenure.held().is_gone());
        let Some(due) = shared.begin_to_let_go(tenure.held(), Some(tenure.guard())) else {
            return Ok(Released { was_still_held: is_valid }); // somebody else of this client has it
        };
        let released = release(shared, due); // sent before anybody listens, who may panic
        let span = span::operation!("release", tenure.claim().resource.display());
        let was_still_held = match released.instrument(span.clone()).await {
            ReleaseOutcome::WasHeld => !is_gone,
            ReleaseOutcome::WasNotHeld => false,
            ReleaseOutcome::Unconfirmed(round) => {
                let error = release_error(shared, &round);
                span::failed(&span, "unconfirmed", &error);
                return Err(error);
            }
        };
        span::ended(&span, if was_still_held { "released" } else { "not_held" });
        Ok(Released { was_still_held })
    }

    /// Ends the guard without releasing the lock: no client gets it until its keys expire.
    /// Returns how long this client would have relied on it; the keys live a little longer.
    ///
    /// For work that must not be done twice within some time. To choose the time, use
    /// [`keep_for`](Self::keep_for).
    #[must_use = "zero means that the lock was lost before"]
    pub fn keep_until_expiry(mut self) -> Duration {
        let remaining = self.remaining();
        self.has_left = true;
        let LeaseView { shared, tenure, .. } = &self.lease;
        tenure.held().keep_keys();
        shared.let_go(tenure.held(), Some(tenure.guard())); // nothing is to be released
        remaining
    }

    /// Ends the guard without releasing the lock, so that another client or process can continue it, also after a
    /// restart. Nothing is sent.
    ///
    /// The lock is not renewed until it is [attached](crate::Redlock::attach), and expires if that comes too late.
    /// Other guards of a [holder](crate::Lock::holder) stay, but do not release it.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let (redlock, restarted) = (cluster.builder().connect().await?, cluster.builder().connect().await?);
    /// let guard = redlock.lock("job:nightly").acquire().await?;
    /// let token = guard.fencing_token();
    /// let lease = guard.detach(); // store it like a password, for the process that comes next
    /// redlock.shutdown(std::time::Duration::from_secs(1)).await?;
    /// // ..
    /// let guard = restarted.attach(&lease).await?;
    /// assert_eq!(guard.fencing_token(), token);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) -> DetachedLease {
        self.has_left = true;
        let LeaseView { shared, tenure, .. } = &self.lease;
        let claim = tenure.claim();
        let lease = DetachedLease {
            key: claim.resource.key().to_vec(),
            value: claim.value.clone(),
            token: tenure.token(),
            ttl: claim.ttl,
        };
        tenure.held().keep_keys();
        shared.let_go(tenure.held(), Some(tenure.guard())); // nothing is to be released
        lease
    }

    /// Ends the guard without releasing the lock: no client gets it for `time` from now, which may be far longer than
    /// `max_ttl`. For work that must not be done again within some time.
    ///
    /// What stays is a mark, not a lease: no client holds the lock, and nothing renews it. If the keys live that long anyway,
    /// nothing is sent. Otherwise it is sent again, while the lock is valid, until a quorum has confirmed it.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// if let Ok(guard) = redlock.lock("report:daily").try_acquire().await {
    ///     // .. write the report ..
    ///     guard.keep_for(Duration::from_secs(14 * 60)).await?; // not again within 14 minutes
    /// }
    /// assert!(redlock.lock("report:daily").try_acquire().await.is_err_and(|error| error.is_contended()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Guarantees
    /// After success no client gets the lock within `time`, unless so many instances forget the mark that no quorum has it: an instance
    /// that was restarted empty, flushed or failed over votes again after `max_ttl`, not after `time`. Then a client may get the lock
    /// early, but not before `max_ttl` has passed.
    ///
    /// # Cancel safety
    /// Safe: the guard ends and the lock is not released. What was sent is carried out, and not sent again.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] if no quorum confirmed it while the lock was valid; [`ExtendError::BadRequest`] for a time
    /// above [`fence_retention`](crate::Builder::fence_retention). In any case the guard ends, and its keys
    /// expire: after the ttl, or after `time` on instances that were reached.
    pub async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        let LeaseView { shared, settings, tenure } = &self.lease;
        let held = tenure.held();
        held.keep_keys(); // whatever happens to this future
        if self.remaining() >= time {
            return Ok(());
        }
        // What is shorter would be refused, and a ttl is what was asked for at least.
        let terms = settings.terms_to_keep(time.max(tenure.claim().ttl))?;
        keep_for(shared, held, terms).await.map_err(|failure| extend_error(shared, failure))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.has_left {
            let tenure = &self.lease.tenure;
            self.lease.shared.let_go(tenure.held(), Some(tenure.guard())); // P22
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.show_as("Guard", f)
    }
}
