//! What a round asks of an instance.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{ClientId, FencingToken, Message, Reply, Value, Waiter};
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
    /// Whether anything was sent for it more than once, a repeat of the acquire, an extend, or the release:
    /// then its release leaves a tombstone even where it deletes the key, for what sets keys may
    /// still arrive (P6).
    pub(crate) resent: bool,
    /// Whether it is the first that an acquire asks for, and nothing is known to be in the way (P28).
    pub(crate) is_first: bool,
}

#[cfg(test)]
impl Claim {
    /// What a test asks for, of the round with this number.
    pub(crate) fn sample(round: u128, names: &[String]) -> Self {
        Self {
            resources: Resources::new(b"", names.to_vec().into()).unwrap(),
            value: Value::new("", uuid::Uuid::from_u128(round), "host/1"),
            token: FencingToken::from_number(4096).unwrap(),
            ttl: Duration::from_secs(1),
            resent: false,
            is_first: false,
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
    /// Delete the keys that still hold the value.
    Release(Arc<Claim>),
    /// As `Release`, but the key is kept for a successor (P26). Only of one resource.
    PassOn(Arc<Claim>, Arc<Successors>),
}

/// Who gets a key that is given up (P26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Successors {
    /// The first of them that hears it.
    pub(crate) clients: Vec<ClientId>,
    /// What is published to it.
    pub(crate) message: Vec<u8>,
    /// For how long the key is kept, in whole milliseconds.
    pub(crate) grace: Duration,
}

impl Request {
    /// What is asked for, whatever is asked.
    pub(crate) const fn claim(&self) -> &Arc<Claim> {
        match self {
            Self::Acquire(claim) | Self::Extend(claim) | Self::Release(claim) | Self::PassOn(claim, _) => claim,
        }
    }

    /// Whether it ends a try or a lease.
    pub(crate) const fn is_release(&self) -> bool {
        !self.asks_for_a_vote()
    }

    /// The same for a later time: whoever was to be its successor may not wait any more.
    pub(crate) fn without_successor(self) -> Self {
        match self {
            Self::PassOn(claim, _) => Self::Release(claim),
            request => request,
        }
    }

    /// A release for a time when it was sent already. It goes as a script (P7): a comparison that deletes nothing takes
    /// two round trips, and may never be in time where one takes more than half of that.
    pub(crate) fn resent(self) -> Self {
        match self {
            Self::Release(claim) if !claim.resent => {
                Self::Release(Arc::new(Claim { resent: true, ..Claim::clone(&claim) }))
            }
            request => request,
        }
    }

    /// Whether it asks for a vote, and does not end a try or a lease.
    pub(crate) const fn asks_for_a_vote(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::Extend(_))
    }
}

/// How many are tried for one that hears.
const MAX_SUCCESSORS: usize = 4;

impl Successors {
    /// For a key for which these wait, in order; `None` if none does, or the key is too long for a message.
    pub(crate) fn new(key: &[u8], waiters: &[Waiter], grace: Duration) -> Option<Self> {
        let clients: Vec<ClientId> = waiters.iter().take(MAX_SUCCESSORS).map(|waiter| waiter.client).collect();
        let then = waiters.get(1..)?.to_vec();
        let message = Message::Next { then, key: key.to_vec() }.to_wire()?;
        Some(Self { clients, message, grace: grace.max(Duration::from_millis(1)) })
    }

    /// The clients as scripts take them.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.clients.iter().map(ClientId::to_string).collect();
        names.join(" ")
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
