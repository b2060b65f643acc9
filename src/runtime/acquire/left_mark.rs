//! The mark of a writer that waits for readers (P34): it lets in no more of them.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::protocol::WriterMark;
use crate::resource::Resource;

/// The longest pause of a writer that has left a mark, which ends after three seconds.
pub(super) const LONGEST_MARKED_PAUSE: Duration = Duration::from_secs(1);

/// What takes marks off the instances: the client.
pub(crate) trait TakesMarks: Debug + Send + Sync {
    /// No caller of the client waits behind this mark any more: one of them `has_won`, or all have given up.
    fn take_mark(&self, resource: &Resource, mark: &WriterMark, has_won: bool);
}

/// A mark that each attempt of this client's writers leaves from now on, until one of them has the lock. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct LeftMark {
    client: Weak<dyn TakesMarks>,
    resource: Resource,
    pub(super) mark: Arc<WriterMark>,
    has_won: bool,
}

impl LeftMark {
    pub(super) fn new(client: Weak<dyn TakesMarks>, resource: Resource, mark: WriterMark) -> Self {
        Self { client, resource, mark: Arc::new(mark), has_won: false }
    }

    /// Its writer has the lock. What was left on instances that did not grant it goes.
    pub(super) fn won(mut self) {
        self.has_won = true;
    }
}

impl Drop for LeftMark {
    fn drop(&mut self) {
        if let Some(client) = self.client.upgrade() {
            client.take_mark(&self.resource, &self.mark, self.has_won);
        }
    }
}
