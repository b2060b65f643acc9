//! Several locks that are held together.
//!
//! They are locks like any other: each has its own key, value, lease and token, and nothing below knows that they belong
//! together. First all are tried side by side, 16 in one round trip. Where that fails those that were won are released, and
//! the locks are taken one after the other, in the order of their keys, each in its queue like any other waiter: so no caller
//! starves, and two callers of this function never wait for each other in a circle. Others may: one that has `b` and waits for
//! `a`. So a pass that takes too long releases everything, and begins again after a random pause.
//!
//! All of that is a task of the client, and what it has won waits for the caller for an instance timeout, as a single lock does (P22).

mod guard;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::sleep;
use tracing::Instrument;

use crate::config::Renewal;
use crate::error::{AcquireError, Final, Passing, RunError};
use crate::guard::Guard;
use crate::holder::Holder;
use crate::lock::{Lock, lock_settings};
use crate::names::ResourceName;
use crate::protocol::{Access, Instant};
use crate::random;
use crate::resource::check_together;
use crate::runtime::acquire::Purpose;
use crate::runtime::tasks::{RuntimeEnded, run_and_offer, stalled};
pub use guard::{AllGuard, AllLeases};
use guard::{extend_all, first_loss, release_all};

/// So many are tried, extended or released at once: with more, the requests of others wait for theirs: beside a caller of 256
/// names the 99th percentile of eight tasks on single ones is twice what it is alone.
const AT_ONCE: usize = 16;

/// The part of the instance timeout for which rivals are waited for that give back what they have (P31).
const RIVALS_PART: u32 = 8;

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
    /// Safe: what was won is released in the background. For a future that is not polled it is released after an instance timeout, and
    /// acquired again when it is.
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
            let (locks, begun) = (all.locks()?, all.now());
            loop {
                let waits = all.clone().acquire_by(locks.clone(), begun);
                let left = all.each.limit.map(|limit| limit.saturating_sub(all.since(begun)));
                let stalls = |error: &AcquireError| error.kind() == "stalled";
                let won = all.in_task(waits, left).await.map_err(|error| match error {
                    error if stalls(&error) => all.deadline_passed(begun, error),
                    error => error,
                });
                if let Some(guard) = won? {
                    return Ok(guard);
                }
            }
        }
    }

    async fn acquire_by(self, locks: Vec<Lock>, begun: Instant) -> Result<Vec<Guard>, AcquireError> {
        let ttl = self.each.asked_ttl();
        let mut pass = FIRST_PASS.min(ttl);
        let left = || self.each.limit.map(|limit| limit.saturating_sub(self.since(begun)));
        let is_over = || left().is_some_and(|left| left.is_zero());
        let tried = if is_over() { self.try_each(&locks).await } else { self.side_by_side(&locks, once).await };
        let mut last = match tried {
            Ok(guards) => return Ok(guards),
            Err(error) => error,
        };
        loop {
            if !last.is_retryable() {
                return Err(last);
            }
            if is_over() {
                return Err(self.deadline_passed(begun, last));
            }
            match self.one_by_one(&locks, pass, left()).await {
                Ok(guards) => return Ok(guards),
                Err(Some(error)) => last = error,
                Err(None) => {} // one was lost meanwhile; the last refusal is the same as before
            }
            let pause = (pass / PAUSE_PART).mul_f64(f64::from(random::spread()) / f64::from(u32::MAX));
            sleep(left().map_or(pause, |left| left.min(pause))).await;
            pass = (pass * 2).min(ttl);
        }
    }

    /// In a task of the client, so that no lock is held for a caller that does not poll (P22): `None` if the caller came too late for
    /// what was won.
    async fn in_task(
        &self,
        work: impl Future<Output = Result<Vec<Guard>, AcquireError>> + Send + 'static,
        limit: Option<Duration>,
    ) -> Result<Option<AllGuard>, AcquireError> {
        let shared = &self.each.shared;
        if shared.is_forked() {
            return Err(Final::Forked.into());
        }
        let stalls = async {
            match limit {
                Some(limit) => stalled(&shared.runtime, limit, shared.instance_timeout).await,
                None => std::future::pending().await,
            }
        };
        let won = tokio::select! {
            biased;
            won = run_and_offer(&shared.runtime, shared.instance_timeout, work.in_current_span()) => won,
            () = stalls => return Err(Passing::Stalled.into()),
        };
        let won = won.map_err(|RuntimeEnded| Final::RuntimeEnded)?;
        // What was won for a caller that comes late may have aged or ended since, as by a shutdown.
        won.map(|guards| guards.filter(|guards| self.too_slow(guards).is_none()).map(AllGuard::new))
    }

    /// Tries all of them once, without waiting for the holder of any: in one round trip for each 16. Where others have one of them, it tries
    /// once more, the first alone and then the rest: so of several callers that try the same free locks at once, one gets them.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// That of the one that was refused first, as for [`Lock::try_acquire`](crate::Lock::try_acquire);
    /// [`AcquireError::TryAgain`] if the first had aged by the time that the last was acquired, or the future was not polled for an instance
    /// timeout. What was won is released.
    pub fn try_acquire(&self) -> impl Future<Output = Result<AllGuard, AcquireError>> + Send + use<> {
        let all = self.clone();
        async move {
            let (locks, all_of_them) = (all.locks()?, all.clone());
            let tried = async move { all_of_them.try_each(&locks).await };
            let limit = all.each.shared.instance_timeout;
            all.in_task(tried, Some(limit)).await?.ok_or_else(|| Passing::NotPolled.into())
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

    /// Each lock by itself, in the order of the keys; an error if its holder would wait for itself for one of them.
    fn locks(&self) -> Result<Vec<Lock>, AcquireError> {
        let names = check_together(&self.names);
        let names = names.map_err(|error| AcquireError::BadRequest(error.into()))?;
        let locks: Vec<Lock> = names.into_iter().map(|name| self.each.clone().named(name)).collect();
        locks.iter().try_for_each(|lock| lock.refuse_to_wait_for_itself(Access::Write))?;
        Ok(locks)
    }

    /// Tries all at once. Several callers that do that at once may each win one, and none wins all: then the first lock alone
    /// decides who gets the others. Who still has one of these gives it back within a round, which is waited for as a single try waits
    /// for a rival (P31).
    async fn try_each(&self, locks: &[Lock]) -> Result<Vec<Guard>, AcquireError> {
        let is_of_others =
            |error: &AcquireError| matches!(error, AcquireError::Contended(_) | AcquireError::SplitVote { .. });
        let (first, others) = locks.split_at(1);
        if !others.is_empty() {
            match self.side_by_side(locks, once).await {
                Err(error) if is_of_others(&error) => {}
                decided => return decided,
            }
        }
        let rivals = self.each.shared.instance_timeout / RIVALS_PART;
        let mut won = self.side_by_side(first, |lock| self.alone(lock, rivals)).await?;
        let tried =
            self.side_by_side(others, |lock| behind_rivals(lock, rivals)).await.map(|others| won.extend(others));
        self.all_or_none(won, tried.err()).await
    }

    /// Tries the first. Another thread may be about to release what it took in for a try of before, as that was dropped.
    async fn alone(&self, lock: Lock, wait: Duration) -> Result<Guard, AcquireError> {
        let own = self.each.shared.tokens.client().to_string();
        match lock.try_acquire().await {
            Err(error)
                if error.held_by().is_some_and(|it| it.in_this_client || it.by.client.as_ref() == Some(&own)) =>
            {
                behind_rivals(lock, wait).await
            }
            decided => decided,
        }
    }

    /// Acquires some at once. With the first that is refused the others end: the holder of that one waits for them for a round only.
    /// Those that were won are released unless all were, and the first has not aged by the time of the last.
    async fn side_by_side<F>(&self, locks: &[Lock], acquire: impl Fn(Lock) -> F) -> Result<Vec<Guard>, AcquireError>
    where
        F: Future<Output = Result<Guard, AcquireError>>,
    {
        let (mut won, mut failed) = (Vec::with_capacity(locks.len()), None);
        for some in locks.chunks(AT_ONCE) {
            match try_join_all(some.iter().map(|lock| acquire(lock.clone()))).await {
                Ok(guards) => won.extend(guards),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.all_or_none(won, failed).await
    }

    async fn all_or_none(&self, won: Vec<Guard>, failed: Option<AcquireError>) -> Result<Vec<Guard>, AcquireError> {
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

/// Tries one of several in one round, so that the votes for it are not kept while others decide who gets it.
async fn once(lock: Lock) -> Result<Guard, AcquireError> {
    lock.meant_for(Purpose::Together).try_acquire().await
}

/// Waits so long for rivals that may give it back, and then until it is known who has it.
async fn behind_rivals(lock: Lock, wait: Duration) -> Result<Guard, AcquireError> {
    match lock.clone().wait_at_most(wait).acquire().await {
        Err(AcquireError::DeadlinePassed { last, .. }) => match *last {
            AcquireError::SplitVote { .. } => lock.try_acquire().await,
            last => Err(last),
        },
        decided => decided,
    }
}

/// Releases those that were won. Whether that is confirmed is of no use to the caller; it continues in the background.
async fn give_back(won: Vec<Guard>) {
    let _ = release_all(won).await;
}
