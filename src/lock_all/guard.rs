//! Several locks that are held together.

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

use super::AT_ONCE;
use crate::error::{ExtendError, Loss, ReleaseError, RunError};
use crate::guard::{EndedGuard, Guard, Released};
use crate::lease::LeaseView;
use crate::names::ResourceName;
use crate::protocol::FencingToken;
use crate::run::{release_after_work, until_lost};
use crate::runtime::tasks::{RuntimeEnded, TrackedAttempt, run_detached};

/// Several locks that are held together: valid while all are, and lost with the first.
///
/// They are renewed in the background as single ones are. It has all that [`AllLeases`] have. Dropping it releases them in the background.
#[must_use = "the locks are released when the guard is dropped"]
pub struct AllGuard {
    leases: AllLeases,
    guards: Vec<Guard>,
}

/// A read-only view of leases that are held together. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AllLeases(Arc<[LeaseView]>);

impl AllLeases {
    /// The views of the single leases, in the order of their keys.
    #[must_use]
    pub fn leases(&self) -> &[LeaseView] {
        &self.0
    }

    /// What is locked: the names that were given, without the namespace, in the order of their keys.
    #[must_use]
    pub fn resources(&self) -> Vec<ResourceName> {
        self.0.iter().map(LeaseView::resource).collect()
    }

    /// The fencing token of each name, to be stored with what that protects.
    #[must_use]
    pub fn fencing_tokens(&self) -> Vec<(ResourceName, FencingToken)> {
        self.0.iter().map(|lease| (lease.resource(), lease.fencing_token())).collect()
    }

    /// The fencing token of one of the names; `None` if it is not among them.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let guard = redlock.lock_all(["account:7", "account:12"]).acquire().await?;
    /// assert!(guard.fencing_token("account:7").is_some());
    /// assert!(guard.fencing_token("account:8").is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self, name: impl Into<ResourceName>) -> Option<FencingToken> {
        let name = name.into();
        self.0.iter().find(|lease| lease.resource() == name).map(LeaseView::fencing_token)
    }

    /// Whether all may still be relied on, by this machine's clock. Once false it stays so.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long all may still be relied on; zero once one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(LeaseView::remaining).min().unwrap_or_default()
    }

    /// Waits until the first of them is lost, and returns why; [`Loss::GivenUp`] once its guard is gone: see [`LeaseView::lost`].
    ///
    /// # Cancel safety
    /// Safe: it only waits, and may be called again.
    pub async fn lost(&self) -> Loss {
        first_loss(self.0.iter().map(LeaseView::lost)).await
    }
}

impl AllGuard {
    pub(super) fn new(guards: Vec<Guard>) -> Self {
        Self { leases: AllLeases(guards.iter().map(Guard::lease).collect()), guards }
    }

    /// A view of the leases, to be given to the work that they protect.
    #[must_use]
    pub fn leases(&self) -> AllLeases {
        self.leases.clone()
    }

    /// Keeps all of them for another ttl from now, each with a round of its own, side by side. Returns how long all are valid.
    ///
    /// # Cancel safety
    /// As for [`Guard::extend`].
    ///
    /// # Errors
    /// That of the first that was not extended; others may be. Nothing is deleted.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        extend_all(self.guards.iter().map(Guard::extend)).await?;
        Ok(self.remaining())
    }

    /// As [`extend`](Self::extend), with a new ttl, which must not be below that of any of them.
    ///
    /// # Cancel safety
    /// As for [`Guard::extend`].
    ///
    /// # Errors
    /// As for [`Guard::extend_to`].
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        extend_all(self.guards.iter().map(|guard| guard.extend_to(ttl))).await?;
        Ok(self.remaining())
    }

    /// Releases all of them, and waits until a quorum has answered for each: see [`Guard::release`]. All end with the first poll. They were
    /// still held if all were.
    ///
    /// # Cancel safety
    /// Safe: the releases continue in the background.
    ///
    /// # Errors
    /// [`ReleaseError::Unconfirmed`] if too few instances answered for one of them. Its release continues in the background.
    pub async fn release(self) -> Result<Released, ReleaseError> {
        release_all(self.guards).await
    }

    /// Gives the guard up without releasing anything: no other client gets any of them for `time`, see [`Guard::keep_for`].
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Errors
    /// That of the first that is not kept, in the order of their keys; others may be.
    pub async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        // At once: after the first poll no lock of it is released any more.
        join_all(self.guards.into_iter().map(|guard| guard.keep_for(time))).await.into_iter().collect()
    }

    /// The single guards, in the order of their keys, to drop one by one, or to [detach](Guard::detach).
    #[must_use = "the locks are released when the guards are dropped"]
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Runs work until it ends or one of them is lost (P21), and then releases them.
    pub(super) async fn run<W, F>(self, work: W) -> Result<F::Output, RunError>
    where
        W: FnOnce(AllLeases) -> F,
        F: Future,
    {
        let leases = self.leases();
        let output = until_lost(leases.lost(), || work(self.leases())).await?;
        join_all(self.guards.into_iter().map(release_after_work)).await;
        Ok(output)
    }
}

/// Ends all of them at once, and releases them in a task of the client: nothing of that waits for the caller's polls (P22). The error is
/// that of the first which is not confirmed.
pub(super) async fn release_all(guards: Vec<Guard>) -> Result<Released, ReleaseError> {
    let Some(shared) = guards.first().map(|guard| Arc::clone(&guard.lease().shared)) else {
        return Ok(Released { was_still_held: true });
    };
    let ended: Vec<EndedGuard> = guards.into_iter().map(Guard::end).collect();
    if shared.is_forked() {
        return release_ended(ended).await; // no task runs here, and nothing is sent
    }
    // A shutdown waits for what is not sent yet.
    let tracked = TrackedAttempt::of_shutdown(&shared.attempts);
    let released = run_detached(&shared.runtime, |result: oneshot::Sender<_>| async move {
        let _ = result.send(release_ended(ended).await);
        drop(tracked);
    });
    released.await.unwrap_or_else(|RuntimeEnded| Err(ReleaseError::RuntimeEnded))
}

async fn release_ended(mut ended: Vec<EndedGuard>) -> Result<Released, ReleaseError> {
    let mut all = Ok(Released { was_still_held: true });
    while !ended.is_empty() {
        let some = ended.drain(..AT_ONCE.min(ended.len()));
        for released in join_all(some.map(EndedGuard::release)).await {
            all = match (all, released) {
                (Ok(all), Ok(one)) => Ok(Released { was_still_held: all.was_still_held && one.was_still_held }),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
    }
    all
}

/// The error is that of the first which is not extended.
pub(super) async fn extend_all(
    mut each: impl Iterator<Item = impl Future<Output = Result<Duration, ExtendError>>>,
) -> Result<(), ExtendError> {
    loop {
        let some: Vec<_> = each.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return Ok(());
        }
        for extended in join_all(some).await {
            extended?;
        }
    }
}

/// The first of the losses; never, without any lock.
pub(super) async fn first_loss(each: impl Iterator<Item = impl Future<Output = Loss>>) -> Loss {
    let mut losses: FuturesUnordered<_> = each.collect();
    match losses.next().await {
        Some(loss) => loss,
        None => pending().await,
    }
}

/// What it shows of its leases.
impl Deref for AllGuard {
    type Target = AllLeases;

    fn deref(&self) -> &AllLeases {
        &self.leases
    }
}

impl fmt::Debug for AllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllGuard").field(&self.leases).finish()
    }
}
