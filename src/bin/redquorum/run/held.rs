//! What a command runs under: locks, or one lock that it reads.

use std::time::Duration;

use redquorum::{AllGuard, ExtendError, Loss, ReadGuard, ReleaseError, Released, ResourceName};

pub(super) enum Held {
    Locks(AllGuard),
    Read(ReadGuard),
}

impl Held {
    pub(super) fn resources(&self) -> Vec<ResourceName> {
        match self {
            Self::Locks(guard) => guard.resources().iter().cloned().collect(),
            Self::Read(guard) => vec![guard.resource()],
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
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Locks(guard) => guard.remaining(),
            Self::Read(guard) => guard.remaining(),
        }
    }

    pub(super) async fn lost(&self) -> Loss {
        match self {
            Self::Locks(guard) => guard.lost().await,
            Self::Read(guard) => guard.lost().await,
        }
    }

    pub(super) async fn release(self) -> Result<Released, ReleaseError> {
        match self {
            Self::Locks(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
        }
    }

    /// Leaves the keys for so long; what is read is released.
    pub(super) async fn keep_for(self, time: Duration) -> Result<(), ExtendError> {
        match self {
            Self::Locks(guard) => guard.keep_for(time).await,
            Self::Read(guard) => {
                drop(guard); // `--shared` does not go with `--keep`
                Ok(())
            }
        }
    }
}
