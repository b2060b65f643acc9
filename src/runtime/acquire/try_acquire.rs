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
use super::share::{share, share_now};
use super::tracker::TrackedAttempt;
use super::uncollected::UncollectedLease;
use crate::protocol::{FencingToken, Instant};
use crate::runtime::client_task::{RuntimeEnded, run_abort_on_drop};
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
    if let Some(tenure) = share_now(shared, params).await? {
        return Ok(tenure);
    }
    let runtime = &shared.runtime;
    let begun = shared.clock.now();
    let task = |tracked| {
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        TryTask { tracked, shared, params, seen, begun, queue_limit, until }
    };
    if let Err(refusal) = stand_back(shared, params) {
        yield_now().await; // whoever tries again and again must let others run
        return Err(refusal);
    }
    let outcome = match (shared.limiter.request(params), shared.ask_limit.take_now()) {
        (PermitRequest::Granted(permit), Some(ask)) => {
            let attempt = Attempt::begin(shared, params, seen)?; // sent at once, a task goes on from there
            run_abort_on_drop(runtime, |result| run((tracked, until), (permit, ask), attempt, result)).await
        }
        (request, ask) => {
            drop(ask);
            run_abort_on_drop(runtime, |result| task(tracked).run_when_permitted(request, result)).await
        }
    };
    outcome.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??.collect(params)
}

/// What a try that had to wait begins with.
enum Begun {
    Attempt(Permits, Box<Attempt>),
    /// Another of the same holder has won meanwhile (P23).
    Shared(UncollectedLease),
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
            Ok(Begun::Attempt(permits, attempt)) => run((self.tracked, self.until), permits, attempt, result).await,
            Ok(Begun::Shared(lease)) => drop(result.send(Ok(lease))),
            Err(failure) => drop(result.send(Err(failure))),
        }
    }

    async fn begin_when_permitted(&self, request: PermitRequest) -> Result<Begun, AcquireFailure> {
        let permit = match request {
            PermitRequest::Granted(permit) => permit,
            // The queue ends with the client only.
            PermitRequest::Queued(permit) => {
                let permit = self.within_limit(permit).await?.map_err(|_| AcquireFailure::ShutDown)?;
                if let Some(lease) = share(&self.shared, &self.params).await? {
                    return Ok(Begun::Shared(lease));
                }
                stand_back(&self.shared, &self.params)?;
                permit
            }
        };
        let ask = match self.shared.ask_limit.take_now() {
            Some(ask) => ask,
            None => self.within_limit(self.shared.ask_limit.take()).await?.ok_or(AcquireFailure::ShutDown)?,
        };
        Ok(Begun::Attempt((permit, ask), Attempt::begin(&self.shared, &self.params, self.seen)?))
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

/// P24: a try does not overtake those of this client who wait, and does not ask for what one of them has.
fn stand_back(shared: &Shared, params: &AcquireParams) -> Result<(), AcquireFailure> {
    let refusal = shared.lines.refusal(&params.resources, shared.instance_timeout, &*shared.clock);
    refusal.map_or(Ok(()), Err)
}

async fn run(
    (tracked, until): (TrackedAttempt, Option<Instant>),
    permits: Permits,
    mut attempt: Box<Attempt>,
    result: oneshot::Sender<Outcome>,
) {
    let outcome = attempt.outcome(until).await;
    if let Ok(lease) = &outcome {
        attempt.shared.lines.put_held(lease.held()); // who waits in this client need not ask, and its holder shares it
    }
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
