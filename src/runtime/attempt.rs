//! One try for a lock: a round, repeated only where the repeat is known to help.

use std::sync::Arc;

use super::acquire::{Failure, Wish};
use super::fan_out::{AtEnd, Flight};
use super::hold::Hold;
use super::{Shared, missed_scripts};
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, InstanceSet, Lease, Round, Value, Verdict};

/// A won lease with what is needed to extend and release it.
#[derive(Debug)]
pub(super) struct Won {
    pub(super) lease: Lease,
    pub(super) claim: Arc<Claim>,
}

/// A try on its way. Dropped at any time it leaves nothing behind (P5).
pub(super) struct Attempt {
    shared: Arc<Shared>,
    wish: Wish,
    value: Value,
    /// The clock by which tokens are proposed, and the largest that was seen (P12).
    wall_us: u64,
    seen: Option<FencingToken>,
    repeats: usize,
    flight: Flight,
}

impl Attempt {
    /// Sends the first round. Boxed: it is handed from the caller to its task.
    pub(super) fn begin(shared: &Arc<Shared>, wish: &Wish) -> Result<Box<Self>, Failure> {
        let value = shared.tokens.draw_value(&wish.holder).map_err(Failure::NoRandomness)?; // P1
        let wall_us = shared.proposing_clock().map_err(Failure::ClocksApart)?;
        let flight = launch(shared, wish, &value, (wall_us, wish.seen), false);
        let (shared, wish) = (Arc::clone(shared), wish.clone());
        Ok(Box::new(Self { seen: wish.seen, shared, wish, value, wall_us, repeats: 0, flight }))
    }

    /// The lease, not renewed yet, or why there is none; then what is owed has been queued.
    pub(super) async fn outcome(&mut self) -> Result<Arc<Hold>, Failure> {
        loop {
            let verdict = self.flight.verdict().await;
            let round = &self.flight.round;
            tracing::debug!(?verdict, granted = ?round.granted(), repeats = self.repeats, "acquire round");
            self.seen = self.seen.max(round.highest_seen());
            if verdict == Verdict::Won
                && let Some(hold) = self.won()
            {
                return Ok(hold);
            }
            let round = &self.flight.round;
            let worth_repeating = round.stale().is_some() || missed_scripts(round);
            // Each repeat goes above a larger token of another instance, so that there are never more.
            if self.repeats >= self.shared.instances.len() || !worth_repeating {
                self.flight.release();
                return Err(Failure::Lost(Box::new(self.flight.round.clone())));
            }
            self.repeat();
        }
    }

    fn won(&mut self) -> Option<Arc<Hold>> {
        let claim = Arc::clone(self.flight.claim());
        let lease = Lease::from_won(&mut self.flight.round, self.wish.terms, claim.token, self.shared.clock.now())?;
        self.flight.at_end = AtEnd::Keep;
        let won = Won { lease: lease.also_asked(self.flight.asked_before), claim };
        Some(Arc::new(Hold::new(won, self.wish.keeping(&self.shared))))
    }

    /// P12: the same value again; the round's own keys count as free.
    fn repeat(&mut self) {
        self.repeats += 1;
        let mut next = launch(&self.shared, &self.wish, &self.value, (self.wall_us, self.seen), true);
        next.asked_before = self.flight.asked_before.union(self.flight.round.must_release());
        self.flight.at_end = AtEnd::Keep;
        self.flight = next;
    }

    /// Follows what is still on its way (P6). What comes past the verdict counts for a lease that was won
    /// (P20).
    pub(super) async fn follow(&mut self, won: Option<Arc<Hold>>) {
        let heard = |round: &Round| {
            if let Some(hold) = &won {
                hold.note_answers(round);
            }
        };
        self.flight.follow(heard).await;
    }
}

fn launch(
    shared: &Arc<Shared>,
    wish: &Wish,
    value: &Value,
    (wall_us, seen): (u64, Option<FencingToken>),
    resent: bool,
) -> Flight {
    let token = shared.tokens.propose(wall_us, seen); // P12
    let claim = Arc::new(Claim {
        resources: wish.resources.clone(),
        value: value.clone(),
        token,
        ttl: wish.terms.ttl(),
        fence_retention: shared.fence_retention,
        resent,
    });
    let started_at = shared.clock.now(); // P2: before anything is sent
    let round = Round::acquire(shared.quorum, wish.terms, started_at);
    let round = round.proposing(token, FencingToken::most_believed(wall_us));
    Flight::launch(shared, round, Request::Acquire(claim), InstanceSet::first(shared.instances.len()))
}
