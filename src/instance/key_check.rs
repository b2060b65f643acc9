//! Checks of the keys of leases, and pushes of their changes.

use crate::protocol::InstanceId;

/// What an instance has in the place of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The lease's own value under every key.
    Own,
    /// A key is missing, or has this value.
    NotOwn(Option<Vec<u8>>),
    /// It could not be asked.
    Unknown,
}

/// A push of an instance: keys that were being watched may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalidation {
    pub(crate) instance: InstanceId,
    pub(crate) keys: ChangedKeys,
}

/// Which keys may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangedKeys {
    /// Some of these.
    Among(Vec<Vec<u8>>),
    /// Any key of the instance.
    Any,
}
