//! One guard's time in a lease: leases are shared (P23) and handed over (P24) in the process.

use std::sync::Arc;
use std::time::Duration;

use super::end::LeaseEnd;
use super::held::HeldLease;
use super::state::{GuardNumber, Wish};
use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{FencingToken, InstanceSet};

/// The time during which a guard has a lease. It ends with the lease, or before: when the guard is dropped, when the
/// lease is handed over, and when the guard has had it for as long as it asked, while others of its holder go on (P23).
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    held: Arc<HeldLease>,
    guard: GuardNumber,
    is_handed_over: bool,
    /// The token with which it began.
    token: FencingToken,
}

/// Whether a lease is valid, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// For so long.
    Held(Duration),
    /// Its last guard let it go.
    GivenUp,
    /// It was lost.
    Lost,
}

impl Tenure {
    pub(crate) const fn held(&self) -> &Arc<HeldLease> {
        &self.held
    }

    pub(crate) const fn guard(&self) -> GuardNumber {
        self.guard
    }

    /// Whether somebody else had the lease before.
    pub(crate) const fn was_handed_over(&self) -> bool {
        self.is_handed_over
    }

    pub(crate) const fn token(&self) -> FencingToken {
        self.token
    }

    /// How long the lease may still be relied on; zero once the tenure has ended.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        let mut state = self.held.state();
        let Some(entry) = state.entry(self.guard).copied() else { return Duration::ZERO };
        let remaining = state.remaining(clock);
        entry.ends_at.map_or(remaining, |end| remaining.min(end.saturating_since(clock.now())))
    }

    /// The instances that the lease rests on.
    pub(crate) fn rests_on(&self) -> InstanceSet {
        self.held.rests_on()
    }

    pub(crate) fn claim(&self) -> Arc<Claim> {
        self.held.claim()
    }

    /// Waits until it has ended.
    pub(crate) async fn wait_for_end(&self, clock: &dyn Clock) -> LeaseEnd {
        self.held.wait_for_tenure_end(|| self.remaining(clock), || self.ended(clock)).await
    }

    /// How it ended, if it has.
    fn ended(&self, clock: &dyn Clock) -> Option<LeaseEnd> {
        if let Some(end) = self.held.ended(clock) {
            // A guard that was dropped while others had the lease does not lose it with them.
            let has_left = self.held.state().entry(self.guard).is_none();
            return Some(if has_left && !matches!(end, LeaseEnd::ShutDown) { LeaseEnd::GivenUp } else { end });
        }
        let ends_at = match self.held.state().entry(self.guard) {
            None => return Some(LeaseEnd::GivenUp),
            Some(entry) => entry.ends_at,
        };
        ends_at.is_some_and(|end| clock.now() >= end).then_some(LeaseEnd::Expired(None))
    }
}

/// Its tenures.
impl HeldLease {
    /// Whether it is valid now. Does not end it if its validity has just passed.
    pub(crate) fn validity(&self, clock: &dyn Clock) -> Validity {
        let state = self.state();
        match &state.end {
            Some(LeaseEnd::GivenUp) => Validity::GivenUp,
            Some(_) => Validity::Lost,
            None => match state.lease.remaining(clock.now()) {
                Duration::ZERO => Validity::Lost,
                remaining => Validity::Held(remaining),
            },
        }
    }

    /// Ends the tenure of its only guard, for somebody else of the client; `false` if the lease is to be released instead, as
    /// that of a holder is, and one that others may still have (P23). Those who wait for the end are told by
    /// `note_tenure_end`.
    pub(crate) fn end_tenure(&self, clock: &dyn Clock) -> bool {
        let mut state = self.state();
        let has_token = !state.is_collected || state.token.next_in_lease().is_some();
        let is_for_others = self.holder().is_empty() && !state.was_shared && !state.keeps_keys && has_token;
        if !is_for_others || state.guards != 1 || state.remaining(clock) < state.lease.terms().min_remaining() {
            return false;
        }
        state.tenure += 1;
        state.uncollected = 1;
        state.needs_token = state.is_collected;
        state.entries.clear();
        true
    }

    /// Begins the tenure of a guard that is counted already; `None` if the lease has ended, or less than `least` of it
    /// is left.
    pub(crate) fn begin_tenure(self: &Arc<Self>, wish: Wish, least: Duration, clock: &dyn Clock) -> Option<Tenure> {
        let mut state = self.state();
        if state.remaining(clock) < least {
            return None;
        }
        if state.needs_token {
            state.token = state.token.next_in_lease()?;
            state.needs_token = false;
        }
        if state.entries.is_empty() {
            (state.since, state.is_long_told) = (clock.now(), false);
        }
        state.is_collected = true;
        let (guard, is_handed_over, token) = (state.add_entry(wish), state.tenure > 0, state.token);
        drop(state);
        Some(Tenure { held: Arc::clone(self), guard, is_handed_over, token })
    }
}
