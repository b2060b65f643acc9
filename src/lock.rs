//! A lock that is about to be acquired.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::config::Settings;
use crate::error::{AcquireError, acquire_error};
use crate::guard::Guard;
use crate::resource::{ResourceNames, Resources};
use crate::runtime::Shared;
use crate::runtime::acquire::{Failure, Wish, Won, try_once, wait};

/// Resources to lock and how. Made by [`Redlock::lock`](crate::Redlock::lock).
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<'a> {
    shared: &'a Arc<Shared>,
    settings: &'a Settings,
    names: ResourceNames,
    ttl: Option<Duration>,
    limit: Option<Duration>,
}

impl<'a> Lock<'a> {
    pub(crate) const fn new(shared: &'a Arc<Shared>, settings: &'a Settings, names: ResourceNames) -> Self {
        Self { shared, settings, names, ttl: None, limit: None }
    }

    /// How long the keys live without being extended, in whole milliseconds. Default: the client's
    /// `ttl`. At most the client's `max_ttl`, at least twice the drift.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long [`acquire`](Self::acquire) waits. Default: without end.
    ///
    /// At least one round is carried out, so it may take one instance timeout longer.
    pub const fn wait_at_most(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Waits until the lock is acquired.
    ///
    /// Goes on while somebody else holds it, and while too few instances answer, until the limit
    /// of [`wait_at_most`](Self::wait_at_most) or without end.
    ///
    /// # Guarantees
    /// When it returns a guard, a quorum of instances has granted every resource, and until the
    /// guard's validity has passed no other client can get one, within the limits that the crate's
    /// documentation states.
    ///
    /// # Cancel safety
    /// Safe. What an unfinished round may have set is released in the background: at once where
    /// the instance can be reached, when it comes back where it cannot, and by the ttl at the
    /// latest.
    ///
    /// # Errors
    /// [`AcquireError::DeadlinePassed`] with the cause of the last round;
    /// [`AcquireError::BadRequest`] and [`AcquireError::ShutDown`] at once. No key stays behind.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let wish = self.wish()?;
        let span = tracing::debug_span!("acquire", resources = wish.resources.display_all());
        let result = wait(self.shared, &wish, self.limit).instrument(span).await;
        self.guard(&wish, result)
    }

    /// Tries once.
    ///
    /// Takes one round trip to the quorum-th fastest instance. The round is repeated only where it
    /// showed that this client's wall clock is behind (P12), or that instances had lost their
    /// scripts: once as a rule, and never more often than there are instances.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Any [`AcquireError`] but `DeadlinePassed`. No key stays behind.
    pub async fn try_acquire(self) -> Result<Guard, AcquireError> {
        let wish = self.wish()?;
        let span = tracing::debug_span!("try_acquire", resources = wish.resources.display_all());
        let result = try_once(self.shared, &wish).instrument(span).await;
        self.guard(&wish, result)
    }

    fn wish(&self) -> Result<Wish, AcquireError> {
        let checked = Resources::new(&self.settings.namespace, self.names.clone()).map_err(Into::into);
        let wish = checked.and_then(|resources| Ok(Wish { resources, terms: self.settings.terms(self.ttl)? }));
        wish.map_err(AcquireError::BadRequest)
    }

    fn guard(&self, wish: &Wish, result: Result<Won, Failure>) -> Result<Guard, AcquireError> {
        match result {
            Ok(won) => Ok(Guard::new(Arc::clone(self.shared), self.settings.clone(), won)),
            Err(failure) => {
                let error = acquire_error(self.shared, &wish.resources, failure);
                tracing::debug!(resources = wish.resources.display_all(), %error, "not acquired");
                Err(error)
            }
        }
    }
}
