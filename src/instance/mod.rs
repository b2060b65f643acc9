//! One Redis or Valkey master: requests to it, its answers, and the connection to it.

mod cause;
mod command_size;
mod found;
pub(crate) mod redis;
mod reply_to;
mod requests;
mod status;
mod unasked;

pub use cause::{Cause, ReplyKind};
pub(crate) use command_size::{MAX_COMMAND_BYTES, split_into_commands};
pub use found::{Examination, ServerDetails};
pub(crate) use found::{FoundKeys, FoundRecord, KeyState, Read, StoredKey, Trace};
pub(crate) use reply_to::{ReplyTo, TakesReplies};
pub(crate) use requests::{Claim, ClaimWords, Request, Wake};
pub use status::{AdmissionStatus, ClockOffset, InstanceCounts, InstanceStatus, OtherList, Trouble};
pub(crate) use unasked::{ChangedKeys, Invalidation, Listener, ReceivedMessage};

use std::future::Future;
use std::pin::Pin;

/// Whether a client received it. It ends by the instance's own deadline. Dropping it takes nothing back.
pub(crate) type PublishFuture = Pin<Box<dyn Future<Output = bool> + Send>>;
