//! Waits until a lease is won: each wait is a task of the client (P22), from the caller's first poll on.
//!
//! So a waiter in a slot is always polled, even if its caller polls nothing. Only a won lease waits for the caller, for an
//! instance timeout: then the client passes it on, and the caller queues again when it polls.
//!
//! Any number of readers have a lock together, each by a lease of its own (P33). One that is refused, or finds a writer of its own
//! client, takes a place in the queue, which it keeps until it reads (P34).

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::attempt::{Attempt, Outcome};
use super::slot::{AskPermit, Asking, LeftMark, Slot, Step, Turn};
use super::uncollected::{UncollectedLease, WonLease, share, share_now};
use super::{AcquireFailure, AcquireParams};
use crate::clock::Clock;
use crate::protocol::{Access, Instant, WriterMark};
use crate::random;
use crate::resource::Resource;
use crate::runtime::held_lease::Tenure;
use crate::runtime::order::Wait;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::{TrackedAttempt, run_abort_on_drop, stalled};
use crate::runtime::wait_events::{self, AskReason, TARGET};

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
    loop {
        let won = deadline.while_driven(shared, wait(shared, params, deadline)?).await?;
        if let Some(collected) = won.collect(shared, params) {
            return collected;
        }
    }
}

/// Begins one wait: a writer is in the queue when this returns, and if nothing known is against it, its request is sent. What is won
/// waits for the caller for an instance timeout.
pub(super) fn wait(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    deadline: Deadline,
) -> Result<impl Future<Output = WaitOutcome> + Send + use<>, AcquireFailure> {
    let waits = match params.access {
        Access::Write => Either::Left(Waiter::join(shared, params, deadline)?),
        Access::Read => Either::Right(Reader::begin(shared, params, deadline)?),
    };
    let runtime = shared.runtime.clone();
    let run = |result| match waits {
        Either::Left(waiter) => Either::Left(waiter.run(result)),
        Either::Right(reader) => Either::Right(reader.run(result)),
    };
    Ok(async move { run_abort_on_drop(&runtime, run).await? })
}

pub(super) type WaitOutcome = Result<Arc<WonLease>, AcquireFailure>;

/// A lease for a waiter, and the outstanding replies if an attempt was sent for it.
pub(super) type Gained = (UncollectedLease, Option<Box<Attempt>>);

/// An attempt that was sent. The permit is given back with the outcome.
pub(super) type Sent = (Box<Attempt>, AskPermit);

/// When a wait is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    pub(super) fn begin(limit: Option<Duration>, clock: &dyn Clock) -> Self {
        Self { begun: clock.now(), limit }
    }

    fn waited(self, clock: &dyn Clock) -> Duration {
        clock.now().saturating_since(self.begun)
    }

    /// Whether it was over so long ago.
    pub(super) fn is_past(self, by: Duration, clock: &dyn Clock) -> bool {
        self.limit.is_some_and(|limit| self.waited(clock) >= limit.saturating_add(by))
    }

    pub(super) fn has_passed(self, clock: &dyn Clock) -> bool {
        self.is_past(Duration::ZERO, clock)
    }

    /// Returns when it was over so long ago.
    pub(super) async fn wait(self, by: Duration, clock: &dyn Clock) {
        let Some(limit) = self.limit else { return std::future::pending().await };
        // Timers only wake, the clock decides (P3).
        while !self.is_past(by, clock) {
            sleep(limit.saturating_add(by).saturating_sub(self.waited(clock))).await;
        }
    }

    /// The result of this, unless the client is shut down, or the wait was over so long ago before.
    pub(super) async fn in_time<T>(
        self,
        by: Duration,
        shared: &Shared,
        what: impl IntoFuture<Output = T>,
        last: &AcquireFailure,
    ) -> Result<T, AcquireFailure> {
        let clock = &*shared.clock;
        tokio::select! {
            biased; // a run that is repeated under a seed takes the same branches
            () = shared.attempts.closed() => Err(AcquireFailure::ShutDown),
            what = what.into_future() => Ok(what),
            () = self.wait(by, clock) => Err(self.failure(last.clone(), clock)),
        }
    }

    /// The result of a task of the client, unless its runtime does not run when the wait is over.
    pub(super) async fn while_driven<T>(
        self,
        shared: &Shared,
        task: impl Future<Output = Result<T, AcquireFailure>>,
    ) -> Result<T, AcquireFailure> {
        let clock = &*shared.clock;
        let Some(limit) = self.limit else { return task.await };
        tokio::select! {
            biased;
            output = task => output,
            () = stalled(&shared.runtime, limit.saturating_sub(self.waited(clock)), shared.instance_timeout) => {
                Err(self.failure(AcquireFailure::Stalled, clock))
            }
        }
    }

    pub(super) fn failure(self, last: AcquireFailure, clock: &dyn Clock) -> AcquireFailure {
        AcquireFailure::DeadlinePassed { waited: self.waited(clock), last: Box::new(last) }
    }
}

/// A place in a slot. Dropped, it leaves the turn to the one behind it.
pub(in crate::runtime) struct Place {
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    slot: Arc<Slot>,
    waits: bool,
    turn: Option<Turn>,
    /// The place in the queue until it is its turn.
    queued: Option<Pin<Box<dyn Future<Output = Turn> + Send + Sync>>>,
}

impl Place {
    /// A place in the slot, of one that `waits` or tries once. It is its turn at once if the slot is empty.
    pub(in crate::runtime) fn join(shared: &Arc<Shared>, params: &Arc<AcquireParams>, waits: bool) -> Self {
        let slot = shared.slots.enter(params, waits);
        let (shared, params, access) = (Arc::clone(shared), Arc::clone(params), params.access);
        let mut place = Self { shared, params, slot, waits, turn: None, queued: None };
        if let Some(turn) = place.slot.turn_now(access) {
            place.begin_turn(turn);
            return place;
        }
        let mut queued: Pin<Box<dyn Future<Output = Turn> + Send + Sync>> = Box::pin(place.slot.turn(access));
        // P24: it is in the queue from now on, not only when its task is polled, which others may be before.
        match queued.as_mut().now_or_never() {
            Some(turn) => place.begin_turn(turn),
            None => place.queued = Some(queued),
        }
        place
    }

    pub(super) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(super) const fn is_next(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns once it is the next. Dropped before that, it keeps its place in the queue.
    pub(in crate::runtime) async fn wait_for_turn(&mut self) {
        if let Some(queued) = &mut self.queued {
            let turn = queued.await;
            self.begin_turn(turn);
        }
    }

    /// It is the next from now on.
    fn begin_turn(&mut self, turn: Turn) {
        (self.turn, self.queued) = (Some(turn), None);
        if self.waits {
            self.slot.begin_turn(&self.params);
        }
    }

    /// The state of the attempts, if it is a writer, and the next.
    pub(super) fn asking(&mut self) -> Option<&mut Asking> {
        if let Some(Turn::Writer(asking)) = &mut self.turn { Some(asking) } else { None }
    }

    /// A reader that is next gives up what the writers before it have left.
    fn give_up_writing(&self) {
        if let Some(Turn::Reader(asking)) = &self.turn {
            asking.give_up_writing();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.turn.is_some() && self.waits {
            self.slot.end_turn(self.params.access);
        }
        self.turn = None;
        let offered = self.slot.leave(&self.params, self.waits);
        if let Some(held) = offered {
            self.shared.let_go(&held, None);
        }
        self.shared.slots.tidy(&self.slot);
    }
}

/// One wait. Dropped at any time it leaves nothing behind: its attempt is released before the next one is sent.
struct Waiter {
    sent: Option<Sent>,
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
    fn join(shared: &Arc<Shared>, params: &Arc<AcquireParams>, deadline: Deadline) -> Result<Self, AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        let place = Place::join(shared, params, true);
        let slot = Arc::clone(place.slot());
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        let mut waiter = Self { sent: None, place, shared, params, deadline, not_extended: 0, tracked };
        if let Some(asking) = waiter.place.asking()
            && slot.is_free()
            && waiter.shared.backs_off(slot.resource()).is_none()
            && let Some(permit) = waiter.shared.slots.ask_now()
        {
            let attempt = begin(&waiter.shared, &waiter.params, &slot, asking)?;
            waiter.sent = Some((attempt, permit));
        }
        Ok(waiter)
    }

    async fn run(mut self, result: oneshot::Sender<WaitOutcome>) {
        let gained = loop {
            match AssertUnwindSafe(self.gain()).catch_unwind().await {
                Ok(gained) => break gained,
                Err(_) => {
                    tracing::error!("a task that waits for a lock has panicked; it goes on");
                    sleep(self.shared.retry.least()).await;
                }
            }
        };
        let Self { sent, tracked, shared, place, .. } = self;
        drop(sent); // in vain, if its holder has the lease by now
        drop(place); // the next waiter continues
        deliver(&shared, gained, tracked, result).await;
    }

    /// Waits for a lease; then this client has it, as the slot knows.
    async fn gain(&mut self) -> Result<Gained, AcquireFailure> {
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(self.place.slot()));
        let clock = &*shared.clock;
        loop {
            if shared.attempts.is_closed() {
                return Err(AcquireFailure::ShutDown);
            }
            let (is_over, has_holder) = (self.deadline.has_passed(clock), !self.params.holder.is_empty());
            let (mut news, mut holder_won) = (pin!(slot.news()), pin!(slot.holder_won()));
            if is_over {
                news.as_mut().enable();
            }
            if has_holder {
                holder_won.as_mut().enable();
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
                let gained = match self.sent.take() {
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
                () = news, if is_over => {}
                () = holder_won, if has_holder => {}
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
        slot.why_not_yet(clock).or_else(|| (!waits_on()).then_some(AcquireFailure::QueueTimeout))
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
                if let Some(last) = slot.why_not_yet(clock).filter(|_| is_over) {
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
            Step::Ask => match shared.backs_off(slot.resource()) {
                Some(pause) => {
                    asking.why = AskReason::Turn;
                    wait_for_change(&shared, slot, pause).await;
                }
                None => {
                    let (by, last) = (shared.instance_timeout, &AcquireFailure::QueueTimeout);
                    let is_repeat = matches!(asking.why, AskReason::Pause | AskReason::Expired);
                    let permit = self.deadline.in_time(by, &shared, shared.slots.ask(is_repeat), last).await??;
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
                    if slot.note_failure(|last| failure.clone().note_undecided_in(last), clock) {
                        return Ok(None); // this client has it
                    }
                    self.rest(pause, slot.why_not_yet(clock).unwrap_or(failure)).await?;
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
        match slot.why_not_yet(clock) {
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
        wait_events::refused(slot.resource(), round, asking.asks, || shared.known_waiters(slot.resource()));
        let leaves_mark = asking.note_readers(round, || begin_mark(&shared, slot.resource()));
        if slot.note_failure(|last| last.replace(failure.clone()), clock) || leaves_mark {
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

/// A reader that waits. Dropped at any time it leaves nothing behind.
struct Reader {
    sent: Option<Sent>,
    /// From its first refusal until it reads (P34).
    place: Option<Place>,
    shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    deadline: Deadline,
    asking: Asking,
    /// Why the last attempt failed.
    last: Option<AcquireFailure>,
    tracked: TrackedAttempt,
}

impl Reader {
    /// If no other holder or waiter is known, the request is sent before this returns; else it has its place.
    fn begin(shared: &Arc<Shared>, params: &Arc<AcquireParams>, deadline: Deadline) -> Result<Self, AcquireFailure> {
        let tracked = TrackedAttempt::begin(&shared.attempts).ok_or(AcquireFailure::ShutDown)?;
        let last = shared.slots.refusal(params, &*shared.clock);
        let place = last.is_some().then(|| Place::join(shared, params, true));
        let is_free = place.is_none() && shared.backs_off(&params.resource).is_none();
        let sent = match is_free.then(|| shared.slots.ask_now()).flatten() {
            Some(permit) => Some((Attempt::begin(shared, params, None, None)?, permit)),
            None => None,
        };
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        Ok(Self { sent, place, shared, params, deadline, asking: Asking::default(), last, tracked })
    }

    async fn run(mut self, result: oneshot::Sender<WaitOutcome>) {
        let gained = self.gain().await;
        let Self { shared, tracked, asking, place, .. } = self;
        drop((asking, place));
        deliver(&shared, gained, tracked, result).await;
    }

    async fn gain(&mut self) -> Result<Gained, AcquireFailure> {
        loop {
            let sent = match self.sent.take() {
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
        self.wait_for_turn().await?;
        back_off(&shared, &self.params.resource).await?; // however short the wait: it asks before it gives up
        let is_repeat = matches!(self.last, Some(AcquireFailure::RoundLost(_)));
        let permit = self.in_time(shared.slots.ask(is_repeat), &AcquireFailure::QueueTimeout).await??;
        Ok((Attempt::begin(&shared, &self.params, None, None)?, permit))
    }

    /// Waits until it is next, and no writer of this client has the lock.
    async fn wait_for_turn(&mut self) -> Result<(), AcquireFailure> {
        let Self { place: Some(place), shared, deadline, last, .. } = self else { return Ok(()) };
        let (clock, slot) = (&*shared.clock, Arc::clone(place.slot()));
        let last = last.as_ref().unwrap_or(&AcquireFailure::WAITED_FOR);
        deadline.in_time(Duration::ZERO, shared, place.wait_for_turn(), last).await?;
        place.give_up_writing();
        loop {
            let mut news = pin!(slot.news());
            news.as_mut().enable();
            let end = match slot.next_step(clock) {
                Step::Take(held) => {
                    drop(UncollectedLease::new(Arc::clone(shared), held)); // it is released
                    continue;
                }
                Step::Watch(held) => Either::Left(async move { _ = held.wait_for_end(clock).await }),
                Step::AwaitRelease => Either::Right(sleep(shared.instance_timeout)),
                Step::Pause | Step::Ask => return Ok(()),
            };
            deadline.in_time(Duration::ZERO, shared, select(news, pin!(end)), last).await?;
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
                    drop(failure.clone().note_undecided_in(&mut self.last));
                    let last = self.last.clone().unwrap_or(failure);
                    self.in_time(sleep(pause), &last).await?;
                    attempt.ask_again()?;
                }
            }
        };
        drop((attempt, permit)); // its releases are queued, outstanding replies are awaited in the background
        let AcquireFailure::RoundLost(round) = &failure else { return Err(failure) };
        let Self { shared, params, deadline, asking, .. } = self;
        if !self.place.get_or_insert_with(|| Place::join(shared, params, true)).is_next() {
            self.last = Some(failure);
            return Ok(None); // behind writers of this client, before it waits among other clients
        }
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

async fn wait_for_change(shared: &Shared, slot: &Slot, at_most: Duration) {
    tokio::select! {
        biased;
        () = shared.attempts.closed() => {}
        () = slot.changed() => {}
        () = sleep(at_most) => {}
    }
}

/// Lays what was gained down for the caller, and takes in the replies that are outstanding.
async fn deliver(
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
    let mark = Arc::new(WriterMark::new(shared.proposing_clock().ok()?.us, shared.tokens.client()));
    let (client, resource, taken) = (Arc::downgrade(shared), resource.clone(), Arc::clone(&mark));
    Some(LeftMark::new(mark, move |has_won| {
        if let Some(client) = client.upgrade() {
            client.remove_mark(&resource, &taken, has_won);
        }
    }))
}

/// Begins to wait in order with other clients, if this one keeps that (P25).
fn begin_wait(shared: &Shared, resource: &Resource, access: Access) -> Option<Wait> {
    let wall_us = shared.proposing_clock().ok()?.us;
    shared.order.as_ref()?.wait(resource, access, shared.quorum, wall_us)
}

/// P26: leaves a lock that this client has just released to the client that it has woken, for a moment.
pub(super) async fn back_off(shared: &Shared, resource: &Resource) -> Result<(), AcquireFailure> {
    if let Some(pause) = shared.backs_off(resource) {
        tokio::select! {
            biased;
            () = shared.attempts.closed() => return Err(AcquireFailure::ShutDown),
            () = sleep(pause) => {}
        }
    }
    Ok(())
}
