//! One try, in a task of the client (P22): the wait for its turn, its rounds, and the lease for its caller.
//!
//! Of many tries for one lock one sends a round at a time. Those that came before it began share its verdict, and the next round is for
//! those that came later (P24). So each waits for two rounds at most, however many they are.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::attempt::Attempt;
use super::slot::AskPermit;
use super::uncollected::{UncollectedLease, share, share_now};
use super::waiter::{Place, Sent, back_off};
use super::{AcquireFailure, AcquireParams};
use crate::protocol::{Access, Instant};
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::{TrackedAttempt, run_abort_on_drop, stalled};

type Outcome = Result<UncollectedLease, AcquireFailure>;

/// One try.
pub(crate) async fn try_acquire(shared: &Arc<Shared>, params: &Arc<AcquireParams>) -> Result<Tenure, AcquireFailure> {
    let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
    if let Some(tenure) = share_now(shared, params).await? {
        return Ok(tenure);
    }
    if let Some(refusal) = shared.slots.refusal(params, &*shared.clock) {
        yield_now().await; // a caller that tries again and again must let others run
        return Err(refusal);
    }
    let begun = shared.clock.now();
    let place = (params.access == Access::Write).then(|| Place::join(shared, params, false)); // readers stand in no queue (P33)
    let may_ask = place.as_ref().is_none_or(Place::is_next) && shared.backs_off(&params.resource).is_none();
    let round = place.as_ref().map_or(0, |place| place.slot().tries());
    let mut a_try = Try { place, shared: Arc::clone(shared), params: Arc::clone(params), begun, round, tracked };
    let sent = match may_ask.then(|| shared.slots.ask_now()).flatten() {
        Some(permit) => Some(a_try.send(permit)?), // at once, a task continues from there
        None => None,
    };
    let outcome = tokio::select! {
        biased;
        outcome = run_abort_on_drop(&shared.runtime, |result| a_try.run(sent, result)) => outcome,
        () = stalled(&shared.runtime, shared.instance_timeout, shared.instance_timeout) => return Err(AcquireFailure::Stalled),
    };
    outcome??.collect(params)
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
    /// The number of its own round; before that, of the last that had begun when it came.
    round: u64,
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
            Err(failure @ AcquireFailure::RoundLost(_)) => {
                let (number, terms) = (self.round, self.params.terms);
                let place = self.place.iter().filter(|_| self.params.is_fought_out());
                place.for_each(|place| place.slot().note_lost_try(number, terms, failure.clone()));
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

    /// Waits for its turn, unless a round that begins meanwhile decides for it, and for a permit.
    async fn begin(&mut self) -> Result<Begun, AcquireFailure> {
        let (shared, params) = (Arc::clone(&self.shared), Arc::clone(&self.params));
        if let Some(place) = &mut self.place {
            let slot = Arc::clone(place.slot());
            loop {
                let mut news = pin!(slot.news());
                news.as_mut().enable();
                if let Some(lease) = share(&shared, &params).await? {
                    return Ok(Begun::Shared(lease));
                }
                if let Some(refusal) = slot.refusal(&params, self.round, &*shared.clock) {
                    return Err(refusal);
                }
                if place.is_next() {
                    break;
                }
                tokio::select! {
                    biased; // a run that is repeated under a seed takes the same branches
                    () = shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
                    () = place.wait_for_turn() => {}
                    () = news => {}
                }
            }
        }
        back_off(&shared, &params.resource).await?;
        let permit = tokio::select! {
            biased;
            () = shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
            failure = shared.slots.no_quorum_since(self.begun) => return Err(failure),
            permit = shared.slots.ask(false) => permit?,
        };
        Ok(Begun::Attempt(self.send(permit)?))
    }

    /// Sends its round.
    fn send(&mut self, permit: AskPermit) -> Result<Sent, AcquireFailure> {
        self.round = self.place.as_ref().map_or(0, |place| place.slot().begin_try());
        Ok((Attempt::begin(&self.shared, &self.params, None, None)?, permit))
    }
}
