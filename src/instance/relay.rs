//! Messages between clients, by way of an instance (P25, P26).

use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;

use super::requests::Successors;
use crate::protocol::{ClientId, InstanceId};

/// What an instance is asked to pass on to another client.
#[derive(Debug)]
pub(crate) enum Relay {
    /// A message.
    Message {
        /// To whom.
        to: ClientId,
        /// What.
        message: Vec<u8>,
    },
    /// What it keeps for this client under a key, which is not wanted any more.
    Decline {
        /// Under which key.
        key: Vec<u8>,
        /// This client.
        client: ClientId,
        /// Who gets it instead.
        successors: Successors,
    },
}

/// Whether it was heard, or was there to be declined. It ends by the instance's own deadline. Dropping it takes
/// nothing back.
pub(crate) type RelayFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

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
