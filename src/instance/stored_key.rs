//! What an instance has stored for a lock.

use std::time::Duration;

use crate::protocol::{Cause, FencingToken};

/// What is stored for a lock; read in three steps, between which it may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredKey {
    /// The value under the lock's key; `None` if it is free.
    pub(crate) value: Option<Vec<u8>>,
    /// Of a lock that is read: its readers, and the marks of writers that wait, the first of them.
    pub(crate) readers: Vec<Vec<u8>>,
    /// How long the key will live; `None` for ever, or if it is free.
    pub(crate) expires_in: Option<Duration>,
    /// The last fencing token.
    pub(crate) token: Option<FencingToken>,
}

/// That, or why it could not be read.
pub(crate) type Read = Result<StoredKey, Cause>;
