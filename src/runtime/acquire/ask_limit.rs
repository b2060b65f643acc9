//! Bounds how many lines and single tries of one client ask at once.
//!
//! Thousands that are asked for together wait in front of the connections for longer than the instance timeout; they
//! are all given up, released and asked for again, and hardly any is won.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// As many as the commands that may be on their way to an instance can carry.
const MAX_ASKS: usize = 256;

/// The permits to ask, first come first served.
#[derive(Debug)]
pub(crate) struct AskLimit(Arc<Semaphore>);

/// The right to ask once.
#[derive(Debug)]
pub(super) struct AskPermit(#[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit);

impl Default for AskLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_ASKS)))
    }
}

impl AskLimit {
    /// A permit, if there is one now.
    pub(super) fn take_now(&self) -> Option<AskPermit> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(AskPermit)
    }

    /// A permit, as soon as there is one.
    pub(super) async fn take(&self) -> Option<AskPermit> {
        Arc::clone(&self.0).acquire_owned().await.ok().map(AskPermit) // it is never closed
    }
}
