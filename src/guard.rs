//! The handle of a lock that is held.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::config::Settings;
use crate::detached::DetachedLease;
use crate::error::{BadRequest, ExtendError, ReleaseError, extend_error, release_error};
use crate::lease::{LeaseView, Mode, Reader, Writer};
use crate::protocol::{Access, InstanceSet};
use crate::runtime::Shared;
use crate::runtime::extend::{ExtendFailure, extend};
use crate::runtime::held_lease::Tenure;
use crate::runtime::keep::keep_for;
use crate::runtime::release::{ReleaseOutcome, release};
use crate::span;

/// A lock that is held, for as long as [`remaining`](LeaseView::remaining) says. It has all that a [`LeaseView`] has.
/// [`ReadGuard`] is that of a reader.
///
/// It is renewed in the background until it is released, unless [`Renewal::Off`](crate::Renewal::Off)
/// is set. Dropping it releases the lock in the background, from any thread, and never blocks.
#[must_use = "the lock is released when the guard is dropped, by `let _ =` at once: write `let _guard =`"]
pub struct Guard<M: Mode = Writer> {
    lease: LeaseView<M>,
    /// Whether the lease was left: nothing to do when this is dropped.
    has_left: bool,
}

/// A lock that is read. It has no fencing token, and cannot be detached or kept.
pub type ReadGuard = Guard<Reader>;

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether a quorum of instances still held the lock for this guard. If not, it had expired or
    /// was released by force, and the work may have run beside that of another holder: the fencing token
    /// decides whose writes count.
    pub was_still_held: bool,
}

impl<M: Mode> Guard<M> {
    pub(crate) const fn new(shared: Arc<Shared>, settings: Arc<Settings>, tenure: Tenure) -> Self {
        Self { lease: LeaseView::new(shared, settings, tenure), has_left: false }
    }

    /// Whether less than a fifth is left of the ttl of this guard, or of its lease where that is less: then a lock
    /// is not given (P2).
    pub(crate) fn has_aged(&self, asked: Duration) -> bool {
        let Ok(terms) = self.lease.settings.terms(Some(self.lease.tenure.claim().ttl.min(asked))) else { return true };
        self.remaining() < terms.min_remaining()
    }

    /// A view of the lease, to be given to the work that the lock protects.
    #[must_use]
    pub fn lease(&self) -> LeaseView<M> {
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
        self.lease.shared.check_process().map_err(BadRequest::from)?;
        self.extend_to(self.lease.tenure.claim().ttl).await
    }

    /// As [`extend`](Self::extend), with a new ttl, which must not be below the lock's own.
    ///
    /// # Cancel safety
    /// As for [`extend`](Self::extend).
    ///
    /// # Errors
    /// Also [`ExtendError::WouldShorten`], and [`ExtendError::BadRequest`] for a ttl above `max_ttl`.
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        let LeaseView { shared, settings, tenure, .. } = &self.lease;
        shared.check_process().map_err(BadRequest::from)?;
        let terms = settings.terms(Some(ttl))?;
        let span = span::operation!("extend", tenure.claim().resource.display());
        let extended = async {
            if !self.is_valid() {
                return Err(ExtendFailure::LeaseLost(None)); // others of its holder may have the lease still
            }
            extend(shared, &tenure.held, Some(tenure.guard), terms).await
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
    /// background, and the keys expire with their ttl at the latest: do not repeat it. [`ReleaseError::RuntimeEnded`],
    /// and in a child of the process that has the lock [`ReleaseError::BadRequest`]: nothing is sent.
    pub async fn release(self) -> Result<Released, ReleaseError> {
        self.end().release().await
    }

    /// Ends it at once: what is left to do is to send its release.
    pub(crate) fn end(mut self) -> EndedGuard<M> {
        self.has_left = true;
        let LeaseView { shared, tenure, .. } = &self.lease;
        let (is_valid, is_gone) = (self.is_valid(), tenure.held.is_gone());
        let targets = shared.begin_to_let_go(&tenure.held, Some(tenure.guard));
        EndedGuard { guard: self, is_valid, is_gone, targets }
    }
}

/// A guard that was ended.
pub(crate) struct EndedGuard<M: Mode = Writer> {
    guard: Guard<M>,
    /// Whether it was valid then, or was found to be gone before.
    is_valid: bool,
    is_gone: bool,
    /// Where it is to be released; `None` if another caller of this client has it.
    targets: Option<InstanceSet>,
}

impl<M: Mode> EndedGuard<M> {
    /// Sends the release, and waits until a quorum has answered.
    pub(crate) async fn release(self) -> Result<Released, ReleaseError> {
        let LeaseView { shared, tenure, .. } = &self.guard.lease;
        shared.check_process().map_err(BadRequest::from)?;
        let Some(targets) = self.targets else { return Ok(Released { was_still_held: self.is_valid }) };
        let released = release(shared, &tenure.held, targets); // sent before a listener runs, which may panic
        let span = span::operation!("release", tenure.claim().resource.display());
        let was_still_held = match released.instrument(span.clone()).await {
            ReleaseOutcome::WasHeld => !self.is_gone,
            ReleaseOutcome::WasNotHeld => false,
            ReleaseOutcome::Unconfirmed(round) => {
                let error = release_error(shared, &round);
                span::failed(&span, "unconfirmed", &error);
                return Err(error);
            }
            ReleaseOutcome::RuntimeEnded => {
                span::failed(&span, "runtime_ended", &ReleaseError::RuntimeEnded);
                return Err(ReleaseError::RuntimeEnded);
            }
        };
        span::ended(&span, if was_still_held { "released" } else { "not_held" });
        Ok(Released { was_still_held })
    }
}

impl Guard {
    /// Ends the guard without releasing the lock, so that another client or process can continue it, also after a
    /// restart. Nothing is sent.
    ///
    /// The lock is not renewed until it is [attached](crate::Redlock::attach), and expires if that comes too late.
    /// Other guards of a [holder](crate::Lock::holder) stay, but do not release it. A lock that is over already is released
    /// as if the guard was dropped, and what this returns cannot be attached.
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
    pub fn detach(self) -> DetachedLease {
        let LeaseView { shared, tenure, .. } = &self.lease;
        let claim = tenure.claim();
        // P32: the release of a lease that has ended may be under way, and would delete the keys that another client attaches.
        let is_moved = tenure.held.ended(&*shared.clock).is_none() && tenure.held.keep_keys_for_others();
        DetachedLease {
            key: claim.resource.key().to_vec(),
            value: is_moved.then(|| claim.value.clone()),
            token: tenure.token,
            ttl: claim.ttl,
        }
    }

    /// Ends the guard without releasing the lock: no client gets it for `time` from now, which may be far longer than
    /// `max_ttl`. For work that must not be done again within some time.
    ///
    /// What stays is a mark, not a lease: no client holds the lock, and nothing renews it. If the keys live that long anyway,
    /// nothing is sent: a `time` of zero leaves them as they are. Otherwise it is sent again, while the lock is valid, until a
    /// quorum has confirmed it.
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
    /// early, but not before `max_ttl` has passed. A copy of a lease that was [detached](Self::detach) can be attached behind its mark.
    ///
    /// # Cancel safety
    /// Safe: the guard ends and the lock is not released. What was sent is carried out, and not sent again.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] if no quorum confirmed it while the lock was valid; [`ExtendError::BadRequest`] for a time
    /// above ten years. In any case the guard ends, and its keys
    /// expire: after the ttl, or after `time` on instances that were reached.
    pub async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        let LeaseView { shared, settings, tenure, .. } = &self.lease;
        shared.check_process().map_err(BadRequest::from)?;
        let held = &tenure.held;
        held.keep_keys(); // even if this future is dropped
        let remaining = self.remaining();
        if remaining >= time {
            let lost = ExtendError::Lost { reports: Vec::new() };
            return if remaining.is_zero() { Err(lost) } else { Ok(()) };
        }
        // What is shorter would be refused, and a ttl is what was asked for at least.
        let terms = settings.terms_to_keep(time.max(tenure.claim().ttl))?;
        keep_for(shared, held, terms).await.map_err(|failure| extend_error(shared, failure))
    }
}

/// What it shows of its lease.
impl<M: Mode> Deref for Guard<M> {
    type Target = LeaseView<M>;

    fn deref(&self) -> &LeaseView<M> {
        &self.lease
    }
}

impl<M: Mode> Drop for Guard<M> {
    fn drop(&mut self) {
        if !self.has_left {
            let tenure = &self.lease.tenure;
            self.lease.shared.let_go(&tenure.held, Some(tenure.guard)); // P22
        }
    }
}

impl<M: Mode> fmt::Debug for Guard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.show_as(if M::ACCESS == Access::Write { "Guard" } else { "ReadGuard" }, f)
    }
}
