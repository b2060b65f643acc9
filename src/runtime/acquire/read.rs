//! Reads: any number of readers have a lock together, each by a lease of its own (P33). They stand in no queue, but one that finds a
//! writer of its own client there, or waiting, takes a place behind it (P34).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::asking::Asking;
use super::attempt::{Attempt, Outcome};
use super::deadline::Deadline;
use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::place::Place;
use super::slot::Step;
use super::tracker::TrackedAttempt;
use super::try_acquire::stand_back;
use super::uncollected::UncollectedLease;
use super::waiter::{Gained, Sent, WaitOutcome, begin_wait, deliver, wait_for_change};
use crate::protocol::Access;
use crate::runtime::client_task::{RuntimeEnded, run_abort_on_drop};
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

/// Waits until it reads, the wait is over, or waiting longer cannot help.
pub(crate) async fn read_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let deadline = Deadline { begun: shared.clock.now(), limit };
    loop {
        let (reader, sent) = Reader::begin(shared, params, deadline)?;
        let outcome = run_abort_on_drop(&shared.runtime, |result| reader.run(sent, result)).await;
        let won = outcome.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??;
        match won.take().map(|lease| lease.collect(params)) {
            None if shared.attempts.is_closed() => return Err(AcquireFailure::ShutDown),
            None | Some(Err(AcquireFailure::NotPolled)) => {} // it was given up
            Some(collected) => return collected,
        }
    }
}

/// One try. It does not ask while somebody of this client has the lock, or waits to write (P24, P34).
pub(crate) async fn try_read(shared: &Arc<Shared>, params: &Arc<AcquireParams>) -> Result<Tenure, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
    if let Err(refusal) = stand_back(shared, params) {
        yield_now().await; // whoever tries again and again must let others run
        return Err(refusal);
    }
    let permit = match shared.slots.ask_now() {
        Some(permit) => permit,
        None => shared.slots.ask().await.ok_or(AcquireFailure::ShutDown)?,
    };
    let attempt = Attempt::begin(shared, params, None, None)?;
    let (client, wanted) = (Arc::clone(shared), Arc::clone(params));
    let a_try = move |result: oneshot::Sender<Result<UncollectedLease, AcquireFailure>>| {
        carry_out(client, wanted, (attempt, permit), tracked, result)
    };
    let outcome = run_abort_on_drop(&shared.runtime, a_try).await;
    outcome.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??.collect(params)
}

async fn carry_out(
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    (mut attempt, permit): Sent,
    tracked: TrackedAttempt,
    result: oneshot::Sender<Result<UncollectedLease, AcquireFailure>>,
) {
    let mut outcome = attempt.outcome().await;
    drop(permit);
    if matches!(outcome, Err(AcquireFailure::RoundLost(_))) {
        shared.note_refused(&params.resource); // P26
    }
    let held = outcome.as_ref().ok().map(|lease| Arc::clone(lease.held()));
    if tracked.is_shut_down() {
        outcome = outcome.and(Err(AcquireFailure::ShutDown));
    }
    let _ = result.send(outcome); // if the caller is gone, the lease comes back and is dropped here
    drop(tracked);
    attempt.finish(held).await;
}

/// A reader that waits. Dropped at any time it leaves nothing behind.
struct Reader {
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    deadline: Deadline,
    asking: Asking,
    /// Why the last ask was in vain.
    last: Option<AcquireFailure>,
    tracked: TrackedAttempt,
}

impl Reader {
    /// If nobody is known to be in the way, what it asks for is sent before this returns.
    fn begin(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        deadline: Deadline,
    ) -> Result<(Self, Option<Sent>), AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        let sent = match stand_back(shared, params).ok().and_then(|()| shared.slots.ask_now()) {
            Some(permit) => Some((Attempt::begin(shared, params, None, None)?, permit)),
            None => None,
        };
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        Ok((Self { shared, params, deadline, asking: Asking::default(), last: None, tracked }, sent))
    }

    async fn run(mut self, sent: Option<Sent>, result: oneshot::Sender<WaitOutcome>) {
        let gained = self.gain(sent).await;
        let Self { shared, tracked, asking, .. } = self;
        drop(asking);
        deliver(&shared, gained, tracked, result).await;
    }

    async fn gain(&mut self, mut sent: Option<Sent>) -> Result<Gained, AcquireFailure> {
        loop {
            let sent = match sent.take() {
                Some(sent) => sent,
                None => self.ask_in_turn().await?,
            };
            if let Some(gained) = self.outcome(sent).await? {
                return Ok(gained);
            }
        }
    }

    /// Sends an ask, behind all writers of this client that were there before.
    async fn ask_in_turn(&mut self) -> Result<Sent, AcquireFailure> {
        let shared = Arc::clone(&self.shared);
        let turn = match shared.slots.refusal(&self.params.resource, &*shared.clock) {
            Some(in_the_way) => Some(self.turn(in_the_way).await?),
            None => None,
        };
        while let Some((pause, next)) = shared.stands_back(&self.params.resource) {
            self.in_time(sleep(pause), AcquireFailure::PassedOn(next)).await?;
        }
        let permit: OwnedSemaphorePermit = match shared.slots.ask_now() {
            Some(permit) => permit,
            None => {
                let permit = self.in_time(shared.slots.ask(), AcquireFailure::QueueTimeout).await?;
                permit.ok_or(AcquireFailure::ShutDown)?
            }
        };
        let attempt = Attempt::begin(&shared, &self.params, None, None)?;
        drop(turn); // what is sent by those behind it comes later
        Ok((attempt, permit))
    }

    /// The turn among the writers of this client, once none of them has the lock.
    async fn turn(&self, in_the_way: AcquireFailure) -> Result<Place, AcquireFailure> {
        let (shared, clock) = (&self.shared, &*self.shared.clock);
        let mut place = Place::join(shared, &self.params, true);
        let slot = Arc::clone(place.slot());
        if place.asking().is_none() {
            let turn = self.in_time(slot.turn(), in_the_way.clone()).await?;
            place.begin_turn(turn, &self.params);
        }
        place.asking().into_iter().for_each(Asking::give_up_mark); // it would keep out this one as well
        loop {
            match slot.next_step(clock) {
                Step::Take(held) => drop(UncollectedLease::new(Arc::clone(shared), held)), // it is released
                Step::Watch(held) => {
                    let mut changed = pin!(slot.changed());
                    let end = async {
                        tokio::select! {
                            biased; // a run that is repeated under a seed takes the same branches
                            () = &mut changed => {}
                            _ = held.wait_for_end(clock) => {}
                        }
                    };
                    self.in_time(end, in_the_way.clone()).await?;
                }
                Step::AwaitRelease => wait_for_change(shared, &slot, shared.instance_timeout).await,
                Step::Pause | Step::Ask => return Ok(place),
            }
            if shared.attempts.is_closed() {
                return Err(AcquireFailure::ShutDown);
            }
        }
    }

    /// Waits for what comes of an ask, and after one that was in vain until it is worth asking again.
    async fn outcome(&mut self, (mut attempt, permit): Sent) -> Result<Option<Gained>, AcquireFailure> {
        let clock = Arc::clone(&self.shared.clock);
        let failure = loop {
            // The first ask is waited for, so that a short wait still learns what is in the way.
            let outcome = match &self.last {
                Some(last) => self.in_time(attempt.next_outcome(), last.clone()).await?,
                None => attempt.next_outcome().await,
            };
            match outcome {
                Outcome::Won(lease) => {
                    self.asking.won();
                    return Ok(Some((lease, Some(attempt))));
                }
                Outcome::Lost(failure) => break failure,
                Outcome::Undecided(failure, pause) => {
                    self.last = Some(failure.clone());
                    self.in_time(sleep(pause), failure).await?;
                    attempt.ask_again()?;
                }
            }
        };
        drop((attempt, permit)); // its releases are queued, outstanding replies are awaited in the background
        if !failure.may_pass() {
            return Err(failure);
        }
        self.last = Some(failure.clone());
        let Self { shared, params, deadline, asking, .. } = self;
        let begin_wait = || begin_wait(shared, &params.resource, Access::Read);
        tokio::select! {
            biased;
            () = shared.attempts.closed() => Err(AcquireFailure::ShutDown),
            () = deadline.wait(Duration::ZERO, &*clock) => Err(deadline.failure(failure, &*clock)),
            _ = asking.pause(shared.retry, begin_wait, &failure) => Ok(None),
        }
    }

    /// What comes of this, unless the client is shut down, or the wait is over before.
    async fn in_time<T>(&self, what: impl IntoFuture<Output = T>, last: AcquireFailure) -> Result<T, AcquireFailure> {
        let clock = &*self.shared.clock;
        tokio::select! {
            biased;
            () = self.shared.attempts.closed() => Err(AcquireFailure::ShutDown),
            what = what.into_future() => Ok(what),
            () = self.deadline.wait(Duration::ZERO, clock) => Err(self.deadline.failure(last, clock)),
        }
    }
}
