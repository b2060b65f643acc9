//! Several locks that are held together.
//!
//! They are locks like any other: each has its own key, value, lease and token, and nothing below knows that they belong
//! together. First all are tried side by side, 16 in one round trip. Where that fails those that were won are released, and
//! the locks are taken one after the other, in the order of their keys, each in its queue like any other waiter: so no caller
//! starves, and two callers of this function never wait for each other in a circle. Others may: one that has `b` and waits for
//! `a`. So a pass that takes too long releases everything, and begins again after a random pause.

mod guard;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::config::Renewal;
use crate::error::{AcquireError, Passing, RunError};
use crate::guard::Guard;
use crate::holder::Holder;
use crate::lock::{Lock, lock_settings};
use crate::names::ResourceName;
use crate::protocol::Instant;
use crate::random;
use crate::resource::check_together;
pub use guard::{AllGuard, AllLeases};
use guard::{extend_all, first_loss, release_all};

/// So many are tried, extended or released at once: with more, the requests of others wait for theirs: beside a caller of 256
/// names the 99th percentile of eight tasks on single ones is twice what it is alone.
const AT_ONCE: usize = 16;

/// How long the first pass over the locks may take; twice as long each time that follows, up to the ttl.
const FIRST_PASS: Duration = Duration::from_secs(1);

/// The random pause between two passes is up to this part of what the last one might take.
const PAUSE_PART: u32 = 8;

/// Several locks to acquire together, and how. Made by [`Redlock::lock_all`](crate::Redlock::lock_all).
///
/// Without renewal those that are won first age while the others are waited for. `max_hold` counts for each from when it was won.
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockAll {
    pub(crate) names: Arc<[ResourceName]>,
    /// One of them, without its name. Its limit is that of all together.
    pub(crate) each: Lock,
}

impl fmt::Debug for LockAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockAll");
        shown.field("resources", &self.names).field("ttl", &self.each.asked_ttl()).finish_non_exhaustive()
    }
}

impl LockAll {
    lock_settings!(each);

    /// Waits until all of them are acquired.
    ///
    /// All are tried side by side. If one is taken, those that were won are released, and the locks are acquired one
    /// after the other in the order of their keys; what is won meanwhile is kept and renewed. If that takes more than a second from the
    /// first on, or a lock is lost meanwhile, all are released, and it begins again after a random pause, with twice the time, up to the ttl.
    ///
    /// # Guarantees
    /// Each lock is held as one by itself is; together they are held while all of them are. Callers of this function never block
    /// each other for good, in any order of names; nor does a caller that has one of the locks and waits for another.
    ///
    /// # Cancel safety
    /// Safe: what was won is released in the background.
    ///
    /// # Errors
    /// [`AcquireError::DeadlinePassed`] with the cause of the last attempt; [`AcquireError::BadRequest`] for no name, a name given
    /// twice, more than 256, or one that cannot be locked; [`AcquireError::ClientUnusable`] at once. No key stays behind.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let accounts = redlock.namespace("account:").lock_all(["7", "12"]).acquire().await?;
    /// for (name, token) in accounts.fencing_tokens() {
    ///     println!("{name} under token {token}");
    /// }
    /// assert!(accounts.is_valid());
    /// accounts.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<AllGuard, AcquireError>> + Send + use<> {
        let all = self.clone(); // so that the future borrows nothing
        async move {
            let locks = all.locks()?;
            let ttl = all.each.asked_ttl();
            let (begun, mut pass) = (all.now(), FIRST_PASS.min(ttl));
            let left = || all.each.limit.map(|limit| limit.saturating_sub(all.since(begun)));
            let mut last = match all.side_by_side(&locks).await {
                Ok(guards) => return Ok(AllGuard::new(guards)),
                Err(error) => error,
            };
            loop {
                if !last.is_retryable() {
                    return Err(last);
                }
                if left().is_some_and(|left| left.is_zero()) {
                    return Err(all.deadline_passed(begun, last));
                }
                match all.one_by_one(&locks, pass, left()).await {
                    Ok(guards) => return Ok(AllGuard::new(guards)),
                    Err(Some(error)) => last = error,
                    Err(None) => {} // one was lost meanwhile; the last refusal is the same as before
                }
                let pause = (pass / PAUSE_PART).mul_f64(f64::from(random::spread()) / f64::from(u32::MAX));
                sleep(left().map_or(pause, |left| left.min(pause))).await;
                pass = (pass * 2).min(ttl);
            }
        }
    }

    /// Tries all of them once, without waiting for the holder of any: in one round trip for each 16.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// That of the first in the order of the keys which was not acquired, as for [`Lock::try_acquire`](crate::Lock::try_acquire);
    /// [`AcquireError::TryAgain`] if the first had aged by the time that the last was acquired. What was won is released.
    pub fn try_acquire(&self) -> impl Future<Output = Result<AllGuard, AcquireError>> + Send + use<> {
        let all = self.clone();
        async move {
            let guards = all.side_by_side(&all.locks()?).await?;
            Ok(AllGuard::new(guards))
        }
    }

    /// Acquires all of them, waiting as [`acquire`](Self::acquire) does, runs `work` while they are held, and releases them: see
    /// [`Lock::run`]. The work is dropped where it waits with the first of them that is lost.
    ///
    /// # Cancel safety
    /// Safe: the work is dropped, and the locks are released in the background.
    ///
    /// # Errors
    /// As for [`Lock::run`].
    pub fn run<W, F>(&self, work: W) -> impl Future<Output = Result<F::Output, RunError>> + use<W, F>
    where
        W: FnOnce(AllLeases) -> F,
        F: Future,
    {
        let acquired = self.acquire();
        async move { acquired.await?.run(work).await }
    }

    /// Runs `work` as [`run`](Self::run) does if all are free, and returns `None` at once if another client holds one.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    ///
    /// # Errors
    /// As for [`Lock::try_run`].
    pub fn try_run<W, F>(&self, work: W) -> impl Future<Output = Result<Option<F::Output>, RunError>> + use<W, F>
    where
        W: FnOnce(AllLeases) -> F,
        F: Future,
    {
        let acquired = self.try_acquire();
        async move {
            match acquired.await {
                Ok(guard) => guard.run(work).await.map(Some),
                Err(AcquireError::Contended(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
    }

    /// Each lock by itself, in the order of the keys.
    fn locks(&self) -> Result<Vec<Lock>, AcquireError> {
        let names = check_together(&self.names);
        let names = names.map_err(|error| AcquireError::BadRequest(error.into()))?;
        Ok(names.into_iter().map(|name| self.each.clone().named(name)).collect())
    }

    /// Tries all at once; those that were won are released unless all were, and the first has not aged by the time of the last.
    async fn side_by_side(&self, locks: &[Lock]) -> Result<Vec<Guard>, AcquireError> {
        let (mut won, mut failed) = (Vec::with_capacity(locks.len()), None);
        for some in locks.chunks(AT_ONCE) {
            for result in join_all(some.iter().map(Lock::try_acquire)).await {
                match result {
                    Ok(guard) => won.push(guard),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if failed.is_some() {
                break;
            }
        }
        match failed.or_else(|| self.too_slow(&won)) {
            Some(error) => {
                give_back(won).await;
                Err(error)
            }
            None => Ok(won),
        }
    }

    /// Acquires one after the other, and releases all if that fails: `None` where one was lost meanwhile. From the first that
    /// is won on it may take as long as `pass`, and all in all as long as `limit`.
    async fn one_by_one(
        &self,
        locks: &[Lock],
        pass: Duration,
        limit: Option<Duration>,
    ) -> Result<Vec<Guard>, Option<AcquireError>> {
        let begun = self.now();
        let mut holds_since = None;
        let mut won: Vec<Guard> = Vec::with_capacity(locks.len());
        for lock in locks {
            let of_pass = holds_since.map(|since| pass.saturating_sub(self.since(since)));
            let of_limit = limit.map(|limit| limit.saturating_sub(self.since(begun)));
            let left = of_pass.into_iter().chain(of_limit).min();
            let next = left.into_iter().fold(lock.clone(), Lock::wait_at_most).acquire();
            let result = tokio::select! {
                biased;
                _ = first_loss(won.iter().map(|guard| guard.lost())) => Err(None),
                result = next => result.map_err(Some),
            };
            match result {
                Ok(guard) => won.push(guard),
                Err(error) => {
                    give_back(won).await;
                    return Err(error);
                }
            }
            if holds_since.is_none() {
                holds_since = Some(self.now());
            }
        }
        // Those that were won first have aged.
        let (_, earlier) = won.split_last().ok_or(None)?;
        let extended = extend_all(earlier.iter().map(Guard::extend)).await;
        let is_lost = extended.is_err() || !won.iter().all(|guard| guard.is_valid());
        let slow = self.too_slow(&won);
        if is_lost || slow.is_some() {
            give_back(won).await;
            return Err(slow.filter(|_| !is_lost));
        }
        Ok(won)
    }

    /// Too little is left of one of them.
    fn too_slow(&self, won: &[Guard]) -> Option<AcquireError> {
        let ttl = self.each.asked_ttl();
        won.iter().any(|guard| guard.has_aged(ttl)).then(|| Passing::TooSlow { reports: Vec::new() }.into())
    }

    fn now(&self) -> Instant {
        self.each.shared.clock.now()
    }

    fn since(&self, begun: Instant) -> Duration {
        self.now().saturating_since(begun)
    }

    fn deadline_passed(&self, begun: Instant, last: AcquireError) -> AcquireError {
        let last = match last {
            AcquireError::DeadlinePassed { last, .. } => last, // of one pass
            last => Box::new(last),
        };
        AcquireError::DeadlinePassed { waited: self.since(begun), last }
    }
}

/// Releases those that were won. Whether that is confirmed is of no use to the caller; it continues in the background.
async fn give_back(won: Vec<Guard>) {
    let _ = release_all(won).await;
}
