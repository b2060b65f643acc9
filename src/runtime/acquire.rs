//! Acquiring: one try, and tries until one is won.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::extend::extend;
use super::fan_out::{AtEnd, Flight};
use super::hold::{Hold, Keeping};
use super::{Shared, missed_scripts};
use crate::instance::{Claim, Request};
use crate::protocol::{InstanceSet, Lease, Round, Terms, Verdict};
use crate::resource::Resources;

/// A won lease with what is needed to extend and release it.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) lease: Lease,
    pub(crate) claim: Arc<Claim>,
}

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) resources: Resources,
    pub(crate) terms: Terms,
    /// Who wants it; empty if nobody in particular (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// Why there is no lease.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client was shut down.
    ShutDown,
    /// No value could be drawn.
    NoRandomness(rand::rand_core::OsError),
    /// The round was lost.
    Lost(Box<Round>),
    /// The wait was over; the last whole round was lost.
    DeadlinePassed {
        /// How long it waited.
        waited: Duration,
        /// The last whole round.
        last: Box<Round>,
    },
}

/// One try. A holder that has the lock already enters it again, without a round (P23).
pub(crate) async fn try_once(shared: &Shared, wish: &Wish) -> Result<Arc<Hold>, Failure> {
    if shared.closed.load(Ordering::Acquire) {
        return Err(Failure::ShutDown);
    }
    if wish.holder.is_empty() {
        return rounds(shared, wish).await.map(|won| keep(shared, wish, won));
    }
    let place = shared.holders.place(&wish.holder, &wish.resources);
    // One try of a holder at a time: the second finds what the first has won.
    let mut place = place.lock().await;
    if let Some(hold) = place.upgrade()
        && enter(shared, wish, &hold).await
    {
        return Ok(hold);
    }
    let hold = rounds(shared, wish).await.map(|won| keep(shared, wish, won))?;
    *place = Arc::downgrade(&hold);
    Ok(hold)
}

/// Enters a lease again that has as much validity left as a new one must have.
async fn enter(shared: &Shared, wish: &Wish, hold: &Arc<Hold>) -> bool {
    let enough = wish.terms.least_left();
    if hold.remaining(&*shared.clock) < enough {
        let terms = hold.terms().longer(wish.terms); // an extend cannot shorten
        let _ = extend(shared, hold, terms).await; // what is left is looked at below
    }
    if hold.remaining(&*shared.clock) < enough {
        return false;
    }
    let entered = hold.enter(keeping(shared, wish), &*shared.clock);
    if entered == Some(true) {
        shared.keeper.plan(hold);
    }
    entered.is_some()
}

fn keeping(shared: &Shared, wish: &Wish) -> Keeping {
    let not_after = wish.max_hold.map(|longest| shared.clock.now().saturating_add(longest));
    Keeping { renews: wish.renews, not_after }
}

fn keep(shared: &Shared, wish: &Wish, won: Won) -> Arc<Hold> {
    shared.keeper.keep(won, keeping(shared, wish))
}

/// A round, repeated only where the repeat is known to help.
async fn rounds(shared: &Shared, wish: &Wish) -> Result<Won, Failure> {
    let value = shared.tokens.draw_value(&wish.holder).map_err(Failure::NoRandomness)?; // P1
    let mut asked_before = InstanceSet::default();
    let mut repeats = 0;
    loop {
        let claim = Arc::new(Claim {
            resources: wish.resources.clone(),
            value: value.clone(),
            token: shared.tokens.propose(&*shared.clock), // P12
            ttl: wish.terms.ttl(),
            fence_retention: shared.fence_retention,
            resent: repeats > 0,
        });
        let started_at = shared.clock.now(); // P2: before anything is sent
        let round = Round::acquire(shared.quorum, wish.terms, started_at);
        let everyone = InstanceSet::first(shared.instances.len());
        let mut flight = Flight::launch(shared, round, Request::Acquire(claim), everyone);
        flight.asked_before = asked_before;
        let verdict = flight.verdict().await;
        tracing::debug!(?verdict, granted = ?flight.round.granted(), repeats, "acquire round");
        if let Some(token) = flight.round.highest_seen() {
            shared.tokens.note_seen(token);
        }
        if verdict == Verdict::Won {
            return won(shared, flight, wish);
        }
        let worth_repeating = flight.round.stale().is_some() || missed_scripts(&flight.round);
        // Each repeat goes above a larger token of another instance, so that there are never more.
        if repeats >= shared.instances.len() || !worth_repeating {
            return Err(flight.lost());
        }
        // P12: the same value again; the round's own keys count as free.
        asked_before = asked_before.union(flight.round.must_release());
        flight.at_end = AtEnd::Keep;
        repeats += 1;
    }
}

fn won(shared: &Shared, mut flight: Flight<'_>, wish: &Wish) -> Result<Won, Failure> {
    let claim = Arc::clone(flight.claim());
    let Some(lease) = Lease::from_won(&mut flight.round, wish.terms, claim.token, shared.clock.now()) else {
        return Err(flight.lost());
    };
    flight.at_end = AtEnd::Keep;
    Ok(Won { lease: lease.also_asked(flight.asked_before), claim })
}

/// Tries until a round is won, the wait is over, or trying again cannot help.
pub(crate) async fn wait(shared: &Shared, wish: &Wish, limit: Option<Duration>) -> Result<Arc<Hold>, Failure> {
    let begun = shared.clock.now();
    let left = || limit.map(|limit| begun.saturating_add(limit).saturating_since(shared.clock.now()));
    // The first round is never cut off, so that a short wait still learns who is in the way.
    let mut result = try_once(shared, wish).await;
    loop {
        let Err(Failure::Lost(last)) = result else { return result };
        result = loop {
            let pause = shared.retry.next(rand::random());
            sleep(left().map_or(pause, |left| left.min(pause))).await;
            match left() {
                None => break try_once(shared, wish).await,
                Some(Duration::ZERO) => {
                    let waited = shared.clock.now().saturating_since(begun);
                    return Err(Failure::DeadlinePassed { waited, last });
                }
                // A round that is cut off here is cleaned up like any that is cancelled.
                Some(left) => {
                    if let Ok(result) = timeout(left, try_once(shared, wish)).await {
                        break result;
                    }
                }
            }
        };
    }
}
