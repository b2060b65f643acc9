//! What a round asks of an instance.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{FencingToken, Reply, Value};
use crate::resource::Resources;

/// What a round asks of every instance.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The resources with their keys.
    pub(crate) resources: Resources,
    /// The round's value (P1).
    pub(crate) value: Value,
    /// The proposed fencing token (P12).
    pub(crate) token: FencingToken,
    /// The time to live of the keys, in whole milliseconds.
    pub(crate) ttl: Duration,
    /// How long the instance keeps the token (P13).
    pub(crate) fence_retention: Duration,
    /// Whether anything that sets keys was sent for it more than once, a repeat of the acquire or an
    /// extend: then its release leaves a tombstone even where it deletes the key, for the other may
    /// still arrive (P6).
    pub(crate) resent: bool,
}

#[cfg(test)]
impl Claim {
    /// What a test asks for, of the round with this number.
    pub(super) fn sample(round: u128, names: &[String]) -> Self {
        Self {
            resources: Resources::new(b"", names.to_vec().into()).unwrap(),
            value: Value::new("", uuid::Uuid::from_u128(round), "host/1"),
            token: FencingToken::from_number(4096).unwrap(),
            ttl: Duration::from_secs(1),
            fence_retention: Duration::from_secs(60),
            resent: false,
        }
    }
}

/// A request to one instance.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Set all keys or none.
    Acquire(Arc<Claim>),
    /// Keep all keys for another ttl; set those that are missing.
    Extend(Arc<Claim>),
    /// Keep all keys as `Extend` does, under a larger token (P23).
    Reenter(Arc<Claim>),
    /// Delete the keys that still hold the value.
    Release(Arc<Claim>),
    /// As `Release`, but for a try of a holder that was not won: what it took over comes back (P23).
    GiveBack(Arc<Claim>),
}

impl Request {
    /// What is asked for, whatever is asked.
    pub(crate) const fn claim(&self) -> &Arc<Claim> {
        match self {
            Self::Acquire(claim)
            | Self::Extend(claim)
            | Self::Reenter(claim)
            | Self::Release(claim)
            | Self::GiveBack(claim) => claim,
        }
    }

    /// Ends a try that was not won. Only a holder's can have taken anything over.
    pub(crate) fn give_back(claim: Arc<Claim>) -> Self {
        if claim.value.holder_prefix().is_empty() { Self::Release(claim) } else { Self::GiveBack(claim) }
    }

    /// Whether it asks for a vote, and does not end a try or a lease.
    pub(crate) const fn asks_for_a_vote(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::Extend(_) | Self::Reenter(_))
    }
}

/// What an instance answers to one of many extends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtendReply {
    /// As if it had been asked about this lease alone.
    Decided(Reply),
    /// It does not have the key with the lease's value: only an extend of its own shows why, and repairs (P10).
    ExtendAlone,
}
