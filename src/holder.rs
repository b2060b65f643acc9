//! Who holds a lock, beyond one guard and one process (P23).

use std::sync::Arc;

use crate::error::BadRequest;
use crate::random;

/// The longest identity, in bytes.
const MAX_HOLDER: usize = 200;

/// The identity of whoever wants a lock. Give it with [`Lock::holder`](crate::Lock::holder).
///
/// The same holder may re-enter its lock while it holds it:
///
/// - In the same client the new guard shares the lease, after one round that confirms it and gives it
///   a larger fencing token.
/// - From another process, or after a timeout whose request did arrive, it takes over its own lock
///   instead of being refused. An earlier guard in another process then ends as
///   [`Loss::ResumedElsewhere`](crate::Loss::ResumedElsewhere).
///
/// Only locks on exactly the same resources share a lease, and it is renewed as the guard that needs it
/// longest has asked, until the last of them is dropped: one without a `max_hold` takes that of the others away. A
/// lock on a part of the resources, or on more, is another lease: it takes over the common ones, and the former
/// lease ends at once.
///
/// An acquire that fails, in this process or another, leaves the holder's lock as it was or lets it
/// expire; nobody else gets the lock because of it.
///
/// At most 200 bytes: it is stored with every lock. A longer one is refused when a lock is acquired.
///
/// Each acquire compares the resources with those of all locks that the same holder has in the client. So give tens of thousands
/// of locks identities of their own, or none.
///
/// Whoever knows a holder's identity can take over its locks: choose one that no two parties that
/// must exclude each other share, such as the id of a request that may be retried.
///
/// ```no_run
/// use redquorum::Holder;
/// # async fn f(redlock: redquorum::Redlock) -> Result<(), redquorum::AcquireError> {
/// // A retry of the same request, here or elsewhere, goes on instead of waiting for itself.
/// let guard = redlock.lock("order:42").holder(Holder::from("request-8f3c")).acquire().await?;
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// An identity that nobody else has: a random UUID, from the operating system's random source.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn new() -> Result<Self, std::io::Error> {
        Ok(Self(random::uuid()?.simple().to_string().into()))
    }

    /// The identity as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it can be stored with a lock.
    pub(crate) fn check(&self) -> Result<(), BadRequest> {
        let length = self.0.len();
        if length > MAX_HOLDER { Err(BadRequest::HolderTooLong { length, most: MAX_HOLDER }) } else { Ok(()) }
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

/// An empty text stands for no identity.
impl From<&str> for Holder {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// An empty text stands for no identity.
impl From<String> for Holder {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
