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
    /// That it keeps a key for others, and tells them.
    Keep {
        /// Which key.
        key: Vec<u8>,
        /// For whom it is kept now: this client, which does not want it any more. `None`: it is free.
        instead_of: Option<ClientId>,
        /// For whom it is to be kept.
        successors: Successors,
    },
}

/// Whether it was heard, or is kept now. It ends by the instance's own deadline. Dropping it takes
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
