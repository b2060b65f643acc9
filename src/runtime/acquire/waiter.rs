//! Waits until a lease is won: each wait is a task of the client (P22), from the caller's first poll on.
//!
//! So a waiter in a slot is always polled, even if its caller polls nothing. Only a won lease waits for the caller, for an
//! instance timeout: then the client passes it on, and the caller queues again when it polls.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;

use super::asking::Asking;
use super::attempt::{Attempt, Outcome};
use super::deadline::Deadline;
use super::failure::AcquireFailure;
use super::left_mark::{LeftMark, TakesMarks};
use super::params::AcquireParams;
use super::place::Place;
use super::slot::{Slot, Step};
use super::tracker::TrackedAttempt;
use super::uncollected::{UncollectedLease, WonLease, share, share_now};
use crate::protocol::{Access, WriterMark};
use crate::random;
use crate::resource::Resource;
use crate::runtime::client_task::run_abort_on_drop;
use crate::runtime::held_lease::Tenure;
use crate::runtime::order::Wait;
use crate::runtime::shared::Shared;
use crate::runtime::wait_events::{self, AskReason, TARGET};

/// Waits until there is a lease, the wait is over, or waiting longer cannot help.
pub(super) async fn acquire(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    deadline: Deadline,
) -> Result<Tenure, AcquireFailure> {
    if let Ok(Some(tenure)) = share_now(shared, params).await {
        return Ok(tenure);
    }
    loop {
        if let Some(collected) = wait(shared, params, deadline)?.await?.collect(shared, params) {
            return collected;
        }
    }
}

/// Begins one wait: it is in the queue when this returns. What is won waits for the caller for an instance timeout.
pub(super) fn wait(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    deadline: Deadline,
) -> Result<impl Future<Output = WaitOutcome> + Send + use<>, AcquireFailure> {
    let (waiter, sent) = Waiter::join(shared, params, deadline)?;
    let runtime = shared.runtime.clone();
    Ok(async move { run_abort_on_drop(&runtime, |result| waiter.run(sent, result)).await? })
}

pub(super) type WaitOutcome = Result<Arc<WonLease>, AcquireFailure>;

/// A lease for a waiter, and the outstanding replies if an attempt was sent for it.
pub(super) type Gained = (UncollectedLease, Option<Box<Attempt>>);

/// An attempt that was sent. The permit is given back with the outcome.
pub(super) type Sent = (Box<Attempt>, OwnedSemaphorePermit);

/// One wait. Dropped at any time it leaves nothing behind: its attempt is released before the next one is sent.
struct Waiter {
    place: Place,
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    deadline: Deadline,
    /// How often the lease of its holder could not be extended for it.
    not_extended: u32,
    tracked: TrackedAttempt,
}

impl Waiter {
    /// If it is its turn at once, its attempt is sent before this returns.
    fn join(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        deadline: Deadline,
    ) -> Result<(Self, Option<Sent>), AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        let place = Place::join(shared, params, true);
        let slot = Arc::clone(place.slot());
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        let mut waiter = Self { place, shared, params, deadline, not_extended: 0, tracked };
        let mut sent = None;
        if let Some(asking) = waiter.place.asking()
            && slot.is_free()
            && waiter.shared.stands_back(slot.resource()).is_none()
            && let Some(permit) = waiter.shared.slots.ask_now()
        {
            let attempt = begin(&waiter.shared, &waiter.params, &slot, asking)?;
            sent = Some((attempt, permit));
        }
        Ok((waiter, sent))
    }

    async fn run(mut self, mut sent: Option<Sent>, result: oneshot::Sender<WaitOutcome>) {
        let gained = loop {
            match AssertUnwindSafe(self.gain(&mut sent)).catch_unwind().await {
                Ok(gained) => break gained,
                Err(_) => {
                    tracing::error!("a task that waits for a lock has panicked; it goes on");
                    sleep(self.shared.retry.least()).await;
                }
            }
        };
        let Self { tracked, shared, place, .. } = self;
        drop(sent); // in vain, if its holder has the lease by now
        drop(place); // the next waiter continues
        deliver(&shared, gained, tracked, result).await;
    }

    /// Waits for a lease; then this client has it, as the slot knows.
    async fn gain(&mut self, sent: &mut Option<Sent>) -> Result<Gained, AcquireFailure> {
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(self.place.slot()));
        let clock = &*shared.clock;
        loop {
            if shared.attempts.is_closed() {
                return Err(AcquireFailure::ShutDown);
            }
            let listens = !self.params.holder.is_empty() || self.deadline.has_passed(clock);
            let mut news = pin!(slot.news());
            if listens {
                news.as_mut().enable();
            }
            match share(&shared, &self.params).await {
                Ok(Some(lease)) => return Ok((lease, None)),
                Ok(None) => {}
                Err(failure) => {
                    self.pause_unextended(failure).await?;
                    continue;
                }
            }
            if self.place.asking().is_some() {
                let gained = match sent.take() {
                    Some(sent) => self.ask(&slot, sent).await?,
                    None => self.take_turn(&slot).await?,
                };
                if let Some(gained) = gained {
                    return Ok(gained);
                }
                continue;
            }
            if let Some(last) = self.over(&slot) {
                return Err(self.deadline.failure(last, clock));
            }
            // Past its end it waits for the turn no longer than for an answer, unless there will be one.
            let by = if self.deadline.has_passed(clock) { shared.instance_timeout } else { Duration::ZERO };
            tokio::select! {
                biased; // a run that is repeated under a seed takes the same branches
                () = shared.attempts.closed() => {}
                () = self.place.wait_for_turn() => {}
                () = news, if listens => {}
                () = self.deadline.wait(by, clock), if !self.deadline.is_past(by, clock) => {}
            }
        }
    }

    /// Why the lock was not acquired, if the wait is over. An attempt is waited for, so that a short wait still learns that; not for
    /// long if its turn does not come, where there are very many waiters.
    fn over(&self, slot: &Slot) -> Option<AcquireFailure> {
        let clock = &*self.shared.clock;
        if !self.deadline.has_passed(clock) {
            return None;
        }
        let waits_on = || slot.is_asked() || !self.deadline.is_past(self.shared.instance_timeout, clock);
        slot.in_the_way(clock).or_else(|| (!waits_on()).then_some(AcquireFailure::QueueTimeout))
    }

    /// Its holder has the lease, which cannot be extended now.
    async fn pause_unextended(&mut self, failure: AcquireFailure) -> Result<(), AcquireFailure> {
        if !failure.may_pass() {
            return Err(failure);
        }
        let pause = self.shared.retry.after(self.not_extended, random::spread());
        self.not_extended = self.not_extended.saturating_add(1);
        self.rest(pause.min(self.shared.instance_timeout), failure).await
    }

    /// Waits so long, or until the client is shut down, or the wait is over.
    async fn rest(&self, pause: Duration, last: AcquireFailure) -> Result<(), AcquireFailure> {
        let clock = &*self.shared.clock;
        tokio::select! {
            biased;
            () = self.shared.attempts.closed() => Err(AcquireFailure::ShutDown),
            () = self.deadline.wait(Duration::ZERO, clock) => Err(self.deadline.failure(last, clock)),
            () = sleep(pause) => Ok(()),
        }
    }

    /// One step of the next waiter.
    async fn take_turn(&mut self, slot: &Slot) -> Result<Option<Gained>, AcquireFailure> {
        let shared = Arc::clone(&self.shared);
        let clock = &*shared.clock;
        let Some(asking) = self.place.asking() else { return Ok(None) };
        match slot.next_step(clock) {
            Step::Take(held) => {
                let may_take = self.params.may_take(&held, clock);
                let lease = UncollectedLease::new(Arc::clone(&shared), held);
                return Ok(may_take.then_some((lease, None))); // dropped, it is released
            }
            Step::Watch(held) => {
                asking.why = AskReason::LetGo;
                let is_over = tokio::select! {
                    biased;
                    () = shared.attempts.closed() => false,
                    () = slot.changed() => false,
                    _ = held.wait_for_end(clock) => false,
                    () = self.deadline.wait(Duration::ZERO, clock) => true,
                };
                if let Some(last) = slot.in_the_way(clock).filter(|_| is_over) {
                    return Err(self.deadline.failure(last, clock));
                }
            }
            Step::AwaitRelease => wait_for_change(&shared, slot, shared.instance_timeout).await,
            Step::Pause => {
                asking.why = AskReason::Turn;
                tokio::select! {
                    biased;
                    () = shared.attempts.closed() => {}
                    () = sleep(shared.retry.least()) => {}
                }
            }
            Step::Ask => match shared.stands_back(slot.resource()) {
                Some((pause, _)) => {
                    asking.why = AskReason::Turn;
                    wait_for_change(&shared, slot, pause).await;
                }
                None => {
                    let (by, last) = (shared.instance_timeout, &AcquireFailure::QueueTimeout);
                    let permit = self.deadline.in_time(by, &shared, shared.slots.ask(), last).await??;
                    let Some(asking) = self.place.asking() else { return Ok(None) };
                    let attempt = begin(&shared, &self.params, slot, asking)?;
                    return self.ask(slot, (attempt, permit)).await;
                }
            },
        }
        Ok(None)
    }

    /// Waits for the outcome of an attempt, and after a lost one until another is worth sending.
    async fn ask(&mut self, slot: &Slot, (mut attempt, permit): Sent) -> Result<Option<Gained>, AcquireFailure> {
        let shared = Arc::clone(&self.shared);
        let clock = &*shared.clock;
        let failure = loop {
            let outcome = tokio::select! {
                biased;
                outcome = attempt.next_outcome() => outcome,
                last = self.over_while_asking(slot) => return Err(self.deadline.failure(last, clock)),
            };
            match outcome {
                Outcome::Won(lease) => {
                    self.won(slot, &attempt, &lease);
                    return Ok(Some((lease, Some(attempt))));
                }
                Outcome::Lost(failure) => break failure,
                // P31: it is repeated as long as no holder is known.
                Outcome::Undecided(failure, pause) => {
                    if slot.note_failure(failure.clone(), clock) {
                        return Ok(None); // this client has it
                    }
                    self.rest(pause, failure).await?;
                    attempt.ask_again()?;
                }
            }
        };
        let rounds = attempt.rounds();
        drop((attempt, permit)); // its releases are queued, outstanding replies are awaited in the background
        self.pause_after(slot, rounds, failure).await?;
        Ok(None)
    }

    /// Why the lock was not acquired, once the wait is over; the first attempt for the waiters is waited for.
    async fn over_while_asking(&self, slot: &Slot) -> AcquireFailure {
        let clock = &*self.shared.clock;
        self.deadline.wait(Duration::ZERO, clock).await;
        match slot.in_the_way(clock) {
            Some(last) => last,
            None => std::future::pending().await,
        }
    }

    fn won(&mut self, slot: &Slot, attempt: &Attempt, lease: &UncollectedLease) {
        self.shared.slots.put_held(lease.held());
        if let Some(asking) = self.place.asking() {
            let rounds = asking.rounds.saturating_add(attempt.rounds());
            tracing::debug!(target: TARGET, resource = slot.resource().display(), asks = asking.asks, rounds, "won");
            asking.won();
        }
    }

    async fn pause_after(&mut self, slot: &Slot, rounds: usize, failure: AcquireFailure) -> Result<(), AcquireFailure> {
        let shared = Arc::clone(&self.shared);
        let (clock, deadline) = (&*shared.clock, self.deadline);
        let (AcquireFailure::RoundLost(round), Some(asking)) = (&failure, self.place.asking()) else {
            return Err(failure); // which does not pass
        };
        asking.rounds = asking.rounds.saturating_add(rounds);
        asking.seen = round.highest_seen();
        wait_events::refused(slot.resource(), round, || shared.known_waiters(slot.resource()));
        let leaves_mark = asking.note_readers(round, || begin_mark(&shared, slot.resource()));
        if slot.note_failure(failure.clone(), clock) || leaves_mark {
            return Ok(()); // the next step is to wait for the holder, or to try at once, and to leave the mark (P34)
        }
        asking.why = tokio::select! {
            biased;
            () = shared.attempts.closed() => AskReason::Line,
            () = slot.changed() => AskReason::Line,
            () = deadline.wait(Duration::ZERO, clock) => return Err(deadline.failure(failure, clock)),
            why = asking.pause(shared.retry, || begin_wait(&shared, slot.resource(), Access::Write), round) => why,
        };
        Ok(())
    }
}

/// Sends an attempt.
fn begin(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    slot: &Slot,
    asking: &mut Asking,
) -> Result<Box<Attempt>, AcquireFailure> {
    asking.asks = asking.asks.saturating_add(1);
    let why = std::mem::replace(&mut asking.why, AskReason::Line);
    slot.note_ask();
    let resource = slot.resource();
    if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        let (asks, waiting_here) = (asking.asks, shared.known_waiters(resource).here);
        tracing::debug!(target: TARGET, resource = resource.display(), asks, ?why, waiting_here, "asks");
    }
    Attempt::begin(shared, params, asking.seen, asking.mark())
}

pub(super) async fn wait_for_change(shared: &Shared, slot: &Slot, at_most: Duration) {
    tokio::select! {
        biased;
        () = shared.attempts.closed() => {}
        () = slot.changed() => {}
        () = sleep(at_most) => {}
    }
}

/// Lays what was gained down for the caller, and takes in the replies that are outstanding.
pub(super) async fn deliver(
    shared: &Shared,
    gained: Result<Gained, AcquireFailure>,
    tracked: TrackedAttempt,
    result: oneshot::Sender<WaitOutcome>,
) {
    match gained {
        Ok((lease, attempt)) if !shared.attempts.is_closed() => {
            let held = Arc::clone(lease.held());
            let won = Arc::new(WonLease::new(lease));
            let _ = result.send(Ok(Arc::clone(&won)));
            let replies = async {
                if let Some(mut attempt) = attempt {
                    attempt.finish(Some(held)).await;
                }
            };
            tokio::join!(pass_on_unless_taken(shared, won, tracked), replies);
        }
        Ok(given_back) => {
            drop(given_back);
            let _ = result.send(Err(AcquireFailure::ShutDown));
        }
        Err(failure) => drop(result.send(Err(failure))),
    }
}

/// Gives the caller an instance timeout to take what was won; then another caller of this client gets it, or it is released.
async fn pass_on_unless_taken(shared: &Shared, won: Arc<WonLease>, tracked: TrackedAttempt) {
    tokio::select! {
        biased;
        () = won.taken() => {}
        () = shared.attempts.closed() => {}
        () = sleep(shared.instance_timeout) => {}
    }
    drop(won.take());
    drop(tracked);
}

/// A mark for writers that begin to wait for readers now (P34). `None` if no clock shows when that is.
fn begin_mark(shared: &Arc<Shared>, resource: &Resource) -> Option<LeftMark> {
    let mark = WriterMark::new(shared.proposing_clock().ok()?.us, shared.tokens.client());
    let client = Arc::downgrade(shared) as Weak<dyn TakesMarks>;
    Some(LeftMark::new(client, resource.clone(), mark))
}

/// Begins to wait in order with other clients, if this one keeps that (P25).
pub(super) fn begin_wait(shared: &Shared, resource: &Resource, access: Access) -> Option<Wait> {
    let wall_us = shared.proposing_clock().ok()?.us;
    shared.order.as_ref()?.wait(resource, access, shared.quorum, wall_us)
}
