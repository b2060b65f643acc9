//! Who holds a lock, beyond one guard (P23).

use std::sync::Arc;

use crate::error::BadRequest;
use crate::random;

/// The longest identity, in bytes.
const MAX_HOLDER: usize = 200;

/// An identity under which guards of one client share a lease. Set it with [`Lock::holder`](crate::Lock::holder).
///
/// While the holder has a lock in a client, each acquire of it by that client with the same holder gets another guard:
///
/// - at once, past all waiters, and without a request. With less than a fifth of the ttl left the lock is extended first;
/// - with the same fencing token. The guards share one lease: a loss is a loss for all.
/// - It is released when the last guard is. It is renewed while one of them wants that, with the longest of their ttls;
///   `max_hold` ends its own guard alone.
/// - Waiting acquires of the holder get their guards as soon as one of them has the lock.
///
/// In another client or process the same holder is refused: a process that crashed waits for the ttl when it restarts.
/// An operator who knows that the former process is gone can run `redquorum release --holder`.
///
/// At most 200 bytes: it is stored with every lock, and shown to refused callers. A longer one is refused when a lock
/// is acquired.
///
/// ```no_run
/// use redquorum::Holder;
/// # async fn f(redlock: redquorum::Redlock) -> Result<(), redquorum::AcquireError> {
/// // A part of the work that locks the order as well does not wait for itself.
/// let guard = redlock.lock("order:42").holder(Holder::from("request-8f3c")).acquire().await?;
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// A unique identity: a random UUID, from the operating system's random source.
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

/// An empty text is no identity.
impl From<&str> for Holder {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// An empty text is no identity.
impl From<String> for Holder {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
