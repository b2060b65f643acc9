//! A number of permits, of which each is a lock.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tracing::Span;

use crate::config::Renewal;
use crate::error::{AcquireError, BadRequest, ReleaseError};
use crate::guard::{Guard, Released};
use crate::inspection::{Inspection, inspect};
use crate::lock::{Lock, lease_settings};
use crate::names::ResourceName;
use crate::resource::Resource;
use crate::runtime::acquire::several::Several;
use crate::runtime::acquire::{AcquireFailure, Purpose};
use crate::runtime::held_lease::Tenure;
use crate::span;

/// The most permits of a semaphore.
const MAX_PERMITS: u32 = 256;

/// At most so many may work at a time. Made by [`Redlock::semaphore`](crate::Redlock::semaphore).
///
/// It is `permits` numbered locks, `<name>#0` and up, and a permit is one of them. So never more permits are valid than that,
/// with all that is promised of a lock: while a minority of instances fails, with a loss that is reported, and with a fencing token. The
/// number of a permit, [`Permit::index`], is its holder's alone while it has it: a shard, a port, the number of a worker.
///
/// It is cheap to clone, and acquires as often as it is called.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = cluster.builder().connect().await?;
/// let downloads = redlock.semaphore("downloads", 3);
/// let permit = downloads.acquire().await?; // waits until fewer than three are at work
/// println!("download slot {}, token {}", permit.index(), permit.fencing_token());
/// permit.release().await?;
/// # Ok(()) }
/// ```
///
/// # Other numbers of permits
/// All users should give the same number. Where they do not, the largest that is in use rules: a user of 3 has one of the first
/// three, beside those that a user of 5 may have. So:
///
/// - *to have more*, give the larger number to one user after the other;
/// - *to have fewer*, give all users the smaller number, and wait for the last permit above it: until then more may be valid.
///   [`inspect`](Self::inspect) of the former number shows them.
#[derive(Clone, Debug)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore {
    pub(crate) name: ResourceName,
    pub(crate) permits: u32,
    /// One of the locks, without its name.
    pub(crate) each: Lock,
}

/// One of the permits of a [`Semaphore`], for as long as [`remaining`](crate::LeaseView::remaining) says. It has all that a [`Guard`] has.
///
/// It is renewed in the background. Dropping it releases the permit in the background.
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit<G = Guard> {
    pub(crate) guard: G,
    pub(crate) index: u32,
}

impl Semaphore {
    lease_settings!(each);

    /// How many permits there are.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.permits
    }

    /// Waits until there is a permit.
    ///
    /// A client begins with a permit that none of its callers has, each client elsewhere. If another client has that, one read of all
    /// keys shows which are free. If none is, its callers queue, first come, first served. The first of them waits for each permit that this client
    /// has, which comes to it without a request with any index, and for up to four others at once: their holders know of it, and it
    /// takes the first that is released. Another permit that becomes free it finds within a quarter of a second, and as often it exchanges one
    /// of the four, so that the holder of each permit learns of it.
    ///
    /// # Guarantees
    /// At no instant are more than [`permits`](Self::permits) valid, within the limits of a [`Lock`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    ///
    /// # Errors
    /// As for [`Lock::acquire`], and [`BadRequest::Permits`] for zero permits or more than 256. A refusal names the holder of one permit.
    pub fn acquire(&self) -> impl Future<Output = Result<Permit, AcquireError>> + Send + use<> {
        let semaphore = self.clone(); // so that the future borrows nothing
        async move {
            let (several, each) = (semaphore.several()?, &semaphore.each);
            let span = span::operation!("acquire", several.line().display());
            semaphore.permit(several.line(), span, several.acquire(&each.shared, each.limit)).await
        }
    }

    /// Tries once, without waiting for a holder of a permit: one after the other of those that are free.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let reports = redlock.semaphore("reports", 2);
    /// let both = (reports.try_acquire().await?, reports.try_acquire().await?);
    /// assert_ne!(both.0.index(), both.1.index());
    /// assert!(reports.try_acquire().await.is_err_and(|error| error.is_contended()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Guarantees
    /// Of clients that try at the same moment as many get a permit as are free, as for
    /// [`Lock::try_acquire`], unless one that was refused everywhere has read the keys just before a permit came free.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`], and [`BadRequest::Permits`]. It fails at once while a caller of this client waits.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Permit, AcquireError>> + Send + use<> {
        let semaphore = self.clone();
        async move {
            let several = semaphore.several()?;
            let span = span::operation!("try_acquire", several.line().display());
            semaphore.permit(several.line(), span, several.try_acquire(&semaphore.each.shared)).await
        }
    }

    /// Who has each permit, in the order of their indexes: see [`Redlock::inspect`](crate::Redlock::inspect). Changes nothing.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = cluster.builder().connect().await?;
    /// let downloads = redlock.semaphore("downloads", 3);
    /// let permit = downloads.acquire().await?;
    /// let permits = downloads.inspect().await?;
    /// assert_eq!(permits.iter().filter(|permit| permit.holder().is_some()).count(), 1);
    /// # drop(permit); Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    ///
    /// # Errors
    /// [`BadRequest`] for a name that cannot be locked, or a number of permits that cannot be.
    pub async fn inspect(&self) -> Result<Vec<Inspection>, BadRequest> {
        self.each.shared.check_process()?;
        self.check()?;
        let resources: Result<Vec<Resource>, BadRequest> = self.locks().map(|lock| lock.resource()).collect();
        Ok(join_all(resources?.iter().map(|resource| inspect(&self.each.shared, resource))).await)
    }

    fn check(&self) -> Result<(), BadRequest> {
        let is_possible = (1..=MAX_PERMITS).contains(&self.permits);
        is_possible.then_some(()).ok_or(BadRequest::Permits { given: self.permits, most: MAX_PERMITS })?;
        self.line().resource().map(drop)
    }

    /// The lock behind each permit.
    fn locks(&self) -> impl Iterator<Item = Lock> {
        let name = |index: u32| [self.name.as_bytes(), format!("#{index}").as_bytes()].concat();
        (0..self.permits).map(move |index| self.each.clone().named(name(index).into()))
    }

    /// What all of them are named after.
    fn line(&self) -> Lock {
        self.each.clone().named(self.name.clone()).meant_for(Purpose::Lock)
    }

    fn several(&self) -> Result<Arc<Several>, AcquireError> {
        self.check()?;
        let line = self.line().params()?;
        let each = self.locks().map(|lock| lock.params()).collect::<Result<_, _>>()?;
        Ok(Arc::new(Several::new(&line, each, self.each.shared.tokens.client())))
    }

    /// Carries an acquire out, which is reported as that of a lock.
    async fn permit(
        &self,
        line: &Resource,
        span: Span,
        won: impl Future<Output = Result<(usize, Tenure), AcquireFailure>>,
    ) -> Result<Permit, AcquireError> {
        let mut index = 0;
        let tenure = async {
            let (at, tenure) = won.await?;
            index = u32::try_from(at).unwrap_or_default();
            Ok(tenure)
        };
        let guard = self.each.observed(line, span, tenure).await?;
        Ok(Permit { guard, index })
    }
}

impl<G> Permit<G> {
    /// Which of the permits it is, from 0: no other valid permit has this number.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The guard of the lock behind it, to [detach](Guard::detach) it, or to [keep](Guard::keep_for) the permit from all clients for a time.
    pub fn into_guard(self) -> G {
        self.guard
    }
}

impl Permit {
    /// Releases the permit, and waits until a quorum of instances has answered: see [`Guard::release`].
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<Released, ReleaseError> {
        self.guard.release().await
    }
}

/// What it shows of its lease, and how to extend it. Its fencing token is larger for every later holder of the same
/// [`index`](Self::index); those of different indexes say nothing of each other.
impl<G> Deref for Permit<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}
