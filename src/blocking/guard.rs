//! A lock that a thread holds.

use std::time::Duration;

use super::Blocking;
use crate::detached::DetachedLease;
use crate::error::{ExtendError, Loss, ReleaseError};
use crate::guard::Released;
use crate::lease::{LeaseView, Mode, Writer};

/// As [`redquorum::Guard`](crate::Guard): a lock that is held, renewed on the client's thread. Dropped, it is released in the
/// background. It has all that a [`LeaseView`] has; [`on_lost`](LeaseView::on_lost) calls on the client's thread.
pub type Guard<M = Writer> = Blocking<crate::Guard<M>>;

/// As [`redquorum::ReadGuard`](crate::ReadGuard): a lock that is read, renewed on the client's thread.
pub type ReadGuard = Blocking<crate::ReadGuard>;

impl<M: Mode> Guard<M> {
    /// A view of the lease, for other threads; it does not keep the lock.
    #[must_use]
    pub fn lease(&self) -> LeaseView<M> {
        self.inner.lease()
    }

    /// Waits until the lock is lost, for `limit` at most; `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.wait(async { tokio::time::timeout(limit, self.lost()).await.ok() })
    }

    /// Extends the lock by its ttl from now: see [`Guard::extend`](crate::Guard::extend).
    pub fn extend(&self) -> Result<Duration, ExtendError> {
        self.wait(self.inner.extend())
    }

    /// Extends the lock to `ttl` from now: see [`Guard::extend_to`](crate::Guard::extend_to).
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.wait(self.inner.extend_to(ttl))
    }

    /// Releases the lock and waits until a quorum of instances has answered: see [`Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.running.wait(self.inner.release())
    }
}

impl Guard {
    /// Ends the guard without releasing the lock, so that another client can continue it: see
    /// [`Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> DetachedLease {
        self.inner.detach()
    }

    /// Gives the guard up without releasing the lock, which no client gets for `time`: see
    /// [`Guard::keep_for`](crate::Guard::keep_for).
    pub fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        self.running.wait(self.inner.keep_for(time))
    }
}
