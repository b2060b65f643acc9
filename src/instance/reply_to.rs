//! Where the reply to a request goes.

use std::fmt;
use std::sync::Arc;

use crate::protocol::{Cause, InstanceId, Reply};

/// Takes in the replies to requests, each once: from the task of a connection, or from the caller where nothing is sent.
/// It does not block, and holds no mutex of its own when it sends anything.
pub(crate) trait TakesReplies: Send + Sync {
    /// The reply of an instance to the request that has this number there.
    fn take(self: Arc<Self>, id: InstanceId, number: usize, reply: Reply);
}

/// The place for the reply to one request. Dropped without one, it is not known what became of the request (P5).
pub(crate) struct ReplyTo {
    taker: Option<Arc<dyn TakesReplies>>,
    id: InstanceId,
    number: usize,
}

impl ReplyTo {
    /// For the only request to this instance.
    pub(crate) fn new(taker: Arc<dyn TakesReplies>, id: InstanceId) -> Self {
        Self::numbered(taker, id, 0)
    }

    /// For one of several requests to this instance.
    pub(crate) fn numbered(taker: Arc<dyn TakesReplies>, id: InstanceId, number: usize) -> Self {
        Self { taker: Some(taker), id, number }
    }

    /// The reply has come.
    pub(crate) fn answer(mut self, reply: Reply) {
        self.put(reply);
    }

    fn put(&mut self, reply: Reply) {
        if let Some(taker) = self.taker.take() {
            taker.take(self.id, self.number, reply);
        }
    }
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyTo").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if self.taker.is_some() {
            self.put(Reply::Unknown(Cause::Disconnected("the connection was given up".to_owned())));
        }
    }
}
