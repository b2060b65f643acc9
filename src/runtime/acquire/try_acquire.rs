//! One try, in a task of the client (P22): the wait for its permit, its rounds, and the lease for its caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::ask_limit::AskPermit;
use super::attempt::Attempt;
use super::failure::AcquireFailure;
use super::limiter::{AttemptPermit, PermitRequest};
use super::params::AcquireParams;
use super::reentry::{Reentry, reenter};
use super::tracker::TrackedAttempt;
use super::uncollected::UncollectedLease;
use crate::protocol::{FencingToken, Instant};
use crate::runtime::client_task::{RuntimeEnded, run_abort_on_drop};
use crate::runtime::extend;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

type Outcome = Result<UncollectedLease, AcquireFailure>;

/// A try that may be sent. Both permits are given back with its outcome.
type Permits = (AttemptPermit, AskPermit);

/// One try. It waits for its permit for `queue_limit` at most, and does not ask again after `until` (P31).
pub(crate) async fn try_acquire(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    seen: Option<FencingToken>,
    queue_limit: Option<Duration>,
    until: Option<Instant>,
) -> Result<Tenure, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
    let runtime = &shared.runtime;
    let begun = shared.clock.now();
    let task = |tracked| {
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        TryTask { tracked, shared, params, seen, begun, queue_limit, until }
    };
    let outcome = if params.holder.is_empty() {
        if let Err(refusal) = stand_back(shared, params) {
            yield_now().await; // whoever tries again and again must let others run
            return Err(refusal);
        }
        match (shared.limiter.request(&params.resources), shared.ask_limit.take_now()) {
            (PermitRequest::Granted(permit), Some(ask)) => {
                let attempt = Attempt::begin(shared, params, seen)?; // sent at once, a task goes on from there
                run_abort_on_drop(runtime, |result| run((tracked, until), (permit, ask), attempt, result)).await
            }
            (request, ask) => {
                drop(ask);
                run_abort_on_drop(runtime, |result| task(tracked).run_when_permitted(request, result)).await
            }
        }
    } else {
        run_abort_on_drop(runtime, |result| task(tracked).run_for_holder(result)).await
    };
    collect(shared, params, outcome.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??)
}

/// A try that may have to wait before anything is sent for it.
struct TryTask {
    tracked: TrackedAttempt,
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    seen: Option<FencingToken>,
    begun: Instant,
    /// How long it waits before anything is sent, in all.
    queue_limit: Option<Duration>,
    until: Option<Instant>,
}

impl TryTask {
    async fn run_when_permitted(self, request: PermitRequest, result: oneshot::Sender<Outcome>) {
        match self.begin_when_permitted(request).await {
            Ok((permits, attempt)) => run((self.tracked, self.until), permits, attempt, result).await,
            Err(failure) => drop(result.send(Err(failure))),
        }
    }

    /// A holder that has the lock already enters its lease again (P23).
    async fn run_for_holder(self, result: oneshot::Sender<Outcome>) {
        let slot = self.shared.reentry_table.slot(&self.params.holder, &self.params.resources);
        // One try of a holder at a time: the second finds what the first has won.
        let only_try = match self.within_limit(slot.one_try.lock()).await {
            Ok(only_try) => only_try,
            Err(failure) => return drop(result.send(Err(failure))),
        };
        if let Some(held) = slot.lease() {
            match reenter(&self.shared, &self.params, &held, self.seen).await {
                Ok(Reentry::Entered(lease, in_flight)) => {
                    drop(only_try); // the next does not wait for this one's caller
                    let _ = result.send(unless_shut_down(&self.tracked, Ok(lease)));
                    drop(self.tracked);
                    return extend::finish(&self.shared, &held, *in_flight).await;
                }
                Ok(Reentry::LeaseEnded) => {}
                Err(failure) => return drop(result.send(Err(failure))),
            }
        }
        let request = self.shared.limiter.request(&self.params.resources);
        let (permits, mut attempt) = match self.begin_when_permitted(request).await {
            Ok(begun) => begun,
            Err(failure) => return drop(result.send(Err(failure))),
        };
        let outcome = attempt.outcome(self.until).await;
        drop(permits);
        if let Ok(lease) = &outcome {
            slot.put(lease.held());
        }
        drop(only_try);
        deliver(self.tracked, attempt, outcome, result).await;
    }

    async fn begin_when_permitted(&self, request: PermitRequest) -> Result<(Permits, Box<Attempt>), AcquireFailure> {
        let permit = match request {
            PermitRequest::Granted(permit) => permit,
            // The queue ends with the client only.
            PermitRequest::Queued(permit) => {
                let permit = self.within_limit(permit).await?.map_err(|_| AcquireFailure::ShutDown)?;
                stand_back(&self.shared, &self.params)?;
                permit
            }
        };
        let ask = match self.shared.ask_limit.take_now() {
            Some(ask) => ask,
            None => self.within_limit(self.shared.ask_limit.take()).await?.ok_or(AcquireFailure::ShutDown)?,
        };
        Ok(((permit, ask), Attempt::begin(&self.shared, &self.params, self.seen)?))
    }

    /// Waits for what is left of `queue_limit` at most; also in vain if the client is shut down meanwhile.
    async fn within_limit<T>(&self, wait: impl IntoFuture<Output = T>) -> Result<T, AcquireFailure> {
        let waited = self.shared.clock.now().saturating_since(self.begun);
        let output = match self.queue_limit {
            None => wait.await,
            Some(limit) => {
                let left = limit.saturating_sub(waited);
                timeout(left, wait).await.map_err(|_| AcquireFailure::QueueTimeout)?
            }
        };
        if self.shared.attempts.is_closed() { Err(AcquireFailure::ShutDown) } else { Ok(output) }
    }
}

/// P24: a try does not overtake those of this client who wait, and does not ask for what one of them has. A holder's may
/// be for a lease that the same holder has (P23).
fn stand_back(shared: &Shared, params: &AcquireParams) -> Result<(), AcquireFailure> {
    let refusal = || shared.lines.refusal(&params.resources, shared.instance_timeout, &*shared.clock);
    if params.holder.is_empty() { refusal().map_or(Ok(()), Err) } else { Ok(()) }
}

async fn run(
    (tracked, until): (TrackedAttempt, Option<Instant>),
    permits: Permits,
    mut attempt: Box<Attempt>,
    result: oneshot::Sender<Outcome>,
) {
    let outcome = attempt.outcome(until).await;
    drop(permits);
    deliver(tracked, attempt, outcome, result).await;
}

/// Sends the outcome to the caller, and takes in the replies that are still outstanding.
async fn deliver(
    tracked: TrackedAttempt,
    mut attempt: Box<Attempt>,
    outcome: Outcome,
    result: oneshot::Sender<Outcome>,
) {
    let held = outcome.as_ref().ok().map(|lease| Arc::clone(lease.held()));
    if let Some(held) = &held {
        attempt.shared.lines.put_held(held); // who waits in this client need not ask
    }
    // If the caller is gone, the lease comes back and is dropped here.
    let _ = result.send(unless_shut_down(&tracked, outcome));
    drop(tracked);
    attempt.finish(held).await;
}

/// The outcome for the caller: after a shutdown no lease, however the try ended.
fn unless_shut_down(tracked: &TrackedAttempt, outcome: Outcome) -> Outcome {
    let lease = outcome?;
    if tracked.is_shut_down() { Err(AcquireFailure::ShutDown) } else { Ok(lease) }
}

/// Collects a lease for its caller, if that has polled in time.
fn collect(shared: &Shared, params: &AcquireParams, lease: UncollectedLease) -> Result<Tenure, AcquireFailure> {
    if shared.attempts.is_closed() {
        return Err(AcquireFailure::ShutDown);
    }
    let held = Arc::clone(lease.held());
    let others = shared.reentry_table.overlapping(&params.holder, &params.resources);
    let (earlier, later): (Vec<_>, Vec<_>) = others.iter().partition(|other| other.token() < held.token());
    if let Some(later) = later.first() {
        held.end_taken_over_by(later);
    }
    if held.remaining(&*shared.clock) < params.terms.min_remaining() {
        return Err(AcquireFailure::NotPolled); // P2, by the time at which it is relied on
    }
    if !shared.keep_alive.adopt(&held, Some(params.renewal_policy(shared.clock.now()))) {
        return Err(AcquireFailure::ShutDown);
    }
    for earlier in earlier {
        earlier.end_taken_over_by(&held); // P23
        shared.keep_alive.reschedule(earlier);
    }
    Ok(lease.collect())
}
