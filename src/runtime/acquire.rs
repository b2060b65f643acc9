//! Acquiring: one try, and tries until one is won.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::attempt::Attempt;
use super::attempt_limiter::{AttemptLimiter, AttemptPermit, PermitReceiver};
use super::attempt_tracker::TrackedAttempt;
use super::client_task::{RuntimeEnded, run_abort_on_drop};
use super::extend::follow;
use super::held_lease::{HeldLease, RenewalPolicy};
use super::reentry::reenter;
use super::uncollected::UncollectedLease;
use crate::protocol::{ClocksApart, FencingToken, Round, Terms};
use crate::random;
use crate::resource::Resources;

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct AcquireParams {
    pub(crate) resources: Resources,
    pub(crate) terms: Terms,
    /// Who wants it; empty if nobody in particular (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The largest token that the last try has seen or proposed (P12).
    pub(crate) seen: Option<FencingToken>,
}

impl AcquireParams {
    /// How a lease that is won now is kept.
    pub(super) fn policy(&self, shared: &Shared) -> RenewalPolicy {
        let not_after = self.max_hold.map(|longest| shared.clock.now().saturating_add(longest));
        RenewalPolicy { renews: self.renews, not_after }
    }
}

/// Why there is no lease.
#[derive(Debug)]
pub(crate) enum AcquireFailure {
    /// The client was shut down.
    ShutDown,
    /// The runtime of the client has ended.
    RuntimeEnded,
    /// This is not the process in which the client was built.
    Forked,
    /// No value could be drawn.
    NoRandomness(io::Error),
    /// The own wall clock and the instances' are too far apart to propose a token (P12).
    ClocksApart(ClocksApart),
    /// The round was lost.
    RoundLost(Box<Round>),
    /// Other tries of this client for the same lock were under way for as long as it could wait.
    QueueTimeout,
    /// It was won, but its caller did not poll until too little validity was left.
    NotPolled,
    /// The wait was over.
    DeadlinePassed {
        /// How long it waited.
        waited: Duration,
        /// Why the last whole try failed.
        last: Box<AcquireFailure>,
    },
}

impl AcquireFailure {
    /// Whether a waiting acquire tries again.
    const fn may_pass(&self) -> bool {
        matches!(self, Self::RoundLost(_) | Self::QueueTimeout | Self::NotPolled)
    }
}

/// Where the task of a try tells its result.
type Tell = oneshot::Sender<Result<UncollectedLease, AcquireFailure>>;

/// One try, in a task of the client (P22). It waits for its turn for `permit_within` at most.
pub(crate) async fn try_acquire(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    permit_within: Option<Duration>,
) -> Result<Arc<HeldLease>, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let begun = TrackedAttempt::begin(shared).ok_or(AcquireFailure::ShutDown)?;
    let runtime = &shared.runtime;
    let told = if params.holder.is_empty() {
        match AttemptLimiter::enter(shared, &params.resources) {
            Ok(permit) => {
                let attempt = Attempt::begin(shared, params)?; // sent at once, a task goes on from there
                run_abort_on_drop(runtime, |tell| carry_on(begun, permit, attempt, tell)).await
            }
            Err(line) => {
                let (shared, params) = (Arc::clone(shared), params.clone());
                run_abort_on_drop(runtime, |tell| in_line(begun, line, shared, params, permit_within, tell)).await
            }
        }
    } else {
        let (shared, params) = (Arc::clone(shared), params.clone());
        run_abort_on_drop(runtime, |tell| for_a_holder(begun, shared, params, permit_within, tell)).await
    };
    accept(shared, params, told.map_err(|RuntimeEnded| AcquireFailure::RuntimeEnded)??)
}

async fn carry_on(begun: TrackedAttempt, permit: AttemptPermit, mut attempt: Box<Attempt>, tell: Tell) {
    let outcome = attempt.outcome().await;
    drop(permit);
    let won = outcome.as_ref().ok().cloned();
    // A caller that is gone leaves an offer behind that is dropped here.
    let _ = tell.send(begun.offer(outcome));
    drop(begun);
    attempt.follow(won).await;
}

async fn in_line(
    begun: TrackedAttempt,
    line: PermitReceiver,
    shared: Arc<Shared>,
    params: AcquireParams,
    permit_within: Option<Duration>,
    tell: Tell,
) {
    match begin_in_turn(&shared, &params, Err(line), permit_within).await {
        Ok((permit, attempt)) => carry_on(begun, permit, attempt, tell).await,
        Err(failure) => drop(tell.send(Err(failure))),
    }
}

/// A holder that has the lock already enters it again (P23).
async fn for_a_holder(
    begun: TrackedAttempt,
    shared: Arc<Shared>,
    params: AcquireParams,
    permit_within: Option<Duration>,
    tell: Tell,
) {
    let slot = shared.reentry_table.slot(&params.holder, &params.resources);
    // One try of a holder at a time: the second finds what the first has won.
    let alone = match in_time(&shared, permit_within, slot.turn.lock()).await {
        Ok(alone) => alone,
        Err(failure) => return drop(tell.send(Err(failure))),
    };
    if let Some(held) = slot.lease() {
        match reenter(&shared, &params, &held).await {
            Ok(Some((offer, in_flight))) => {
                drop(alone); // the next does not wait for this one's caller
                let _ = tell.send(begun.pass_on(offer));
                drop(begun);
                return follow(&shared, &held, in_flight).await;
            }
            Ok(None) => {}
            Err(failure) => return drop(tell.send(Err(failure))),
        }
    }
    let entered = AttemptLimiter::enter(&shared, &params.resources);
    let (permit, mut attempt) = match begin_in_turn(&shared, &params, entered, permit_within).await {
        Ok(begun) => begun,
        Err(failure) => return drop(tell.send(Err(failure))),
    };
    let outcome = attempt.outcome().await;
    drop(permit);
    let won = outcome.as_ref().ok().cloned();
    if let Some(held) = &won {
        slot.put(held);
    }
    drop(alone);
    let _ = tell.send(begun.offer(outcome));
    drop(begun);
    attempt.follow(won).await;
}

async fn begin_in_turn(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    entered: Result<AttemptPermit, PermitReceiver>,
    limit: Option<Duration>,
) -> Result<(AttemptPermit, Box<Attempt>), AcquireFailure> {
    let permit = match entered {
        Ok(permit) => permit,
        // The line ends with the client only.
        Err(line) => in_time(shared, limit, line).await?.map_err(|_| AcquireFailure::ShutDown)?,
    };
    Ok((permit, Attempt::begin(shared, params)?))
}

/// Waits at most `limit`; also in vain if the client is shut down meanwhile.
async fn in_time<T>(
    shared: &Shared,
    limit: Option<Duration>,
    wait: impl IntoFuture<Output = T>,
) -> Result<T, AcquireFailure> {
    let come = match limit {
        None => wait.await,
        Some(limit) => timeout(limit, wait).await.map_err(|_| AcquireFailure::QueueTimeout)?,
    };
    if shared.attempts.is_closed() { Err(AcquireFailure::ShutDown) } else { Ok(come) }
}

/// Takes a lease that was won, if its caller has come for it in time.
fn accept(shared: &Shared, params: &AcquireParams, offer: UncollectedLease) -> Result<Arc<HeldLease>, AcquireFailure> {
    if shared.attempts.is_closed() {
        return Err(AcquireFailure::ShutDown);
    }
    let others = shared.reentry_table.overlapping(&params.holder, &params.resources);
    let (former, later): (Vec<_>, Vec<_>) = others.iter().partition(|other| other.token() < offer.held().token());
    if let Some(later) = later.first() {
        offer.held().end_for(later);
    }
    if offer.held().remaining(&*shared.clock) < params.terms.least_left() {
        return Err(AcquireFailure::NotPolled); // P2, by the time at which it is relied on
    }
    shared.keep_alive.adopt(offer.held());
    for former in former {
        former.end_for(offer.held()); // P23
        shared.keep_alive.reschedule(former);
    }
    Ok(offer.take())
}

/// Tries until a round is won, the wait is over, or trying again cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    limit: Option<Duration>,
) -> Result<Arc<HeldLease>, AcquireFailure> {
    let begun = shared.clock.now();
    let mut params = params.clone();
    let left = || limit.map(|limit| begun.saturating_add(limit).saturating_since(shared.clock.now()));
    // The first round is never cut off, so that a short wait still learns who is in the way.
    let mut result = try_acquire(shared, &params, limit).await;
    let mut failures = 0;
    loop {
        let last = match result {
            Err(failure) if failure.may_pass() => failure,
            result => return result,
        };
        if let AcquireFailure::RoundLost(round) = &last {
            params.seen = round.highest_seen();
        }
        result = loop {
            let pause = shared.retry.after(failures, random::spread());
            failures = failures.saturating_add(1);
            sleep(left().map_or(pause, |left| left.min(pause))).await;
            match left() {
                None => break try_acquire(shared, &params, None).await,
                Some(Duration::ZERO) => {
                    let waited = shared.clock.now().saturating_since(begun);
                    return Err(AcquireFailure::DeadlinePassed { waited, last: Box::new(last) });
                }
                // A round that is cut off here is cleaned up like any that is cancelled.
                Some(left) => {
                    if let Ok(result) = timeout(left, try_acquire(shared, &params, None)).await {
                        break result;
                    }
                }
            }
        };
    }
}
