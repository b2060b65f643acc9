//! Acquiring: one try, and tries until one is won.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::attempt::Attempt;
use super::extend::follow;
use super::hold::{Hold, Keeping};
use super::offer::Offer;
use super::reentry::re_enter;
use super::tries::Try;
use super::turns::{Line, Turn, Turns};
use super::work::{RuntimeEnded, while_awaited};
use crate::protocol::{ClocksApart, FencingToken, Round, Terms};
use crate::resource::Resources;

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) resources: Resources,
    pub(crate) terms: Terms,
    /// Who wants it; empty if nobody in particular (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The largest token that the last try has seen or proposed (P12).
    pub(crate) seen: Option<FencingToken>,
}

impl Wish {
    /// How a lease that is won now is kept.
    pub(super) fn keeping(&self, shared: &Shared) -> Keeping {
        let not_after = self.max_hold.map(|longest| shared.clock.now().saturating_add(longest));
        Keeping { renews: self.renews, not_after }
    }
}

/// Why there is no lease.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client was shut down.
    ShutDown,
    /// The runtime of the client has ended.
    RuntimeEnded,
    /// This is not the process in which the client was built.
    Forked,
    /// No value could be drawn.
    NoRandomness(rand::rand_core::OsError),
    /// The own wall clock and the instances' are too far apart to propose a token (P12).
    ClocksApart(ClocksApart),
    /// The round was lost.
    Lost(Box<Round>),
    /// Other tries of this client for the same lock were under way for as long as it could wait.
    QueueTimeout,
    /// It was won, but its caller did not poll until too little validity was left.
    NotPolled,
    /// The wait was over.
    DeadlinePassed {
        /// How long it waited.
        waited: Duration,
        /// Why the last whole try failed.
        last: Box<Failure>,
    },
}

impl Failure {
    /// Whether a waiting acquire tries again.
    const fn may_pass(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::QueueTimeout | Self::NotPolled)
    }
}

/// Where the task of a try tells its result.
type Tell = oneshot::Sender<Result<Offer, Failure>>;

/// One try, in a task of the client (P22). It waits for its turn for `turn_within` at most.
pub(crate) async fn try_once(
    shared: &Arc<Shared>,
    wish: &Wish,
    turn_within: Option<Duration>,
) -> Result<Arc<Hold>, Failure> {
    if shared.is_forked() {
        return Err(Failure::Forked);
    }
    let begun = Try::begin(shared).ok_or(Failure::ShutDown)?;
    let runtime = &shared.runtime;
    let told = if wish.holder.is_empty() {
        match Turns::enter(shared, &wish.resources) {
            Ok(turn) => {
                let attempt = Attempt::begin(shared, wish)?; // sent at once, a task goes on from there
                while_awaited(runtime, |tell| carry_on(begun, turn, attempt, tell)).await
            }
            Err(line) => {
                let (shared, wish) = (Arc::clone(shared), wish.clone());
                while_awaited(runtime, |tell| in_line(begun, line, shared, wish, turn_within, tell)).await
            }
        }
    } else {
        let (shared, wish) = (Arc::clone(shared), wish.clone());
        while_awaited(runtime, |tell| for_a_holder(begun, shared, wish, turn_within, tell)).await
    };
    accept(shared, wish, told.map_err(|RuntimeEnded| Failure::RuntimeEnded)??)
}

async fn carry_on(begun: Try, turn: Turn, mut attempt: Box<Attempt>, tell: Tell) {
    let outcome = attempt.outcome().await;
    drop(turn);
    let won = outcome.as_ref().ok().cloned();
    // A caller that is gone leaves an offer behind that is dropped here.
    let _ = tell.send(begun.offer(outcome));
    drop(begun);
    attempt.follow(won).await;
}

async fn in_line(begun: Try, line: Line, shared: Arc<Shared>, wish: Wish, turn_within: Option<Duration>, tell: Tell) {
    match begin_in_turn(&shared, &wish, Err(line), turn_within).await {
        Ok((turn, attempt)) => carry_on(begun, turn, attempt, tell).await,
        Err(failure) => drop(tell.send(Err(failure))),
    }
}

/// A holder that has the lock already enters it again (P23).
async fn for_a_holder(begun: Try, shared: Arc<Shared>, wish: Wish, turn_within: Option<Duration>, tell: Tell) {
    let place = shared.holders.place(&wish.holder, &wish.resources);
    // One try of a holder at a time: the second finds what the first has won.
    let alone = match in_time(&shared, turn_within, place.turn.lock()).await {
        Ok(alone) => alone,
        Err(failure) => return drop(tell.send(Err(failure))),
    };
    if let Some(hold) = place.lease() {
        match re_enter(&shared, &wish, &hold).await {
            Ok(Some((offer, flight))) => {
                drop(alone); // the next does not wait for this one's caller
                let _ = tell.send(begun.pass_on(offer));
                drop(begun);
                return follow(&shared, &hold, flight).await;
            }
            Ok(None) => {}
            Err(failure) => return drop(tell.send(Err(failure))),
        }
    }
    let entered = Turns::enter(&shared, &wish.resources);
    let (turn, mut attempt) = match begin_in_turn(&shared, &wish, entered, turn_within).await {
        Ok(begun) => begun,
        Err(failure) => return drop(tell.send(Err(failure))),
    };
    let outcome = attempt.outcome().await;
    drop(turn);
    let won = outcome.as_ref().ok().cloned();
    if let Some(hold) = &won {
        place.put(hold);
    }
    drop(alone);
    let _ = tell.send(begun.offer(outcome));
    drop(begun);
    attempt.follow(won).await;
}

async fn begin_in_turn(
    shared: &Arc<Shared>,
    wish: &Wish,
    entered: Result<Turn, Line>,
    limit: Option<Duration>,
) -> Result<(Turn, Box<Attempt>), Failure> {
    let turn = match entered {
        Ok(turn) => turn,
        // The line ends with the client only.
        Err(line) => in_time(shared, limit, line).await?.map_err(|_| Failure::ShutDown)?,
    };
    Ok((turn, Attempt::begin(shared, wish)?))
}

/// Waits at most `limit`; also in vain if the client is shut down meanwhile.
async fn in_time<T>(shared: &Shared, limit: Option<Duration>, wait: impl IntoFuture<Output = T>) -> Result<T, Failure> {
    let come = match limit {
        None => wait.await,
        Some(limit) => timeout(limit, wait).await.map_err(|_| Failure::QueueTimeout)?,
    };
    if shared.tries.are_closed() { Err(Failure::ShutDown) } else { Ok(come) }
}

/// Takes a lease that was won, if its caller has come for it in time.
fn accept(shared: &Shared, wish: &Wish, offer: Offer) -> Result<Arc<Hold>, Failure> {
    if shared.tries.are_closed() {
        return Err(Failure::ShutDown);
    }
    let others = shared.holders.overlapping(&wish.holder, &wish.resources);
    let (former, later): (Vec<_>, Vec<_>) = others.iter().partition(|other| other.token() < offer.hold().token());
    if let Some(later) = later.first() {
        offer.hold().end_for(later);
    }
    if offer.hold().remaining(&*shared.clock) < wish.terms.least_left() {
        return Err(Failure::NotPolled); // P2, by the time at which it is relied on
    }
    shared.keeper.take_up(offer.hold());
    for former in former {
        former.end_for(offer.hold()); // P23
        shared.keeper.plan(former);
    }
    Ok(offer.take())
}

/// Tries until a round is won, the wait is over, or trying again cannot help.
pub(crate) async fn wait(shared: &Arc<Shared>, wish: &Wish, limit: Option<Duration>) -> Result<Arc<Hold>, Failure> {
    let begun = shared.clock.now();
    let mut wish = wish.clone();
    let left = || limit.map(|limit| begun.saturating_add(limit).saturating_since(shared.clock.now()));
    // The first round is never cut off, so that a short wait still learns who is in the way.
    let mut result = try_once(shared, &wish, limit).await;
    let mut failures = 0;
    loop {
        let last = match result {
            Err(failure) if failure.may_pass() => failure,
            result => return result,
        };
        if let Failure::Lost(round) = &last {
            wish.seen = round.highest_seen();
        }
        result = loop {
            let pause = shared.retry.after(failures, rand::random());
            failures = failures.saturating_add(1);
            sleep(left().map_or(pause, |left| left.min(pause))).await;
            match left() {
                None => break try_once(shared, &wish, None).await,
                Some(Duration::ZERO) => {
                    let waited = shared.clock.now().saturating_since(begun);
                    return Err(Failure::DeadlinePassed { waited, last: Box::new(last) });
                }
                // A round that is cut off here is cleaned up like any that is cancelled.
                Some(left) => {
                    if let Ok(result) = timeout(left, try_once(shared, &wish, None)).await {
                        break result;
                    }
                }
            }
        };
    }
}
