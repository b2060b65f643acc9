//! Reads: any number of readers have a lock together, each by a lease of its own (P33). They are in no queue, but one that finds a
//! writer of its own client there, or waiting, takes a place behind it (P34).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
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
use crate::runtime::client_task::run_abort_on_drop;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

/// Waits until it reads, the wait is over, or waiting longer cannot help.
pub(super) async fn read(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    deadline: Deadline,
) -> Result<Tenure, AcquireFailure> {
    loop {
        let (reader, sent) = Reader::begin(shared, params, deadline)?;
        let won = run_abort_on_drop(&shared.runtime, |result| reader.run(sent, result)).await??;
        if let Some(collected) = won.collect(shared, params) {
            return collected;
        }
    }
}

/// A reader that waits. Dropped at any time it leaves nothing behind.
struct Reader {
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    deadline: Deadline,
    asking: Asking,
    /// Why the last attempt failed.
    last: Option<AcquireFailure>,
    tracked: TrackedAttempt,
}

impl Reader {
    /// If no other holder or waiter is known, the request is sent before this returns.
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

    /// Sends an attempt, behind all writers of this client that were there before.
    async fn ask_in_turn(&mut self) -> Result<Sent, AcquireFailure> {
        let shared = Arc::clone(&self.shared);
        let turn = match shared.slots.refusal(&self.params.resource, &*shared.clock) {
            Some(in_the_way) => Some(self.turn(&in_the_way).await?),
            None => None,
        };
        while let Some((pause, next)) = shared.stands_back(&self.params.resource) {
            self.in_time(sleep(pause), &AcquireFailure::PassedOn(next)).await?;
        }
        let permit = self.in_time(shared.slots.ask(), &AcquireFailure::QueueTimeout).await??;
        let attempt = Attempt::begin(&shared, &self.params, None, None)?;
        drop(turn); // what is sent by those behind it comes later
        Ok((attempt, permit))
    }

    /// The turn among the writers of this client, once none of them has the lock.
    async fn turn(&self, in_the_way: &AcquireFailure) -> Result<Place, AcquireFailure> {
        let (shared, clock) = (&self.shared, &*self.shared.clock);
        let mut place = Place::join(shared, &self.params, true);
        let slot = Arc::clone(place.slot());
        self.in_time(place.wait_for_turn(), in_the_way).await?;
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
                    self.in_time(end, in_the_way).await?;
                }
                Step::AwaitRelease => wait_for_change(shared, &slot, shared.instance_timeout).await,
                Step::Pause | Step::Ask => return Ok(place),
            }
            if shared.attempts.is_closed() {
                return Err(AcquireFailure::ShutDown);
            }
        }
    }

    /// Waits for the outcome of an attempt, and after a lost one until another is worth sending.
    async fn outcome(&mut self, (mut attempt, permit): Sent) -> Result<Option<Gained>, AcquireFailure> {
        let clock = Arc::clone(&self.shared.clock);
        let failure = loop {
            // The first attempt is waited for, so that a short wait still learns who has the lock.
            let outcome = match &self.last {
                Some(last) => self.in_time(attempt.next_outcome(), last).await?,
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
                    self.in_time(sleep(pause), &failure).await?;
                    attempt.ask_again()?;
                }
            }
        };
        drop((attempt, permit)); // its releases are queued, outstanding replies are awaited in the background
        let AcquireFailure::RoundLost(round) = &failure else { return Err(failure) };
        let Self { shared, params, deadline, asking, .. } = self;
        let begin_wait = || begin_wait(shared, &params.resource, Access::Read);
        let pause = asking.pause(shared.retry, begin_wait, round);
        tokio::select! {
            biased;
            () = shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
            () = deadline.wait(Duration::ZERO, &*clock) => return Err(deadline.failure(failure, &*clock)),
            _ = pause => {}
        }
        self.last = Some(failure);
        Ok(None)
    }

    /// The result of this, unless the client is shut down, or the wait is over before.
    async fn in_time<T>(&self, what: impl IntoFuture<Output = T>, last: &AcquireFailure) -> Result<T, AcquireFailure> {
        self.deadline.in_time(Duration::ZERO, &self.shared, what, last).await
    }
}
