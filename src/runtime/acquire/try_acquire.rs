//! One try, in a task of the client (P22): the wait for its turn, its rounds, and the lease for its caller.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::uncollected::{UncollectedLease, share, share_now};
use super::waiter::{Place, Sent, stand_back};
use super::{AcquireFailure, AcquireParams};
use crate::protocol::{Access, Instant};
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::{TrackedAttempt, run_abort_on_drop};

type Outcome = Result<UncollectedLease, AcquireFailure>;

/// One try. It waits for an instance timeout at most before anything is sent.
pub(crate) async fn try_acquire(shared: &Arc<Shared>, params: &Arc<AcquireParams>) -> Result<Tenure, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
    if let Some(tenure) = share_now(shared, params).await? {
        return Ok(tenure);
    }
    if let Err(refusal) = stand_back(shared, params) {
        yield_now().await; // a caller that tries again and again must let others run
        return Err(refusal);
    }
    let begun = shared.clock.now();
    let place = (params.access == Access::Write).then(|| Place::join(shared, params, false)); // readers stand in no queue (P33)
    let is_next = place.as_ref().is_none_or(Place::is_next);
    let a_try = Try { place, shared: Arc::clone(shared), params: Arc::clone(params), begun, tracked };
    let sent = match is_next.then(|| shared.slots.ask_now()).flatten() {
        Some(permit) => Some((Attempt::begin(shared, params, None, None)?, permit)), // at once, a task continues from there
        None => None,
    };
    run_abort_on_drop(&shared.runtime, |result| a_try.run(sent, result)).await??.collect(params)
}

/// What a single try that had to wait begins with.
enum Begun {
    Attempt(Sent),
    /// Another of the same holder has won meanwhile (P23).
    Shared(UncollectedLease),
}

struct Try {
    /// `None` for a reader.
    place: Option<Place>,
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    begun: Instant,
    tracked: TrackedAttempt,
}

impl Try {
    async fn run(mut self, sent: Option<Sent>, result: oneshot::Sender<Outcome>) {
        let begun = match sent {
            Some(sent) => Ok(Begun::Attempt(sent)),
            None => self.begin().await,
        };
        let (mut attempt, permit) = match begun {
            Ok(Begun::Attempt(sent)) => sent,
            Ok(Begun::Shared(lease)) => return drop(result.send(Ok(lease))),
            Err(failure) => return drop(result.send(Err(failure))),
        };
        let mut outcome = attempt.outcome().await;
        drop(permit);
        match &outcome {
            // A waiter of this client need not try.
            Ok(lease) if self.place.is_some() => self.shared.slots.put_held(lease.held()),
            Err(AcquireFailure::RoundLost(_)) => {
                self.shared.order.iter().for_each(|order| order.refused(&self.params.resource)); // P26
            }
            Ok(_) | Err(_) => {}
        }
        let held = outcome.as_ref().ok().map(|lease| Arc::clone(lease.held()));
        drop(self.place);
        if self.shared.attempts.is_closed() {
            outcome = outcome.and(Err(AcquireFailure::ShutDown));
        }
        // If the caller is gone, the lease is returned and is dropped here.
        let _ = result.send(outcome);
        drop(self.tracked);
        attempt.finish(held).await;
    }

    /// Waits for its turn and a permit.
    async fn begin(&mut self) -> Result<Begun, AcquireFailure> {
        let (shared, params, begun) = (&self.shared, &self.params, self.begun);
        if let Some(place) = self.place.as_mut().filter(|place| !place.is_next()) {
            within_limit(shared, begun, place.wait_for_turn()).await?;
            if let Some(lease) = share(shared, params).await? {
                return Ok(Begun::Shared(lease));
            }
            stand_back(shared, params)?;
        }
        let permit = within_limit(shared, begun, shared.slots.ask(false)).await??;
        Ok(Begun::Attempt((Attempt::begin(shared, params, None, None)?, permit)))
    }
}

/// Waits for what is left of an instance timeout at most; without a result if the client is shut down meanwhile.
async fn within_limit<T>(
    shared: &Shared,
    begun: Instant,
    wait: impl IntoFuture<Output = T>,
) -> Result<T, AcquireFailure> {
    let waited = shared.clock.now().saturating_since(begun);
    let left = shared.instance_timeout.saturating_sub(waited);
    let output = timeout(left, wait).await.map_err(|_| AcquireFailure::QueueTimeout)?;
    if shared.attempts.is_closed() { Err(AcquireFailure::ShutDown) } else { Ok(output) }
}
