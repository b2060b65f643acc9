//! What a command runs under: locks, a permit of a semaphore, or a leadership.

use std::time::Duration;

use redquorum::{AllGuard, ExtendError, Leadership, LeaseView, Loss, Permit, ReleaseError, Released};

pub(super) enum Held {
    Locks(AllGuard),
    Permit(Permit),
    Lead(Leadership),
}

impl Held {
    /// One for each lock.
    pub(super) fn leases(&self) -> Vec<LeaseView> {
        match self {
            Self::Locks(guard) => guard.leases().leases().to_vec(),
            Self::Permit(permit) => vec![permit.lease()],
            Self::Lead(leadership) => vec![leadership.lease()],
        }
    }

    /// The names for people.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.leases().iter().map(|lease| lease.resource().to_string()).collect();
        names.join(", ")
    }

    /// The number of the permit, if it is one.
    pub(super) fn index(&self) -> Option<u32> {
        match self {
            Self::Permit(permit) => Some(permit.index()),
            Self::Locks(_) | Self::Lead(_) => None,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.leases().iter().map(LeaseView::remaining).min().unwrap_or_default()
    }

    pub(super) async fn lost(&self) -> Loss {
        match self {
            Self::Locks(guard) => guard.lost().await,
            Self::Permit(permit) => permit.lost().await,
            Self::Lead(leadership) => leadership.lost().await,
        }
    }

    pub(super) async fn release(self) -> Result<Released, ReleaseError> {
        match self {
            Self::Locks(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Lead(leadership) => leadership.resign().await,
        }
    }

    /// Leaves the keys for so long; a lead is given up.
    pub(super) async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        match self {
            Self::Locks(guard) => guard.keep_for(time).await,
            Self::Permit(permit) => permit.into_guard().keep_for(time).await,
            Self::Lead(leadership) => {
                let _ = leadership.resign().await; // `elect` has no option for this
                Ok(())
            }
        }
    }
}
