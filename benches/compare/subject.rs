//! What is compared, behind one face.

use std::fmt;
use std::time::Duration;

use redquorum::Admission;

use crate::Outcome;
use crate::options::Options;
use crate::other::Other;
use crate::ours::Ours;
use crate::raw::Raw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This library with its defaults.
    Ours,
    /// The same without admission.
    Off,
    /// The crate redis alone, as one writes it.
    Raw,
    /// The crate rslock.
    Rslock,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Ours, Self::Off, Self::Raw, Self::Rslock];

    /// Those that are measured.
    pub(crate) fn chosen(options: &Options) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| options.has_subject(kind.name())).collect()
    }

    /// As it is called in the results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "redquorum",
            Self::Off => "admission off",
            Self::Raw => "raw",
            Self::Rslock => "rslock",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A connected client. Clones share connections.
#[derive(Clone)]
pub(crate) enum Subject {
    Ours(Ours),
    Off(Ours),
    Raw(Raw),
    Rslock(Other),
}

/// A lock that is held.
pub(crate) enum Held {
    Ours(redquorum::Guard),
    All(redquorum::AllGuard),
    Raw(crate::raw::Held),
    Rslock(rslock::Lock),
}

impl Subject {
    pub(crate) async fn connect(kind: Kind, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        Ok(match kind {
            Kind::Ours => Self::Ours(Ours::connect(addresses, ttl, Admission::On).await?),
            Kind::Off => Self::Off(Ours::connect(addresses, ttl, Admission::Off).await?),
            Kind::Raw => Self::Raw(Raw::connect(&addresses, ttl).await?),
            Kind::Rslock => Self::Rslock(Other::connect(addresses, ttl).await?),
        })
    }

    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Ours(_) => Kind::Ours,
            Self::Off(_) => Kind::Off,
            Self::Raw(_) => Kind::Raw,
            Self::Rslock(_) => Kind::Rslock,
        }
    }

    pub(crate) async fn acquire(&self, name: &str) -> Outcome<Held> {
        Ok(match self {
            Self::Ours(ours) | Self::Off(ours) => Held::Ours(ours.acquire(name).await?),
            Self::Raw(raw) => Held::Raw(raw.acquire(name).await?),
            Self::Rslock(other) => Held::Rslock(other.acquire(name).await?),
        })
    }

    /// Locks several names together, if it can.
    pub(crate) async fn acquire_all(&self, names: &[String]) -> Outcome<Held> {
        match self {
            Self::Ours(ours) | Self::Off(ours) => Ok(Held::All(ours.acquire_all(names).await?)),
            _ => Err("it locks one name at a time".into()),
        }
    }
}

impl Held {
    pub(crate) async fn release(self) -> Outcome {
        match self {
            Self::Ours(guard) => drop(guard.release().await?),
            Self::All(guard) => drop(guard.release().await?),
            Self::Raw(held) => held.release().await?,
            Self::Rslock(lock) => lock.release().await,
        }
        Ok(())
    }
}
