//! A lock that a thread holds.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::client::Running;
use crate::detached::DetachedLease;
use crate::error::{ExtendError, Loss, ReleaseError};
use crate::guard::{Guard as AsyncGuard, Released};
use crate::lease::LeaseView;

/// As [`redquorum::Guard`](crate::Guard): a lock that is held, renewed on the client's thread. Dropped, it is released in the
/// background. It has all that a [`LeaseView`] has; [`on_lost`](LeaseView::on_lost) calls on the client's thread.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    // In this order: what the guard lets go is released before the client ends.
    guard: AsyncGuard,
    running: Arc<Running>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Guard").field(&self.guard).finish()
    }
}

/// What it shows of its lease.
impl Deref for Guard {
    type Target = LeaseView;

    fn deref(&self) -> &LeaseView {
        &self.guard
    }
}

impl Guard {
    pub(super) const fn new(guard: AsyncGuard, running: Arc<Running>) -> Self {
        Self { guard, running }
    }

    /// A view of the lease, for other threads; it does not keep the lock.
    #[must_use]
    pub fn lease(&self) -> LeaseView {
        self.guard.lease()
    }

    /// Waits until the lock is lost, for `limit` at most; `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.running.wait(async { tokio::time::timeout(limit, self.guard.lost()).await.ok() })
    }

    /// Extends the lock by its ttl from now: see [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend())
    }

    /// Extends the lock to `ttl` from now: see [`Guard::extend_to`](crate::Guard::extend_to).
    ///
    /// # Errors
    /// As there.
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.running.wait(self.guard.extend_to(ttl))
    }

    /// Ends the guard without releasing the lock, so that another client can continue it: see
    /// [`Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> DetachedLease {
        self.guard.detach()
    }

    /// Releases the lock and waits until a quorum of instances has answered: see [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// [`ReleaseError::Unconfirmed`] if too few instances answered. The release continues in the background.
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.running.wait(self.guard.release())
    }

    /// Gives the guard up without releasing the lock, which nobody gets for `time`: see
    /// [`Guard::keep_for`](crate::Guard::keep_for).
    ///
    /// # Errors
    /// As there.
    pub fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        self.running.wait(self.guard.keep_for(time))
    }
}
