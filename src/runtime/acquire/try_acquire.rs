//! One try, in a task of the client (P22): the wait for its turn, its rounds, and the lease for its caller.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::attempt::Attempt;
use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::place::Place;
use super::tracker::TrackedAttempt;
use super::uncollected::{UncollectedLease, share, share_now};
use crate::protocol::Instant;
use crate::runtime::client_task::{RuntimeEnded, run_abort_on_drop};
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

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
        yield_now().await; // whoever tries again and again must let others run
        return Err(refusal);
    }
    let begun = shared.clock.now();
    let mut place = Place::join(shared, params, false);
    let sent = match place.asking().and_then(|_| shared.slots.ask_now()) {
        Some(permit) => Some((Attempt::begin(shared, params, None, None)?, permit)), // at once, a task goes on from there
        None => None,
    };
    let (client, params_of_task) = (Arc::clone(shared), Arc::clone(params));
    let a_try = Try { place, shared: client, params: params_of_task, begun, tracked };
    let outcome = run_abort_on_drop(&shared.runtime, |result| a_try.run(sent, result)).await;
    outcome.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??.collect(params)
}

/// What a try that had to wait begins with.
enum Begun {
    Attempt(Box<Attempt>, OwnedSemaphorePermit),
    /// Another of the same holder has won meanwhile (P23).
    Shared(UncollectedLease),
}

struct Try {
    place: Place,
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    begun: Instant,
    tracked: TrackedAttempt,
}

impl Try {
    async fn run(mut self, sent: Option<(Box<Attempt>, OwnedSemaphorePermit)>, result: oneshot::Sender<Outcome>) {
        let (mut attempt, permit) = match sent {
            Some(sent) => sent,
            None => match self.begin().await {
                Ok(Begun::Attempt(attempt, permit)) => (attempt, permit),
                Ok(Begun::Shared(lease)) => return drop(result.send(Ok(lease))),
                Err(failure) => return drop(result.send(Err(failure))),
            },
        };
        let mut outcome = attempt.outcome().await;
        drop(permit);
        match &outcome {
            Ok(lease) => self.shared.slots.put_held(lease.held()), // who waits in this client need not ask
            Err(AcquireFailure::RoundLost(_)) => self.shared.note_refused(&self.params.resource), // P26
            Err(_) => {}
        }
        let held = outcome.as_ref().ok().map(|lease| Arc::clone(lease.held()));
        drop(self.place);
        if self.tracked.is_shut_down() {
            outcome = outcome.and(Err(AcquireFailure::ShutDown));
        }
        // If the caller is gone, the lease comes back and is dropped here.
        let _ = result.send(outcome);
        drop(self.tracked);
        attempt.finish(held).await;
    }

    /// Waits for its turn and a permit.
    async fn begin(&mut self) -> Result<Begun, AcquireFailure> {
        if self.place.asking().is_none() {
            let turn = self.within_limit(self.place.slot().turn()).await?;
            self.place.begin_turn(turn, &self.params);
            if let Some(lease) = share(&self.shared, &self.params).await? {
                return Ok(Begun::Shared(lease));
            }
            stand_back(&self.shared, &self.params)?;
        }
        let permit = match self.shared.slots.ask_now() {
            Some(permit) => permit,
            None => self.within_limit(self.shared.slots.ask()).await?.ok_or(AcquireFailure::ShutDown)?,
        };
        Ok(Begun::Attempt(Attempt::begin(&self.shared, &self.params, None, None)?, permit))
    }

    /// Waits for what is left of an instance timeout at most; also in vain if the client is shut down meanwhile.
    async fn within_limit<T>(&self, wait: impl IntoFuture<Output = T>) -> Result<T, AcquireFailure> {
        let waited = self.shared.clock.now().saturating_since(self.begun);
        let left = self.shared.instance_timeout.saturating_sub(waited);
        let output = timeout(left, wait).await.map_err(|_| AcquireFailure::QueueTimeout)?;
        if self.shared.attempts.is_closed() { Err(AcquireFailure::ShutDown) } else { Ok(output) }
    }
}

/// P24: a try does not overtake those of this client who wait, and does not ask for what one of them has. Nor does it
/// overtake the client for which this one has just let the lock go (P26).
pub(super) fn stand_back(shared: &Shared, params: &AcquireParams) -> Result<(), AcquireFailure> {
    let refusal = shared.slots.refusal(&params.resource, &*shared.clock);
    let passed_on = || shared.stands_back(&params.resource).map(|(_, next)| AcquireFailure::PassedOn(next));
    refusal.or_else(passed_on).map_or(Ok(()), Err)
}
