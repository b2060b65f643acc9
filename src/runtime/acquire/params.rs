//! What is to be acquired.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Instant, LeaseTerms};
use crate::resource::Resources;
use crate::runtime::held_lease::{RenewalPolicy, Wish};

/// What to acquire, for whom and for how long.
#[derive(Clone, Debug)]
pub(crate) struct AcquireParams {
    pub(crate) resources: Resources,
    pub(crate) terms: LeaseTerms,
    /// The holder's identity; empty if it has none (P23).
    pub(crate) holder: Arc<str>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl AcquireParams {
    /// What a guard wants that is there at `now`.
    pub(super) fn wish(&self, now: Instant) -> Wish {
        let not_after = self.max_hold.map(|longest| now.saturating_add(longest));
        Wish { terms: self.terms, renewal: RenewalPolicy { renews: self.renews, not_after } }
    }
}
