//! One Redis or Valkey master, as everything above sees it.

mod cause;
mod command_size;
mod examination;
mod found_record;
mod key_check;
mod listener;
pub(crate) mod redis;
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
pub(crate) use requests::{Claim, Request, Votes, Wake};
pub use status::{AdmissionStatus, ClockOffset, InstanceCounts, InstanceStatus, Trouble};
pub(crate) use stored_key::{Read, StoredKey};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{self, Instant, Reply};
use crate::resource::Resource;

/// The reply to a request. It ends by the instance's own deadline.
pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The replies to many extends, one for each.
pub(crate) type ExtendManyFuture = Pin<Box<dyn Future<Output = Vec<Reply>> + Send>>;

/// The states of the keys of many leases, one for each.
pub(crate) type KeyCheckFuture = Pin<Box<dyn Future<Output = Vec<KeyState>> + Send>>;

/// What is stored for a lock.
pub(crate) type ReadFuture = Pin<Box<dyn Future<Output = Read> + Send>>;

/// Whether anybody heard it. It ends by the instance's own deadline. Dropping it takes nothing back.
pub(crate) type PublishFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

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
    fn call(&self, request: Request) -> ReplyFuture;

    /// Sends one command that extends leases, and sets the keys that are missing only if it `repairs`.
    fn extend_many(&self, claims: Vec<Arc<Claim>>, repairs: bool) -> ExtendManyFuture;

    /// Checks the keys of leases, and asks for one push at the next change of them.
    fn check_keys(&self, claims: Vec<Arc<Claim>>) -> KeyCheckFuture;

    /// Reads what is stored for a lock of one resource; changes nothing.
    fn read(&self, resource: Resource) -> ReadFuture;

    /// Asks the server about itself; changes nothing.
    fn examine(&self) -> ExamineFuture;

    /// Looks for keys of texts that match, at about so many keys; changes nothing.
    fn scan(&self, pattern: Vec<u8>, most: usize) -> ScanFuture;

    /// Reads its admission record; changes nothing.
    fn read_record(&self) -> RecordFuture<FoundRecord>;

    /// Writes its first record, so that it votes at once, if it shows no trace of use; or only looks (P15).
    fn open_record(&self, writes: bool) -> RecordFuture<Trace>;

    /// Gives a record that was found, and is for its process, this client's time (P29); gives whether it was still there.
    fn set_record(&self, found: FoundRecord) -> RecordFuture<bool>;

    /// Whether messages to this client come over it (P25).
    fn hears(&self) -> bool;

    /// Queues a message for another client.
    fn publish(&self, wake: Wake) -> PublishFuture;

    /// What its wall clock shows at least at `now` of the own clock, in microseconds since the Unix epoch;
    /// `None` if that is not known.
    fn wall_us(&self, now: Instant) -> Option<u64>;

    /// Why requests would not be sent now; `None` when connected.
    fn obstacle(&self) -> Option<protocol::Cause>;

    /// How long a question to it took lately, as far as that is known.
    fn round_trip(&self) -> Option<Duration>;

    /// Why it is connected and gives this client no vote, if that is for the client's settings.
    fn refusal(&self) -> Option<protocol::Cause>;

    /// The client wants locks: from now on it writes the records of its instances where that is to be done.
    fn want_locks(&self);

    /// Ends when the instance is connected and does not refuse this client for its settings, at once if it is.
    fn wait_accepted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Ends when the instance is connected, at once if it is.
    fn wait_connected(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// How it does, without asking it.
    fn status(&self) -> InstanceStatus;

    /// How many requests over its present connection wait to be sent or for their replies.
    #[cfg(feature = "testing")]
    fn outstanding(&self) -> usize;
}
