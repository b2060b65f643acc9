//! The future of a caller that wants a lock. All that is begun for it is the key's (P22): the future only polls that, and dropped at any
//! time it leaves nothing behind.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::cx::{CallerId, Cx};
use super::key::{Deadline, Found, Key, Want};
use super::keys::KeyCell;
use super::uncollected::{UncollectedLease, extended, share_now};
use super::{AcquireFailure, AcquireParams};
use crate::clock::Clock;
use crate::random;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::{TrackedAttempt, stalled, with_timers};

impl Deadline {
    pub(crate) fn begin(limit: Option<Duration>, clock: &dyn Clock) -> Self {
        Self { begun: clock.now(), limit }
    }

    /// The result of a wait, unless the client's runtime does not run when it is over.
    pub(super) async fn while_driven<T>(
        self,
        shared: &Shared,
        wait: impl Future<Output = Result<T, AcquireFailure>>,
    ) -> Result<T, AcquireFailure> {
        let clock = &*shared.clock;
        let Some(limit) = self.limit else { return wait.await };
        let waited = clock.now().saturating_since(self.begun);
        tokio::select! {
            biased;
            output = wait => output,
            () = stalled(&shared.runtime, limit.saturating_sub(waited), shared.instance_timeout) => {
                Err(self.failure(AcquireFailure::Stalled, clock.now()))
            }
        }
    }
}

/// Waits until there is a lease, the wait is over, or waiting longer cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    let deadline = Deadline::begin(limit, &*shared.clock);
    if let Ok(Some(tenure)) = share_now(shared, params).await {
        return Ok(tenure);
    }
    let mut not_extended = 0;
    loop {
        let won = deadline.while_driven(shared, wait(shared, params, deadline)?).await?;
        let Some(won) = won else { continue }; // it has missed its turn, and waits again
        match extended(shared, params, won).await.map(|lease| lease.map(|lease| lease.collect(params))) {
            Ok(None | Some(Err(AcquireFailure::NotPolled))) => {}
            Ok(Some(collected)) => return collected,
            // Its holder has the lease, which cannot be extended now.
            Err(failure) if failure.may_pass() => {
                let pause = shared.retry.after(not_extended, random::spread()).min(shared.instance_timeout);
                not_extended = not_extended.saturating_add(1);
                let left = deadline.at().map(|end| end.saturating_since(shared.clock.now()));
                with_timers(&shared.runtime, async { sleep(left.map_or(pause, |left| pause.min(left))).await }).await;
                if deadline.has_passed(shared.clock.now()) {
                    return Err(deadline.failure(failure, shared.clock.now()));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// One try.
pub(crate) async fn try_acquire(shared: &Arc<Shared>, params: &Arc<AcquireParams>) -> Result<Tenure, AcquireFailure> {
    if let Some(tenure) = share_now(shared, params).await? {
        return Ok(tenure);
    }
    let place = match Place::join(shared, params, Want::Try, Deadline::begin(None, &*shared.clock)) {
        Ok(place) => place,
        Err(failure) => {
            yield_now().await; // a caller that tries again and again must let others run
            return Err(failure);
        }
    };
    let found = tokio::select! {
        biased;
        found = place.found() => found?,
        () = stalled(&shared.runtime, shared.instance_timeout, shared.instance_timeout) => return Err(AcquireFailure::Stalled),
    };
    let lease = extended(shared, params, found.ok_or(AcquireFailure::NotPolled)?).await?;
    lease.ok_or(AcquireFailure::NotPolled)?.collect(params)
}

/// Begins one wait: it has its place when this returns, and if nothing known is against it, its request is sent. What is won
/// waits for the caller for an instance timeout: `None` if that was passed on.
pub(super) fn wait(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    deadline: Deadline,
) -> Result<impl Future<Output = Result<Option<UncollectedLease>, AcquireFailure>> + Send + use<>, AcquireFailure> {
    let place = Place::join(shared, params, Want::Lock, deadline)?;
    Ok(place.found())
}

/// A place in the line of a lock. Dropped, it leaves the turn to the one behind it.
pub(crate) struct Place {
    shared: Arc<Shared>,
    key: Arc<KeyCell>,
    id: CallerId,
}

impl Place {
    fn join(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        want: Want,
        deadline: Deadline,
    ) -> Result<Self, AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        if shared.has_ended() {
            return Err(AcquireFailure::RuntimeEnded);
        }
        let join = |key: &mut Key, cx: &mut Cx<'_>| key.join(want, params, deadline, Some(tracked), cx);
        let (key, joined) = shared.keys.change(&params.resource, join);
        Ok(Self { shared: Arc::clone(shared), key, id: joined? })
    }

    /// A place of one that wants its turn, and no lock, until its wait is over; whether it `counts` as one that waits.
    pub(crate) fn in_line(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        counts: bool,
        deadline: Deadline,
    ) -> Result<Self, AcquireFailure> {
        Self::join(shared, params, Want::Turn { counts }, deadline)
    }

    /// Returns once it is the first. It keeps its place until it is dropped.
    pub(crate) async fn wait_for_turn(&mut self) -> Result<(), AcquireFailure> {
        std::future::poll_fn(|cx| self.poll(cx)).await.map(|_| ())
    }

    async fn found(mut self) -> Result<Option<UncollectedLease>, AcquireFailure> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// A lease; `None` for its turn, or one that it has missed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<UncollectedLease>, AcquireFailure>> {
        match self.key.poll(self.id, cx) {
            None if self.shared.has_ended() => Poll::Ready(Err(AcquireFailure::RuntimeEnded)),
            None => Poll::Pending,
            Some(Found::Lease(held)) => Poll::Ready(Ok(Some(UncollectedLease::new(Arc::clone(&self.shared), held)))),
            Some(Found::Turn | Found::Missed) => Poll::Ready(Ok(None)),
            Some(Found::Failed(failure)) => Poll::Ready(Err(failure)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.key.change(|key, cx| key.leave(self.id, cx));
    }
}
