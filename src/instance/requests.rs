//! What a round requests of an instance.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::protocol::{Access, ClientId, CountedVotes, FencingToken, Message, Value, Waiter, WriterMark};
use crate::resource::Resource;

/// What a round requests of every instance.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// What is locked.
    pub(crate) resource: Resource,
    /// The round's value (P1).
    pub(crate) value: Value,
    /// The proposed fencing token (P12).
    pub(crate) token: FencingToken,
    /// What it is wanted for. A reader's requests are those of a lock, sent as other scripts (P33); it has no use for its token.
    pub(crate) access: Access,
    /// What a writer that waits leaves where readers refuse it (P34).
    pub(crate) mark: Option<Arc<WriterMark>>,
    /// The time to live of the keys, in whole milliseconds.
    pub(crate) ttl: Duration,
    /// Whether anything was sent for it more than once that sets keys, a repeat of the acquire or an extend: then its release leaves a
    /// tombstone even where it deletes the key, for the other may still arrive (P6).
    pub(crate) resent: bool,
    /// First attempt of an acquire, and no known contender (P28).
    pub(crate) is_first: bool,
    /// Whether its token was proposed while no instance's clock was known (P12).
    pub(crate) is_by_own_clock: bool,
    /// Whether the keys stay as a mark, without a lease (P22).
    pub(crate) is_mark: bool,
    /// The votes that have counted for the value (P10): of all requests for it, however often the claim is cloned.
    pub(crate) votes: Votes,
    /// Its words in commands, once a connection has put them together.
    pub(crate) words: OnceLock<ClaimWords>,
}

impl Claim {
    /// The claim of the first round under a value.
    pub(crate) fn new(resource: Resource, value: Value, token: FencingToken, ttl: Duration) -> Self {
        let (votes, words) = (Votes::default(), OnceLock::new());
        let (access, mark) = (Access::Write, None);
        let (resent, is_first, is_by_own_clock, is_mark) = (false, false, false, false);
        Self { resource, value, token, access, mark, ttl, resent, is_first, is_by_own_clock, is_mark, votes, words }
    }

    /// The same for keys that live for so long, of which something was sent before.
    pub(crate) fn extended_to(&self, ttl: Duration) -> Self {
        Self { ttl, resent: true, words: OnceLock::new(), ..self.clone() }
    }
}

impl AsRef<Self> for Claim {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A claim in commands: its token, its key, its value, and how a plain command sets that, as words one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct ClaimWords {
    pub(crate) words: Vec<u8>,
    /// Where the key, the value, and what is behind that begin.
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) behind: usize,
}

/// The votes that have counted for one value, which each request for it sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Votes(Arc<Mutex<CountedVotes>>);

impl Votes {
    /// The counted votes, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, CountedVotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Claim {
    /// The claim of a test, of the round with this number.
    pub(crate) fn sample(round: u128, name: &str) -> Self {
        let resource = Resource::new(b"", name.as_bytes()).unwrap();
        let value = Value::new("", uuid::Uuid::from_u128(round), "host/1");
        Self::new(resource, value, FencingToken::from_number(4096).unwrap(), Duration::from_secs(1))
    }
}

/// A request to one instance.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Set the key.
    Acquire(Arc<Claim>),
    /// Keep the key for another ttl; set it where it is missing.
    Extend(Arc<Claim>),
    /// Keep the key for another ttl where it is there.
    Keep(Arc<Claim>),
    /// Delete the key if it still holds the value, and wake the next waiter, if one is known (P26).
    Release(Arc<Claim>, Option<Arc<[Wake]>>),
}

/// What is published to another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    /// To which.
    pub(crate) to: ClientId,
    /// What.
    pub(crate) message: Vec<u8>,
}

impl Wake {
    /// Wake-ups for the waiters of a released key, in order; none without waiters, or if the key is too long for a message. Of
    /// waiters that are woken together the first gets the list of the others.
    pub(crate) fn all(key: &[u8], waiters: &[Waiter]) -> Vec<Self> {
        let (next, mut then) = waiters.split_at(Waiter::woken_together(waiters));
        let wake = |Waiter { client, access, .. }: &Waiter| {
            let then = std::mem::take(&mut then).to_vec();
            let message = Message::Next { access: *access, then, key: key.to_vec() }.to_wire()?;
            Some(Self { to: *client, message })
        };
        next.iter().filter_map(wake).collect()
    }
}

impl AsRef<Claim> for Request {
    fn as_ref(&self) -> &Claim {
        self.claim()
    }
}

impl Request {
    /// The claim of any request.
    pub(crate) const fn claim(&self) -> &Arc<Claim> {
        match self {
            Self::Acquire(claim) | Self::Extend(claim) | Self::Keep(claim) | Self::Release(claim, _) => claim,
        }
    }

    /// What is published behind it.
    pub(crate) fn wakes(&self) -> &[Wake] {
        match self {
            Self::Release(_, wakes) => wakes.as_deref().unwrap_or_default(),
            Self::Acquire(_) | Self::Extend(_) | Self::Keep(_) => &[],
        }
    }

    /// Whether it requests a vote, and does not end an attempt or a lease.
    pub(crate) const fn asks_for_a_vote(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::Extend(_) | Self::Keep(_))
    }
}
