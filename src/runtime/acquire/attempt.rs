//! The rounds of one try: one, repeated only where the repeat is known to help.

use std::sync::Arc;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::uncollected::UncollectedLease;
use crate::instance::{Claim, Request};
use crate::protocol::{FencingToken, Lease, Round, Value, Verdict};
use crate::runtime::held_lease::{Acquired, HeldLease};
use crate::runtime::in_flight::{OnDrop, RoundInFlight};
use crate::runtime::shared::Shared;

/// A try whose round is in flight. Dropped at any time it leaves nothing behind (P5).
pub(super) struct Attempt {
    pub(super) shared: Arc<Shared>,
    params: Arc<AcquireParams>,
    value: Value,
    /// The clock by which tokens are proposed, and the largest that was seen (P12).
    wall_us: u64,
    seen: Option<FencingToken>,
    repeats: usize,
    in_flight: RoundInFlight,
}

impl Attempt {
    /// Sends the first round. Boxed: it is moved from the caller to its task.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        params: &Arc<AcquireParams>,
        seen: Option<FencingToken>,
    ) -> Result<Box<Self>, AcquireFailure> {
        let no_randomness = |error| AcquireFailure::NoRandomness(Arc::new(error));
        let value = shared.tokens.draw_value(&params.holder).map_err(no_randomness)?; // P1
        let wall_us = shared.proposing_clock().map_err(AcquireFailure::ClocksApart)?;
        let in_flight = send(shared, params, &value, (wall_us, seen), false);
        let (shared, params) = (Arc::clone(shared), Arc::clone(params));
        Ok(Box::new(Self { seen, shared, params, value, wall_us, repeats: 0, in_flight }))
    }

    /// The lease, not renewed yet, or why there is none; then the releases of the try are queued.
    pub(super) async fn outcome(&mut self) -> Result<UncollectedLease, AcquireFailure> {
        loop {
            let verdict = self.in_flight.verdict().await;
            let round = &self.in_flight.round;
            tracing::debug!(?verdict, granted = ?round.granted(), repeats = self.repeats, "acquire round");
            self.seen = self.seen.max(round.highest_seen());
            if verdict == Verdict::Won
                && let Some(lease) = self.won()
            {
                return Ok(lease);
            }
            let worth_repeating = self.in_flight.round.stale_token().is_some() || self.in_flight.lacks_only_scripts();
            // Each repeat goes above a larger token of another instance, so that there are never more.
            if self.repeats >= self.shared.instances.len() || !worth_repeating {
                self.in_flight.release();
                return Err(AcquireFailure::RoundLost(Box::new(self.in_flight.round.clone())));
            }
            self.repeat();
        }
    }

    fn won(&mut self) -> Option<UncollectedLease> {
        let claim = Arc::clone(self.in_flight.claim());
        let now = self.shared.clock.now();
        let lease = Lease::from_won(&mut self.in_flight.round, self.params.terms, claim.token, now)?;
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        let lease = lease.add_release_targets(self.in_flight.sent_before);
        let acquired = Acquired { lease, claim, counters: Arc::clone(&self.shared.counters) };
        let held = Arc::new(HeldLease::new(acquired));
        self.shared.note_held(&self.params.resources, &held);
        Some(UncollectedLease::new(Arc::clone(&self.shared), held))
    }

    /// How many rounds it took so far.
    pub(super) const fn rounds(&self) -> usize {
        self.repeats + 1
    }

    /// P12: the same value again; the round's own keys count as free.
    fn repeat(&mut self) {
        self.repeats += 1;
        let mut next = send(&self.shared, &self.params, &self.value, (self.wall_us, self.seen), true);
        next.sent_before = self.in_flight.sent_before.union(self.in_flight.round.must_release());
        self.in_flight.on_drop = OnDrop::LeaveKeys;
        self.in_flight = next;
    }

    /// Takes in the replies that are still outstanding (P6). They count for `held`, the lease that was won
    /// (P20).
    pub(super) async fn finish(&mut self, held: Option<Arc<HeldLease>>) {
        let on_replies = |round: &Round| {
            if let Some(held) = &held {
                held.note_replies(round);
            }
        };
        self.in_flight.finish(on_replies).await;
    }
}

fn send(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    value: &Value,
    (wall_us, seen): (u64, Option<FencingToken>),
    resent: bool,
) -> RoundInFlight {
    shared.counters.round_sent();
    let token = shared.tokens.propose(wall_us, seen); // P12
    let claim = Arc::new(Claim {
        resources: params.resources.clone(),
        value: value.clone(),
        token,
        ttl: params.terms.ttl(),
        resent,
        is_first: seen.is_none() && !shared.is_wanted_elsewhere(&params.resources),
    });
    let started_at = shared.clock.now(); // P2: before anything is sent
    let round = Round::acquire(shared.quorum, params.terms, started_at);
    let round = round.proposing(token, FencingToken::most_believed(wall_us));
    RoundInFlight::send(shared, round, Request::Acquire(claim), shared.all_instances())
}
