//! One try for a lock: a round, repeated only where the repeat is known to help.

use std::sync::Arc;

use super::acquire::{AcquireFailure, AcquireParams};
use super::held_lease::HeldLease;
use super::in_flight::{OnDrop, RoundInFlight};
use super::{Shared, lacks_only_scripts};
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, InstanceSet, Lease, Round, Value, Verdict};

/// A won lease with what is needed to extend and release it.
#[derive(Debug)]
pub(super) struct Acquired {
    pub(super) lease: Lease,
    pub(super) claim: Arc<Claim>,
}

/// A try on its way. Dropped at any time it leaves nothing behind (P5).
pub(super) struct Attempt {
    shared: Arc<Shared>,
    params: AcquireParams,
    value: Value,
    /// The clock by which tokens are proposed, and the largest that was seen (P12).
    wall_us: u64,
    seen: Option<FencingToken>,
    repeats: usize,
    in_flight: RoundInFlight,
}

impl Attempt {
    /// Sends the first round. Boxed: it is handed from the caller to its task.
    pub(super) fn begin(shared: &Arc<Shared>, params: &AcquireParams) -> Result<Box<Self>, AcquireFailure> {
        let value = shared.tokens.draw_value(&params.holder).map_err(AcquireFailure::NoRandomness)?; // P1
        let wall_us = shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
        let in_flight = launch(shared, params, &value, (wall_us, params.seen), false);
        let (shared, params) = (Arc::clone(shared), params.clone());
        Ok(Box::new(Self { seen: params.seen, shared, params, value, wall_us, repeats: 0, in_flight }))
    }

    /// The lease, not renewed yet, or why there is none; then what is owed has been queued.
    pub(super) async fn outcome(&mut self) -> Result<Arc<HeldLease>, AcquireFailure> {
        loop {
            let verdict = self.in_flight.verdict().await;
            let round = &self.in_flight.round;
            tracing::debug!(?verdict, granted = ?round.granted(), repeats = self.repeats, "acquire round");
            self.seen = self.seen.max(round.highest_seen());
            if verdict == Verdict::Won
                && let Some(held) = self.won()
            {
                return Ok(held);
            }
            let round = &self.in_flight.round;
            let worth_repeating = round.stale().is_some() || lacks_only_scripts(round);
            // Each repeat goes above a larger token of another instance, so that there are never more.
            if self.repeats >= self.shared.instances.len() || !worth_repeating {
                self.in_flight.release();
                return Err(AcquireFailure::RoundLost(Box::new(self.in_flight.round.clone())));
            }
            self.repeat();
        }
    }

    fn won(&mut self) -> Option<Arc<HeldLease>> {
        let claim = Arc::clone(self.in_flight.claim());
        let lease =
            Lease::from_won(&mut self.in_flight.round, self.params.terms, claim.token, self.shared.clock.now())?;
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        let won = Acquired { lease: lease.also_asked(self.in_flight.asked_before), claim };
        Some(Arc::new(HeldLease::new(won, self.params.policy(&self.shared))))
    }

    /// P12: the same value again; the round's own keys count as free.
    fn repeat(&mut self) {
        self.repeats += 1;
        let mut next = launch(&self.shared, &self.params, &self.value, (self.wall_us, self.seen), true);
        next.asked_before = self.in_flight.asked_before.union(self.in_flight.round.must_release());
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        self.in_flight = next;
    }

    /// Follows what is still on its way (P6). What comes past the verdict counts for a lease that was won
    /// (P20).
    pub(super) async fn follow(&mut self, won: Option<Arc<HeldLease>>) {
        let heard = |round: &Round| {
            if let Some(held) = &won {
                held.note_answers(round);
            }
        };
        self.in_flight.follow(heard).await;
    }
}

fn launch(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    value: &Value,
    (wall_us, seen): (u64, Option<FencingToken>),
    resent: bool,
) -> RoundInFlight {
    let token = shared.tokens.propose(wall_us, seen); // P12
    let claim = Arc::new(Claim {
        resources: params.resources.clone(),
        value: value.clone(),
        token,
        ttl: params.terms.ttl(),
        fence_retention: shared.fence_retention,
        resent,
    });
    let started_at = shared.clock.now(); // P2: before anything is sent
    let round = Round::acquire(shared.quorum, params.terms, started_at);
    let round = round.proposing(token, FencingToken::most_believed(wall_us));
    RoundInFlight::launch(shared, round, Request::Acquire(claim), InstanceSet::first(shared.instances.len()))
}
