//! What is compared, behind one face: each waits until it has the lock.

use std::fmt;
use std::time::Duration;

use redquorum::{AdmissionStatus, Guard, Redlock};
use rslock::{Lock, LockManager};

use crate::opened::open;
use crate::{Outcome, TTL};

/// How long the background releases of a worker may take before it ends.
const SHUTDOWN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This library with its defaults, in order between clients too.
    Ours,
    /// The crate rslock with its defaults: after three tries, up to 200 ms apart, it begins anew.
    Rslock,
    /// The same, up to 5 ms after each try that was in vain.
    Rslock5,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Rslock, Self::Rslock5];

    /// As it is called in the results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "redquorum",
            Self::Rslock => "rslock",
            Self::Rslock5 => "rslock 5 ms",
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
pub(crate) enum Client {
    Ours(Redlock),
    Rslock(LockManager),
}

/// A lock that is held.
pub(crate) enum Held {
    Ours(Guard),
    Rslock(Lock),
}

impl Client {
    /// Connected to every instance, all of which vote.
    pub(crate) async fn connect(kind: Kind, addresses: Vec<String>) -> Outcome<Self> {
        let client = match kind {
            Kind::Ours => {
                open(&addresses, TTL).await;
                let builder = Redlock::builder().instances(addresses).ttl(TTL).max_ttl(TTL);
                let redlock = builder.connect().await?;
                redlock.want_locks();
                while redlock.instances().iter().any(|status| status.admission != AdmissionStatus::Admitted) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Self::Ours(redlock)
            }
            Kind::Rslock => Self::Rslock(LockManager::new(addresses)),
            Kind::Rslock5 => {
                let mut manager = LockManager::new(addresses);
                manager.set_retry(u32::MAX, Duration::from_millis(5));
                Self::Rslock(manager)
            }
        };
        let own = format!("first:{}", std::process::id()); // rslock connects with its first use
        client.acquire(&own).await?.release().await?;
        Ok(client)
    }

    /// Waits for the lock without end.
    pub(crate) async fn acquire(&self, name: &str) -> Outcome<Held> {
        Ok(match self {
            Self::Ours(redlock) => Held::Ours(redlock.lock(name).acquire().await?),
            Self::Rslock(manager) => Held::Rslock(manager.acquire_no_guard(name, TTL).await?),
        })
    }

    /// Finishes what goes on in the background.
    pub(crate) async fn shut_down(self) -> Outcome {
        if let Self::Ours(redlock) = self {
            redlock.shutdown(SHUTDOWN).await?;
        }
        Ok(())
    }
}

impl Held {
    pub(crate) async fn release(self) -> Outcome {
        match self {
            Self::Ours(guard) => drop(guard.release().await?),
            Self::Rslock(lock) => lock.release().await,
        }
        Ok(())
    }
}
