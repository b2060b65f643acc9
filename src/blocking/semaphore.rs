//! Permits that threads acquire.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::client::Running;
use super::guard::Guard;
use crate::config::Renewal;
use crate::error::{AcquireError, BadRequest, ReleaseError};
use crate::guard::Released;
use crate::inspection::Inspection;
use crate::lock::lease_settings;
use crate::semaphore::{Permit as AsyncPermit, Semaphore as AsyncSemaphore};

/// As [`redquorum::Semaphore`](crate::Semaphore): at most so many may work at a time.
#[derive(Clone)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore {
    semaphore: AsyncSemaphore,
    running: Arc<Running>,
}

/// As [`redquorum::Permit`](crate::Permit): one of the permits of a semaphore. Dropped, it is given back in the background. It has all
/// that a [`Guard`] has.
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    guard: Guard,
    index: u32,
}

impl Semaphore {
    pub(super) const fn new(semaphore: AsyncSemaphore, running: Arc<Running>) -> Self {
        Self { semaphore, running }
    }

    lease_settings!(semaphore);

    /// How many permits there are.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.semaphore.permits()
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
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        let permit = self.running.wait(self.semaphore.acquire())?;
        Ok(self.permit(permit))
    }

    /// Tries once: see [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Permit, AcquireError> {
        let permit = self.running.wait(self.semaphore.try_acquire())?;
        Ok(self.permit(permit))
    }

    /// Who has each permit: see [`Semaphore::inspect`](crate::Semaphore::inspect).
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self) -> Result<Vec<Inspection>, BadRequest> {
        self.running.wait(self.semaphore.inspect())
    }

    fn permit(&self, permit: AsyncPermit) -> Permit {
        let index = permit.index();
        Permit { guard: Guard::new(permit.into_guard(), Arc::clone(&self.running)), index }
    }
}

impl Permit {
    /// Which of the permits it is, from 0: no other valid permit has this number.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Gives the permit back, and waits until a quorum of instances has answered: see [`Permit::release`](crate::Permit::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }

    /// The guard of the lock behind it: see [`Permit::into_guard`](crate::Permit::into_guard).
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

/// What it shows of its lease, and how to extend it.
impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Semaphore").field(&self.semaphore).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("blocking::Permit").field("index", &self.index).field("guard", &self.guard).finish()
    }
}
