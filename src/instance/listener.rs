//! Messages of other clients, by way of an instance (P25, P26).

use tokio::sync::mpsc;

use crate::protocol::{ClientId, InstanceId};

/// A message that came over an instance.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) instance: InstanceId,
    pub(crate) message: Vec<u8>,
}

/// Where a client listens, and who takes in what it hears.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) client: ClientId,
    pub(crate) messages: mpsc::Sender<ReceivedMessage>,
}
