//! The mark of a writer that waits for readers (P34): it lets in no more of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::instance::{Claim, Request, Votes};
use crate::protocol::{Access, FencingToken, Value, WriterMark};
use crate::resource::Resource;
use crate::runtime::shared::Shared;

/// After so long a mark has ended by itself (`acquire.lua`).
const LONGEST: Duration = Duration::from_secs(3);

/// A mark that each ask of this client's writers leaves from now on, until one of them has the lock. Dropped, it is taken away.
#[derive(Debug)]
pub(super) struct LeftMark {
    client: Weak<Shared>,
    resource: Resource,
    mark: Arc<WriterMark>,
    /// Whether its writer has the lock.
    has_won: bool,
}

impl LeftMark {
    /// For writers that begin to wait now. `None` if no clock tells when that is.
    pub(super) fn new(shared: &Arc<Shared>, resource: &Resource) -> Option<Self> {
        let mark = WriterMark::new(shared.proposing_clock().ok()?.us, shared.tokens.client());
        Some(Self { client: Arc::downgrade(shared), resource: resource.clone(), mark: Arc::new(mark), has_won: false })
    }

    /// Its writer has the lock. What was left on the instances that did not grant it goes.
    pub(super) fn won(mut self) {
        self.has_won = true;
    }

    pub(super) const fn mark(&self) -> &Arc<WriterMark> {
        &self.mark
    }
}

impl Drop for LeftMark {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade().filter(|client| !client.is_forked()) else { return };
        // It leaves as a reader does. Readers that have told this client that they wait are woken.
        let claim = Claim {
            resource: self.resource.clone(),
            value: Value::from_wire(self.mark.as_bytes()),
            token: FencingToken::propose(0, None),
            access: Access::Read,
            mark: None,
            ttl: LONGEST,
            resent: false,
            is_first: false,
            votes: Votes::default(),
        };
        let leave = Request::Release(Arc::new(claim), None);
        let release = if self.has_won { leave } else { client.wake_next(leave) };
        client.release_in_background(&release, client.all_instances());
    }
}
