//! One guard's time in a lease: leases are handed over in the process (P24).

use std::sync::Arc;
use std::time::Duration;

use super::end::LeaseEnd;
use super::held::HeldLease;
use super::renewal_policy::RenewalPolicy;
use super::state::HeldLeaseState;
use crate::clock::Clock;
use crate::instance::Claim;
use crate::protocol::{FencingToken, InstanceSet, LeaseTerms};

/// The time during which a guard has a lease. It ends with the lease, or before, when the lease is handed over. Guards
/// of one holder share theirs (P23).
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    held: Arc<HeldLease>,
    number: u32,
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

    /// Whether somebody else had the lease before.
    pub(crate) const fn was_handed_over(&self) -> bool {
        self.number > 0
    }

    /// Its latest token.
    pub(crate) fn token(&self) -> FencingToken {
        self.current().map_or(self.token, |state| state.token)
    }

    /// How long the lease may still be relied on; zero once the tenure has ended.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Duration {
        self.current().map_or(Duration::ZERO, |state| state.remaining(clock))
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
        let is_over = || self.current().is_none().then_some(LeaseEnd::GivenUp);
        self.held.wait_for_tenure_end(clock, || is_over().or_else(|| self.held.ended(clock))).await
    }

    fn current(&self) -> Option<std::sync::MutexGuard<'_, HeldLeaseState>> {
        Some(self.held.state()).filter(|state| state.tenure == self.number)
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

    /// Whether it is what somebody asks for on these terms.
    pub(crate) fn suits(&self, terms: LeaseTerms) -> bool {
        let state = self.state();
        !state.has_ended() && state.lease.terms() == terms && state.claim.value.holder_prefix().is_empty()
    }

    /// Ends the tenure of its only guard, for somebody who asks for these terms; `false` if the lease is to be released
    /// instead. Those who wait for the end are told by `note_tenure_end`.
    pub(crate) fn end_tenure_for(&self, terms: LeaseTerms, renews: bool, clock: &dyn Clock) -> bool {
        if !self.suits(terms) {
            return false;
        }
        let mut state = self.state();
        // Renewed, it will last. Otherwise the next has what the former left of it.
        let least = if renews { terms.min_remaining() } else { terms.ttl().saturating_sub(terms.ttl() / 10) };
        let has_token = !state.is_collected || state.token.next_in_lease().is_some();
        if state.has_ended() || state.guards != 1 || state.keeps_keys || !has_token || state.remaining(clock) < least {
            return false;
        }
        state.tenure += 1;
        state.uncollected = 1;
        state.policy = RenewalPolicy::NEVER;
        true
    }

    /// Begins the tenure of a guard that is counted already; `None` if the lease has ended, or less than `least` of it
    /// is left.
    pub(crate) fn begin_tenure(
        self: &Arc<Self>,
        policy: RenewalPolicy,
        least: Duration,
        clock: &dyn Clock,
    ) -> Option<Tenure> {
        let mut state = self.state();
        if state.remaining(clock) < least {
            return None;
        }
        if state.is_collected {
            state.token = state.token.next_in_lease()?;
        }
        (state.is_collected, state.policy) = (true, policy);
        (state.since, state.is_long_told) = (clock.now(), false);
        Some(Tenure { held: Arc::clone(self), number: state.tenure, token: state.token })
    }

    /// Joins the tenure of its guards, for one that is counted already.
    pub(crate) fn join_tenure(self: &Arc<Self>) -> Tenure {
        let mut state = self.state();
        state.is_collected = true;
        Tenure { held: Arc::clone(self), number: state.tenure, token: state.token }
    }
}
