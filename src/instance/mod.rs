//! One Redis or Valkey master, as everything above sees it.

mod command_size;
mod key_check;
#[cfg(feature = "testing")]
pub(crate) mod memory;
pub(crate) mod redis;
mod requests;
mod status;

pub(crate) use command_size::{fit_in_command, split_into_commands};
pub(crate) use key_check::{Hint, Sight};
pub(crate) use requests::{Claim, Request};
pub use status::{AdmissionStatus, InstanceStatus, Trouble};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::protocol::{Cause, Instant, Reply};

/// A reply on its way. It ends by the instance's own deadline.
pub(crate) type Call = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Replies to many extends on their way, one for each; `None` where the instance does not have the
/// key as expected and must be asked about it alone.
pub(crate) type Renewal = Pin<Box<dyn Future<Output = Vec<Option<Reply>>> + Send>>;

/// What is seen of many leases on its way, one sight for each.
pub(crate) type Look = Pin<Box<dyn Future<Output = Vec<Sight>> + Send>>;

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
