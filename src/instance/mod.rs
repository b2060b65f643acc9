//! One Redis or Valkey master: what is asked of it and what it says, and the connection to it.

mod cause;
mod command_size;
mod examination;
mod found_record;
mod key_check;
mod listener;
pub(crate) mod redis;
mod reply_to;
mod requests;
mod status;
mod stored_key;

pub use cause::{Cause, ReplyKind};
pub(crate) use command_size::{MAX_COMMAND_BYTES, split_into_commands};
pub use examination::{Examination, ServerDetails};
pub(crate) use examination::{ExamineFuture, FoundKeys, ScanFuture};
pub(crate) use found_record::{FoundRecord, RecordFuture, Trace};
pub(crate) use key_check::{ChangedKeys, Invalidation, KeyState};
pub(crate) use listener::{Listener, ReceivedMessage};
pub(crate) use reply_to::{ReplyTo, TakesReplies};
pub(crate) use requests::{Claim, ClaimWords, Request, Wake};
pub use status::{AdmissionStatus, ClockOffset, InstanceCounts, InstanceStatus, Trouble};
pub(crate) use stored_key::{Read, StoredKey};

use std::future::Future;
use std::pin::Pin;

use crate::protocol;

/// The states of the keys of many leases, one for each.
pub(crate) type KeyCheckFuture = Pin<Box<dyn Future<Output = Vec<KeyState>> + Send>>;

/// What is stored for a lock.
pub(crate) type ReadFuture = Pin<Box<dyn Future<Output = Read> + Send>>;

/// Which of several locks are free.
pub(crate) type AreFreeFuture = Pin<Box<dyn Future<Output = Result<Vec<bool>, protocol::Cause>> + Send>>;

/// The value under one key.
pub(crate) type LookFuture = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, protocol::Cause>> + Send>>;

/// Whether anybody heard it. It ends by the instance's own deadline. Dropping it takes nothing back.
pub(crate) type PublishFuture = Pin<Box<dyn Future<Output = bool> + Send>>;
