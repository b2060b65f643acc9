//! What is to be acquired.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::protocol::{Access, FencingToken, Instant, LeaseTerms, leader_label};
use crate::resource::Resource;
use crate::runtime::held_lease::{HeldLease, NEVER_RENEWED, RENEWED_FOR_EVER, Wish};

/// What a lock is acquired for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For itself.
    #[default]
    Lock,
    /// As one of several, of which one is enough: its waiters are counted in the queue of all of them (P35).
    Permit,
    /// To lead: its value shows its token and this info to other clients (P36).
    Leadership(Arc<str>),
}

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct AcquireParams {
    pub(crate) resource: Resource,
    pub(crate) access: Access,
    pub(crate) terms: LeaseTerms,
    /// The holder's identity; empty if it has none (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) purpose: Purpose,
}

impl AcquireParams {
    /// What a guard wants that is there at `now`.
    pub(super) fn wish(&self, now: Instant) -> Wish {
        let not_after = self.max_hold.map(|longest| now.saturating_add(longest));
        let renewed_until = if self.renews { not_after.unwrap_or(RENEWED_FOR_EVER) } else { NEVER_RENEWED };
        let ends_at = not_after.map(|not_after| self.terms.valid_until(not_after));
        Wish { terms: self.terms, renewed_until, ends_at }
    }

    /// The label of its value, if that is not the client's (P36).
    pub(super) fn label(&self, token: FencingToken) -> Option<String> {
        match &self.purpose {
            Purpose::Leadership(info) => Some(leader_label(token, info)),
            Purpose::Lock | Purpose::Permit => None,
        }
    }

    /// Whether its value contains its token: then a larger token needs another value, and its lease is not handed over (P36).
    pub(super) const fn names_token(&self) -> bool {
        matches!(self.purpose, Purpose::Leadership(_))
    }

    /// Whether this may take over a lease that another caller of this client gives up (P24). Not a holder, whose own value is
    /// under the keys of its lease, nor a leader, nor a reader.
    pub(super) fn may_take(&self, held: &HeldLease, clock: &dyn Clock) -> bool {
        // Renewed, it will last. Otherwise the next has what the former left of it.
        let terms = self.terms;
        let least = if self.renews { terms.min_remaining() } else { terms.ttl().saturating_sub(terms.ttl() / 10) };
        let may = self.access == Access::Write && self.holder.is_empty() && !self.names_token();
        may && held.terms() == terms && held.remaining(clock) >= least
    }
}
