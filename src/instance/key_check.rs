//! Looking at the keys of leases, and being told of their changes.

use crate::protocol::InstanceId;

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
