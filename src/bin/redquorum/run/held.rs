//! What a command runs under: locks, one lock that it reads, a permit of a semaphore, or a leadership.

use std::time::Duration;

use redquorum::{AllGuard, ExtendError, Leadership, Loss, Permit, ReadGuard, ReleaseError, Released, ResourceName};

pub(super) enum Held {
    Locks(AllGuard),
    Read(ReadGuard),
    Permit(Permit),
    Lead(Leadership),
}

impl Held {
    pub(super) fn resources(&self) -> Vec<ResourceName> {
        match self {
            Self::Locks(guard) => guard.resources(),
            Self::Read(guard) => vec![guard.resource()],
            Self::Permit(permit) => vec![permit.resource()],
            Self::Lead(leadership) => vec![leadership.resource()],
        }
    }

    /// The names for people.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.resources().iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The fencing tokens, one for each lock; readers have none.
    pub(super) fn tokens(&self) -> Vec<String> {
        match self {
            Self::Locks(guard) => guard.fencing_tokens().iter().map(|(_, token)| token.to_string()).collect(),
            Self::Read(_) => Vec::new(),
            Self::Permit(permit) => vec![permit.fencing_token().to_string()],
            Self::Lead(leadership) => vec![leadership.fencing_token().to_string()],
        }
    }

    /// The number of the permit, if it is one.
    pub(super) fn index(&self) -> Option<u32> {
        match self {
            Self::Permit(permit) => Some(permit.index()),
            Self::Locks(_) | Self::Read(_) | Self::Lead(_) => None,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Locks(guard) => guard.remaining(),
            Self::Read(guard) => guard.remaining(),
            Self::Permit(permit) => permit.remaining(),
            Self::Lead(leadership) => leadership.remaining(),
        }
    }

    pub(super) async fn lost(&self) -> Loss {
        match self {
            Self::Locks(guard) => guard.lost().await,
            Self::Read(guard) => guard.lost().await,
            Self::Permit(permit) => permit.lost().await,
            Self::Lead(leadership) => leadership.lost().await,
        }
    }

    /// Why it is not renewed: the evidence of its loss, or else what one more round meets, which takes no longer than an instance timeout.
    pub(super) async fn obstacle(&self) -> Option<String> {
        if self.remaining().is_zero() {
            return Some(self.lost().await.to_string());
        }
        let extended = match self {
            Self::Locks(guard) => guard.extend().await,
            Self::Read(guard) => guard.extend().await,
            Self::Permit(permit) => permit.extend().await,
            Self::Lead(leadership) => leadership.extend().await,
        };
        extended.err().map(|error| error.to_string())
    }

    pub(super) async fn release(self) -> Result<Released, ReleaseError> {
        match self {
            Self::Locks(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Lead(leadership) => leadership.resign().await,
        }
    }

    /// Leaves the keys for so long; what is read, or led, is given up: `--shared` and `elect` have no option for this.
    pub(super) async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        match self {
            Self::Locks(guard) => guard.keep_for(time).await,
            Self::Permit(permit) => permit.into_guard().keep_for(time).await,
            held @ (Self::Read(_) | Self::Lead(_)) => {
                let _ = held.release().await;
                Ok(())
            }
        }
    }
}
