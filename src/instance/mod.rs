//! One Redis or Valkey master, as everything above sees it.

#[cfg(feature = "testing")]
pub(crate) mod memory;
mod portion;
pub(crate) mod redis;
mod status;

pub(crate) use portion::portions;
pub use status::{AdmissionStatus, InstanceStatus, Trouble};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::protocol::{Cause, FencingToken, InstanceId, Instant, Reply, Value};
use crate::resource::Resources;

/// A reply on its way. It ends by the instance's own deadline.
pub(crate) type Call = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Replies to many extends on their way, one for each; `None` where the instance does not have the
/// key as expected and must be asked about it alone.
pub(crate) type Renewal = Pin<Box<dyn Future<Output = Vec<Option<Reply>>> + Send>>;

/// What is seen of many leases on its way, one sight for each.
pub(crate) type Look = Pin<Box<dyn Future<Output = Vec<Sight>> + Send>>;

/// What an instance has in the place of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The lease's own value under every key.
    Own,
    /// A key is missing, or has this value.
    Gone(Option<Vec<u8>>),
    /// It could not be asked.
    Unknown,
}

/// A push of an instance: keys that were being watched may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) instance: InstanceId,
    /// Which; `None` for all of them.
    pub(crate) keys: Option<Vec<Vec<u8>>>,
}

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
    /// extend: then its release leaves a mark even where it deletes the key, for the other may
    /// still arrive (P6).
    pub(crate) resent: bool,
}

#[cfg(test)]
impl Claim {
    /// What a test asks for, of the round with this number.
    fn sample(round: u128, names: &[String]) -> Self {
        Self {
            resources: Resources::new(b"", names.to_vec().into()).unwrap(),
            value: Value::new("", round, "host/1"),
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
    Enter(Arc<Claim>),
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
            | Self::Enter(claim)
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
        matches!(self, Self::Acquire(_) | Self::Extend(_) | Self::Enter(_))
    }
}

/// One instance.
///
/// The contract, which the layers above rely on:
///
/// - *Queued when `call` returns.* Calls reach the instance in the order in which `call` was
///   called, so a release that is called after an acquire is carried out after it (P6). A call must
///   be polled to its end: one that is dropped may or may not be sent.
/// - *No waiting for a connection.* Without one the call is `NotSent` at once; likewise when the
///   instance is known to be silent or has too many calls outstanding.
/// - *A deadline.* A call ends within the instance timeout, with `Unknown` if need be. Late
///   replies are dropped.
/// - *`NotSent` is certain*: the request had and will have no effect.
/// - *From any thread*: `call` needs no runtime and does not block, so that it can be called from a
///   destructor. Only polling the result needs the runtime.
pub(crate) trait Instance: Send + Sync + fmt::Debug + 'static {
    /// The address for people, without credentials.
    fn address(&self) -> &str;

    /// Queues a request.
    fn call(&self, request: Request) -> Call;

    /// Queues extends of leases with one resource each, as few commands as possible.
    ///
    /// Every key lives for its claim's ttl from then on. Where the ttls differ it may live longer, up
    /// to the longest of them: whoever asks puts leases of one ttl together.
    fn renew(&self, claims: Vec<Arc<Claim>>) -> Renewal {
        let calls: Vec<Call> = claims.into_iter().map(|claim| self.call(Request::Extend(claim))).collect();
        Box::pin(async move { join_all(calls).await.into_iter().map(Some).collect() })
    }

    /// Looks at leases, and asks to be told once of the next change of their keys.
    fn look(&self, claims: Vec<Arc<Claim>>) -> Look {
        Box::pin(std::future::ready(vec![Sight::Unknown; claims.len()]))
    }

    /// What its wall clock shows at least at `now` of the own clock, in microseconds since the Unix epoch;
    /// `None` if that is not known.
    fn wall_us(&self, now: Instant) -> Option<u64>;

    /// Why requests would not be sent now; `None` when connected.
    fn obstacle(&self) -> Option<Cause>;

    /// Ends when the instance is connected, at once if it is.
    fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// How it does, without asking it.
    fn status(&self) -> InstanceStatus;
}
