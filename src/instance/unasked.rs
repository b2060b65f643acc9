//! What comes over an instance unasked: changes of keys, and messages of other clients (P25, P26).

use tokio::sync::mpsc;

use crate::protocol::{ClientId, InstanceId};

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

/// A message that came over an instance.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) instance: InstanceId,
    pub(crate) message: Vec<u8>,
}

/// Where a client subscribes, and who takes in the messages.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) client: ClientId,
    pub(crate) messages: mpsc::Sender<ReceivedMessage>,
}
