//! For how long a lease is renewed.

use crate::protocol::Instant;

/// For how long a lease is renewed by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalPolicy {
    /// Whether it is renewed at all.
    pub(crate) renews: bool,
    /// From when on it is not renewed any more.
    pub(crate) not_after: Option<Instant>,
}

impl RenewalPolicy {
    /// Of a lease that no caller has.
    pub(super) const NEVER: Self = Self { renews: false, not_after: None };

    /// Whether the lease is renewed at `now`.
    pub(crate) fn renews_at(self, now: Instant) -> bool {
        self.renews && self.not_after.is_none_or(|end| now < end)
    }

    /// The policy under which both of two guards have the lease for as long as they asked (P23).
    pub(super) fn longer(self, other: Self) -> Self {
        match (self.renews, other.renews) {
            (true, false) => self,
            (false, true) => other,
            _ => Self { not_after: self.not_after.zip(other.not_after).map(|(a, b)| a.max(b)), ..self },
        }
    }
}
