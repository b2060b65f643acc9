//! The handle of a lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Settings;
use crate::error::{ExtendError, ReleaseError, extend_error, release_error};
use crate::protocol::FencingToken;
use crate::runtime::Shared;
use crate::runtime::acquire::Won;
use crate::runtime::extend::extend;
use crate::runtime::release::release;

/// A lock that is held, for as long as [`remaining`](Self::remaining) says.
///
/// Dropping it releases the lock in the background, from any thread, and never blocks.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    shared: Arc<Shared>,
    settings: Settings,
    /// `None` once a release has taken it over.
    held: Option<Won>,
    token: FencingToken,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether a quorum of instances still held the lock for this guard. If not, it had expired or
    /// was taken away, and the work may have run beside that of another holder: the fencing token
    /// decides whose writes count.
    pub was_still_held: bool,
}

impl Guard {
    pub(crate) fn new(shared: Arc<Shared>, settings: Settings, held: Won) -> Self {
        let token = held.claim.token;
        Self { shared, settings, held: Some(held), token }
    }

    /// The number to store with what the lock protects; larger for every later holder.
    ///
    /// ```no_run
    /// # async fn f(redlock: redquorum::Redlock, db: &dyn Fn(&str, i64)) -> Result<(), redquorum::AcquireError> {
    /// let guard = redlock.lock("account:7").acquire().await?;
    /// let fence = guard.fencing_token().as_i64();
    /// // 0 rows changed means: a later holder has written, give up.
    /// db("UPDATE account SET balance = 5, fence = $1 WHERE id = 7 AND fence <= $1", fence);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Whether the lock may still be relied on, by this machine's clock.
    ///
    /// True now does not mean true at the time of the next write: a pause may lie between. Only a
    /// fencing token protects against that.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.lease.is_valid(self.shared.clock.now()))
    }

    /// How long the lock may still be relied on; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.as_ref().map_or(Duration::ZERO, |held| held.lease.remaining(self.shared.clock.now()))
    }

    /// Keeps the lock for another ttl from now; gives the new remaining validity.
    ///
    /// Where an instance has lost the key (it was restarted, or was unreachable when the lock was
    /// taken), the key is set again (P10).
    ///
    /// # Guarantees
    /// On success a quorum confirmed the lock while it was still valid (P9). On failure nothing is
    /// deleted and the lock stays valid for as long as it was (P8).
    ///
    /// # Cancel safety
    /// Safe: the keys may live longer, the validity stays as it was. It may be called again.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] once the validity has passed; [`ExtendError::Unconfirmed`] if no
    /// quorum answered in time, which may be tried again.
    pub async fn extend(&mut self) -> Result<Duration, ExtendError> {
        let ttl = self.held.as_ref().map(|held| held.claim.ttl);
        self.extend_with(ttl).await
    }

    /// As [`extend`](Self::extend), with a new ttl, which must not be below the lock's own.
    ///
    /// # Cancel safety
    /// As for [`extend`](Self::extend).
    ///
    /// # Errors
    /// Also [`ExtendError::Shorter`], and [`ExtendError::BadRequest`] for a ttl above `max_ttl`.
    pub async fn extend_to(&mut self, ttl: Duration) -> Result<Duration, ExtendError> {
        self.extend_with(Some(ttl)).await
    }

    async fn extend_with(&mut self, ttl: Option<Duration>) -> Result<Duration, ExtendError> {
        let terms = self.settings.terms(ttl)?;
        let Some(held) = &mut self.held else {
            return Err(ExtendError::Lost { reports: Vec::new() });
        };
        extend(&self.shared, held, terms).await.map_err(|failure| extend_error(&self.shared, failure))
    }

    /// Releases the lock and waits until a quorum of instances has answered.
    ///
    /// # Guarantees
    /// Only this guard's own keys are deleted (P7). The lock is not relied on any more from the
    /// moment of the call.
    ///
    /// # Cancel safety
    /// Safe: the release goes on in the background.
    ///
    /// # Errors
    /// [`ReleaseError::Unconfirmed`] if too few instances answered. The release goes on in the
    /// background, and the keys expire with their ttl at the latest; there is nothing to repeat.
    pub async fn release(mut self) -> Result<Released, ReleaseError> {
        let Some(held) = self.held.take() else {
            return Ok(Released { was_still_held: false });
        };
        match release(&self.shared, &held).await {
            Ok(was_still_held) => Ok(Released { was_still_held }),
            Err(round) => Err(release_error(&self.shared, &round)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.shared.release_in_background(&held.claim, held.lease.asked()); // P22
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resources", &self.held.as_ref().map(|held| held.claim.resources.display_all()))
            .field("fencing_token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
