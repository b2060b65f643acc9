//! Asks on the wire for everybody of this client who waits for a lock (P24).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::ask_limit::AskPermit;
use super::attempt::{Attempt, Outcome};
use super::failure::AcquireFailure;
use super::line::{Aftermath, AskerId, AskerStart, Line, NextStep, Parked};
use super::params::AcquireParams;
use super::pauses::Pauses;
use super::tracker::TrackedAttempt;
use super::uncollected::UncollectedLease;
use crate::foreign::{contain, wake};
use crate::protocol::FencingToken;
use crate::runtime::client_task::AbortableTask;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::shared::Shared;
use crate::runtime::wait_events::{self, AskReason};

/// The asker of a line. It ends when nobody needs it any more; whoever joins after that starts another one.
struct Asker {
    shared: Arc<Shared>,
    line: Arc<Line>,
    id: AskerId,
    /// The largest token that the last ask has seen or proposed (P12).
    seen: Option<FencingToken>,
    pauses: Pauses,
    /// Since the last lease that was won.
    asks: u32,
    rounds: usize,
    /// Why the next ask is sent.
    why: AskReason,
}

/// An ask that was begun, or why it could not be.
struct Begun {
    attempt: Result<Box<Attempt>, AcquireFailure>,
    /// Given back with the outcome.
    permit: AskPermit,
}

/// Starts the asker of a line. What it asks for at once is sent before this returns.
pub(super) fn start_asker(shared: &Arc<Shared>, line: &Arc<Line>, start: AskerStart) {
    let AskerStart { id, first } = start;
    let (shared, line) = (Arc::clone(shared), Arc::clone(line));
    let mut asker = Asker::new(&shared, &line, id);
    let unended = Unended(Arc::clone(&shared), Arc::clone(&line), id);
    let tracked = TrackedAttempt::begin(&shared.attempts);
    let first = first.filter(|_| tracked.is_some());
    let first = first.and_then(|params| Some(asker.begin(&params, shared.ask_limit.take_now()?)));
    let task = AbortableTask::spawn(&shared.runtime, run(unended, asker.run(tracked, first)));
    line.set_task(id, task);
}

/// Runs an asker to its end. Should it panic, another goes on for those who wait.
async fn run(unended: Unended, asker: impl Future<Output = ()>) {
    let panicked = AssertUnwindSafe(asker).catch_unwind().await.is_err();
    let Unended(shared, line, id) = &unended;
    if panicked && let Some(start) = line.restart(*id) {
        contain(|| tracing::error!("an asker has panicked; another one goes on"));
        start_asker(shared, line, start);
    }
}

/// Does what a change of a line has led to, once its mutex is free.
pub(super) fn carry_out(shared: &Arc<Shared>, line: &Arc<Line>, after: Aftermath) {
    let Aftermath { give_back, wakers, asker, start, is_idle, .. } = after;
    wakers.into_iter().for_each(wake);
    drop(asker); // what it has sent is released before anybody else asks
    if let Some(held) = give_back {
        shared.let_go(&held, None);
    }
    if let Some(start) = start {
        start_asker(shared, line, start);
    }
    if is_idle {
        shared.lines.remove_if_idle(line);
    }
}

impl Asker {
    fn new(shared: &Arc<Shared>, line: &Arc<Line>, id: AskerId) -> Self {
        let (shared, line, pauses) = (Arc::clone(shared), Arc::clone(line), Pauses::default());
        Self { shared, line, id, seen: None, pauses, asks: 0, rounds: 0, why: AskReason::First }
    }

    async fn run(mut self, tracked: Option<TrackedAttempt>, mut first: Option<Begun>) {
        let Some(tracked) = tracked else { return self.fail_all(AcquireFailure::ShutDown) };
        let unfinished = loop {
            let begun = match first.take() {
                Some(begun) => begun,
                None => match self.next_ask().await {
                    Some(begun) => begun,
                    None => break None,
                },
            };
            match self.ask(begun).await {
                Ok((_, lease)) if self.shared.attempts.is_closed() => drop(lease), // the next step is to end
                Ok((attempt, lease)) => {
                    wait_events::won(self.line.resources(), self.asks, self.rounds);
                    (self.asks, self.rounds) = (0, 0);
                    let held = lease.into_held();
                    self.pauses.won(&held);
                    if let Some(attempt) = self.park(attempt, &held) {
                        break Some((attempt, held));
                    }
                }
                Err(failure) if failure.may_pass() => self.pause_after(failure).await,
                Err(failure) => {
                    self.fail_all(failure);
                    break None;
                }
            }
        };
        drop(tracked);
        if let Some((mut attempt, held)) = unfinished {
            attempt.finish(Some(held)).await;
        }
    }

    fn begin(&mut self, params: &Arc<AcquireParams>, permit: AskPermit) -> Begun {
        self.asks = self.asks.saturating_add(1);
        let why = std::mem::replace(&mut self.why, AskReason::Line);
        self.line.note_ask();
        let resources = self.line.resources();
        wait_events::asks(resources, self.asks, why, || self.shared.known_waiters(resources));
        Begun { attempt: Attempt::begin(&self.shared, params, self.seen), permit }
    }

    /// The lease that an ask has won, and the replies to it that are outstanding.
    async fn ask(&mut self, begun: Begun) -> Result<(Box<Attempt>, UncollectedLease), AcquireFailure> {
        let mut attempt = begun.attempt?;
        let outcome = self.outcome(&mut attempt).await;
        drop(begun.permit);
        self.rounds = self.rounds.saturating_add(attempt.rounds());
        Ok((attempt, outcome?)) // its releases are queued, outstanding replies are awaited in the background
    }

    /// P31: asks again as long as nobody is known to have the lock. Who waits in the line knows of each round, so that a wait
    /// that is over ends.
    async fn outcome(&self, attempt: &mut Attempt) -> Result<UncollectedLease, AcquireFailure> {
        loop {
            match attempt.next_outcome().await {
                Outcome::Won(lease) => return Ok(lease),
                Outcome::Lost(failure) => return Err(failure),
                Outcome::Undecided(failure, pause) => {
                    if !self.line.note_failure(self.id, failure.clone(), &*self.shared.clock) {
                        return Err(failure); // somebody of this client has it
                    }
                    tokio::select! {
                        biased; // a run that is repeated under a seed takes the same branches
                        () = self.shared.attempts.closed() => return Err(failure),
                        () = sleep(pause) => {}
                    }
                    attempt.ask_again()?;
                }
            }
        }
    }

    /// Begins the next ask as soon as one is needed; `None` if nobody needs the asker any more.
    async fn next_ask(&mut self) -> Option<Begun> {
        let mut permit = None;
        loop {
            if self.shared.attempts.is_closed() {
                self.fail_all(AcquireFailure::ShutDown);
                return None;
            }
            let (step, after) = self.line.next_step(self.id, self.shared.instance_timeout, &*self.shared.clock);
            carry_out(&self.shared, &self.line, after);
            match step {
                NextStep::Ask(params) => match permit.take().or_else(|| self.shared.ask_limit.take_now()) {
                    Some(permit) => return Some(self.begin(&params, permit)),
                    None => permit = self.wait_for_permit().await,
                },
                NextStep::Watch(held, at_most) => {
                    permit = None;
                    self.why = if held.is_some() { AskReason::LetGo } else { self.why };
                    self.watch(held, at_most).await;
                }
                NextStep::Rest(at_most) => {
                    permit = None;
                    self.pauses = Pauses::default(); // other clients need not wait for its turn
                    self.watch(None, at_most).await;
                }
                NextStep::Pause => {
                    self.why = AskReason::Turn;
                    let pause = self.shared.retry.least();
                    tokio::select! {
                        biased; // a run that is repeated under a seed takes the same branches
                        () = self.shared.attempts.closed() => {}
                        () = sleep(pause) => {}
                    }
                }
                NextStep::End => return None,
            }
        }
    }

    /// A permit as soon as there is one; `None` if the client is shut down before.
    async fn wait_for_permit(&self) -> Option<AskPermit> {
        tokio::select! {
            biased;
            () = self.shared.attempts.closed() => None,
            permit = self.shared.ask_limit.take() => permit,
        }
    }

    /// Waits until the lease is lost, the line has changed, or `at_most` has passed.
    async fn watch(&self, held: Option<Arc<HeldLease>>, at_most: Duration) {
        let clock = &*self.shared.clock;
        let lost = async {
            match &held {
                Some(held) => drop(held.wait_for_end(clock).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.shared.attempts.closed() => {}
            () = self.line.changed() => {}
            () = lost => {}
            () = sleep(at_most) => {}
        }
    }

    /// Offers what was won to whoever is next. Returns the attempt if the asker has ended with that: then the replies
    /// that are outstanding are its own to take in.
    fn park(&self, mut attempt: Box<Attempt>, held: &Arc<HeldLease>) -> Option<Box<Attempt>> {
        let (parked, after) = self.line.park(self.id, Arc::clone(held), &*self.shared.clock);
        carry_out(&self.shared, &self.line, after);
        match parked {
            Parked::End => Some(attempt),
            Parked::GoOn => {
                let held = Arc::clone(held);
                self.shared.runtime.spawn(async move { attempt.finish(Some(held)).await });
                None
            }
            Parked::Unwanted => {
                self.shared.let_go(held, None);
                None
            }
        }
    }

    /// Until the next ask after one that was in vain.
    async fn pause_after(&mut self, failure: AcquireFailure) {
        if let AcquireFailure::RoundLost(round) = &failure {
            self.seen = round.highest_seen();
            let resources = self.line.resources();
            wait_events::refused(resources, round, || self.shared.known_waiters(resources));
        }
        if !self.line.note_failure(self.id, failure.clone(), &*self.shared.clock) {
            return; // the next step is to wait for whoever has it
        }
        self.why = tokio::select! {
            biased;
            () = self.shared.attempts.closed() => AskReason::Line,
            () = self.line.changed() => AskReason::Line,
            why = self.pauses.pause(&self.shared, self.line.resources(), &failure) => why,
        };
    }

    fn fail_all(&self, failure: AcquireFailure) {
        carry_out(&self.shared, &self.line, self.line.fail_all(self.id, failure));
    }
}

/// An asker that has not ended: it is dropped if nobody needs it any more, or the runtime has ended.
struct Unended(Arc<Shared>, Arc<Line>, AskerId);

impl Drop for Unended {
    fn drop(&mut self) {
        let Self(shared, line, id) = self;
        // Known to the line still, so nobody else has ended it.
        carry_out(shared, line, line.fail_all(*id, AcquireFailure::RuntimeEnded));
    }
}
