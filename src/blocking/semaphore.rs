//! Permits that threads acquire.

use std::time::Duration;

use super::{Blocking, Guard};
use crate::config::Renewal;
use crate::error::{AcquireError, BadRequest, ReleaseError};
use crate::guard::Released;
use crate::inspection::Inspection;
use crate::lock::lease_settings;

/// As [`redquorum::Semaphore`](crate::Semaphore): at most so many may work at a time.
pub type Semaphore = Blocking<crate::Semaphore>;

/// As [`redquorum::Permit`](crate::Permit): one of the permits of a semaphore. Dropped, it is released in the background. It has all
/// that a [`Guard`] has.
pub type Permit = crate::Permit<Guard>;

impl Semaphore {
    lease_settings!(inner);

    /// How many permits there are.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.inner.permits()
    }

    /// Waits until there is a permit: see [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
    /// let permit = redlock.semaphore("downloads", 3).acquire()?;
    /// println!("download slot {}", permit.index());
    /// permit.release()?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.permit(self.inner.acquire())
    }

    /// Tries once: see [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self) -> Result<Permit, AcquireError> {
        self.permit(self.inner.try_acquire())
    }

    /// Who has each permit: see [`Semaphore::inspect`](crate::Semaphore::inspect).
    pub fn inspect(&self) -> Result<Vec<Inspection>, BadRequest> {
        self.wait(self.inner.inspect())
    }

    fn permit<E>(&self, acquired: impl Future<Output = Result<crate::Permit, E>>) -> Result<Permit, E> {
        let crate::Permit { guard, index } = self.wait(acquired)?;
        Ok(Permit { guard: self.with(guard), index })
    }
}

impl Permit {
    /// Releases the permit, and waits until a quorum of instances has answered: see [`Permit::release`](crate::Permit::release).
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }
}
