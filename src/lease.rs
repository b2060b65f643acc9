//! What the work that a lock protects sees of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Settings;
use crate::error::{Loss, loss};
use crate::names::ResourceName;
use crate::protocol::FencingToken;
use crate::runtime::Shared;
use crate::runtime::held_lease::Tenure;

/// A read-only view of a lease: it neither extends nor releases it. Cheap to clone.
///
/// Given to the work by [`Lock::run`](crate::Lock::run) and by [`Guard::lease`](crate::Guard::lease).
#[derive(Clone)]
pub struct LeaseView {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) tenure: Tenure,
}

/// How many instances store the keys of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redundancy {
    /// Those that granted the last round that was won, and were not found without the key since.
    pub held_on: usize,
    /// How many instances are configured.
    pub instances: usize,
    /// How many are needed.
    pub quorum: usize,
}

impl Redundancy {
    /// How many instances may lose the key before another client can take the lock. Zero means a bare
    /// quorum: the loss of the key on a single instance can end the lease.
    #[must_use]
    pub const fn spare(self) -> usize {
        // Another client needs a quorum of those that do not have it.
        (self.held_on + self.quorum).saturating_sub(self.instances + 1)
    }
}

impl LeaseView {
    pub(crate) const fn new(shared: Arc<Shared>, settings: Arc<Settings>, tenure: Tenure) -> Self {
        Self { shared, settings, tenure }
    }

    /// As [`Guard::resource`](crate::Guard::resource).
    #[must_use]
    pub fn resource(&self) -> ResourceName {
        self.tenure.claim().resource.name(&self.settings.namespace)
    }

    /// As [`Guard::fencing_token`](crate::Guard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.tenure.token()
    }

    /// As [`Guard::is_valid`](crate::Guard::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// As [`Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining(&*self.shared.clock)
    }

    /// As [`Guard::redundancy`](crate::Guard::redundancy).
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        let quorum = self.shared.quorum;
        Redundancy { held_on: self.tenure.rests_on().len(), instances: quorum.instances(), quorum: quorum.votes() }
    }

    /// As [`Guard::lost`](crate::Guard::lost); [`Loss::GivenUp`] once its guard is gone.
    ///
    /// # Cancel safety
    /// Safe: it only waits, and may be called again.
    pub async fn lost(&self) -> Loss {
        self.shared.keep_alive.watch(self.tenure.held());
        let end = self.tenure.wait_for_end(&*self.shared.clock).await;
        loss(&self.shared, end)
    }

    /// As [`Guard::on_lost`](crate::Guard::on_lost).
    pub fn on_lost(&self, notify: impl FnOnce(Loss) + Send + 'static) {
        let (lease, notifier) = (self.clone(), LossNotifier(Some(notify)));
        self.shared.runtime.spawn(async move {
            let mut notifier = notifier; // whole, so that it is dropped with this
            match (lease.lost().await, notifier.0.take()) {
                (Loss::GivenUp, _) | (_, None) => {}
                (loss, Some(notify)) => notify(loss),
            }
        });
    }

    /// As [`Guard::loss_token`](crate::Guard::loss_token).
    #[cfg(feature = "tokio-util")]
    #[must_use]
    pub fn loss_token(&self) -> tokio_util::sync::CancellationToken {
        let token = tokio_util::sync::CancellationToken::new();
        let (lease, cancel) = (self.clone(), token.clone().drop_guard());
        self.shared.runtime.spawn(async move {
            let _ = lease.lost().await;
            drop(cancel); // it is also dropped if the runtime ends
        });
        token
    }

    /// Shows the lease under the name of what holds this view.
    pub(crate) fn show_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("resource", &self.tenure.claim().resource)
            .field("fencing_token", &self.fencing_token().get())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show_as("LeaseView", f)
    }
}

/// What is to be called when a lease is lost, or when the task that waits for that is dropped with its runtime.
struct LossNotifier<F: FnOnce(Loss)>(Option<F>);

impl<F: FnOnce(Loss)> Drop for LossNotifier<F> {
    fn drop(&mut self) {
        if let Some(notify) = self.0.take() {
            notify(Loss::RuntimeEnded);
        }
    }
}
