//! The blocking types: what each has of its asynchronous twin.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

use super::Blocking;
use super::thread::Running;
use crate::config::{Builder, Renewal, StartError};
use crate::detached::DetachedLease;
use crate::election::Leader;
use crate::error::{
    AcquireError, BadRequest, BuildError, ConnectError, ExtendError, LeaderError, Loss, ReleaseError, RunError,
    ShutdownError, Unreleased,
};
use crate::guard::Released;
use crate::holder::Holder;
use crate::inspection::Inspection;
use crate::instance::InstanceStatus;
use crate::lease::{LeaseView, Mode, Writer};
use crate::lock::{lease_settings, lock_settings};
use crate::lock_all::AllLeases;
use crate::names::ResourceName;
use crate::stats::ClientStats;

/// As [`redquorum::Redlock`](crate::Redlock), for code without a runtime. Clones share the client and its thread.
pub type Redlock = Blocking<crate::Redlock>;

/// As [`redquorum::Lock`](crate::Lock): what to lock and how, which can be kept and acquired again and again.
pub type Lock = Blocking<crate::Lock>;

/// As [`redquorum::RwLock`](crate::RwLock): what to read or write and how.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
/// let config = redlock.rw_lock("config");
/// let reader = config.read()?;
/// assert!(config.try_write().is_err_and(|error| error.is_contended()));
/// reader.release()?;
/// config.write()?.release()?;
/// # Ok(()) }
/// ```
pub type RwLock = Blocking<crate::RwLock>;

/// As [`redquorum::Guard`](crate::Guard): a lock that is held, renewed on the client's thread. Dropped, it is released in the
/// background. It has all that a [`LeaseView`] has; [`on_lost`](LeaseView::on_lost) calls on the client's thread.
pub type Guard<M = Writer> = Blocking<crate::Guard<M>>;

/// As [`redquorum::ReadGuard`](crate::ReadGuard): a lock that is read, renewed on the client's thread.
pub type ReadGuard = Blocking<crate::ReadGuard>;

/// As [`redquorum::LockAll`](crate::LockAll): several names to lock together, and how.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
/// let guard = redlock.lock_all(["account:7", "account:12"]).acquire()?;
/// println!("{:?}", guard.fencing_tokens());
/// guard.release()?;
/// # Ok(()) }
/// ```
pub type LockAll = Blocking<crate::LockAll>;

/// As [`redquorum::AllGuard`](crate::AllGuard): several locks that are held together. Dropped, they are released in the background. It
/// has all that [`AllLeases`] have.
pub type AllGuard = Blocking<crate::AllGuard>;

/// As [`redquorum::Semaphore`](crate::Semaphore): at most so many may work at a time.
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
pub type Semaphore = Blocking<crate::Semaphore>;

/// As [`redquorum::Permit`](crate::Permit): one of the permits of a semaphore. Dropped, it is released in the background. It has all
/// that a [`Guard`] has.
pub type Permit = crate::Permit<Guard>;

/// As [`redquorum::Election`](crate::Election): one of several candidates leads.
///
/// ```
/// # use redquorum::testing::Cluster;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cluster = Cluster::new(3);
/// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
/// let election = redlock.election("scheduler");
/// let leadership = election.campaign("10.0.0.7:8080")?;
/// assert_eq!(election.leader()?.map(|leader| leader.token), Some(leadership.fencing_token()));
/// leadership.resign()?;
/// # Ok(()) }
/// ```
pub type Election = Blocking<crate::Election>;

/// As [`redquorum::Leadership`](crate::Leadership): the lead. Dropped, it resigns in the background. It has all that a [`Guard`] has.
pub type Leadership = crate::Leadership<Guard>;

/// As [`redquorum::Observer`](crate::Observer): sees one leader after the other, as an iterator.
pub type Observer = Blocking<crate::Observer>;

/// Methods that do what their twins do. Each says how it gets its result: it `waits` on this thread, waits for a `guard`, does so as the
/// last use (`ends`), `makes` something for the same client, or answers at once (`says`).
macro_rules! twins {
    (impl $twin:ident, $of:ty, [$($generic:tt)*] {
        $($how:ident fn $name:ident($($arg:ident: $given:ty),*) $(-> $output:ty)?;)*
    }) => {
        impl $($generic)* $of {
            $(twins! { $how
                #[doc = concat!("See [`", stringify!($twin::$name), "`](crate::", stringify!($twin::$name), ").")]
                $name($($arg: $given),*) $(-> $output)?
            })*
        }
    };
    (waits #[$doc:meta] $name:ident($($arg:ident: $given:ty),*) -> $output:ty) => {
        #[$doc]
        pub fn $name(&self, $($arg: $given),*) -> $output { self.wait(self.inner.$name($($arg),*)) }
    };
    (guard #[$doc:meta] $name:ident($($arg:ident: $given:ty),*) -> $output:ty) => {
        #[$doc]
        pub fn $name(&self, $($arg: $given),*) -> $output { self.acquired(self.inner.$name($($arg),*)) }
    };
    (ends #[$doc:meta] $name:ident($($arg:ident: $given:ty),*) -> $output:ty) => {
        #[$doc]
        pub fn $name(self, $($arg: $given),*) -> $output { self.running.wait(self.inner.$name($($arg),*)) }
    };
    (makes #[$doc:meta] $name:ident($($arg:ident: $given:ty),*) -> $output:ty) => {
        #[$doc]
        pub fn $name(&self, $($arg: $given),*) -> $output { self.with(self.inner.$name($($arg),*)) }
    };
    (says #[$doc:meta] $name:ident($($arg:ident: $given:ty),*) $(-> $output:ty)?) => {
        #[$doc]
        pub fn $name(&self, $($arg: $given),*) $(-> $output)? { self.inner.$name($($arg),*) }
    };
}

twins! { impl Redlock, Redlock, [] {
    makes fn namespace(namespace: impl AsRef<[u8]>) -> Self;
    makes fn lock(name: impl Into<ResourceName>) -> Lock;
    makes fn rw_lock(name: impl Into<ResourceName>) -> RwLock;
    makes fn lock_all(names: impl IntoIterator<Item: Into<ResourceName>>) -> LockAll;
    makes fn semaphore(name: impl Into<ResourceName>, permits: u32) -> Semaphore;
    makes fn election(name: impl Into<ResourceName>) -> Election;
    guard fn attach(lease: &DetachedLease) -> Result<Guard, ExtendError>;
    says fn client_id() -> String;
    says fn want_locks();
    says fn instances() -> Vec<InstanceStatus>;
    says fn stats() -> ClientStats;
    waits fn wait_connected(limit: Duration) -> Result<(), ConnectError>;
    waits fn shutdown(limit: Duration) -> Result<Vec<Unreleased>, ShutdownError>;
    waits fn shutdown_gracefully(patience: Duration, limit: Duration) -> Result<Vec<Unreleased>, ShutdownError>;
} }

impl Redlock {
    /// Checks the settings and begins to connect: see [`Builder::build`]. Fails also with [`BuildError::NoThread`].
    pub fn build(builder: Builder) -> Result<Self, BuildError> {
        Self::of(Running::start(async || builder.build()))
    }

    /// As `build`, and waits until a quorum of instances is connected: see [`Builder::connect`].
    pub fn connect(builder: Builder) -> Result<Self, StartError> {
        Self::of(Running::start(async || builder.connect().await))
    }

    fn of<E>(started: Result<(crate::Redlock, Running), E>) -> Result<Self, E> {
        started.map(|(inner, running)| Self { inner, running: Arc::new(running) })
    }
}

twins! { impl Lock, Lock, [] {
    guard fn acquire() -> Result<Guard, AcquireError>;
    guard fn try_acquire() -> Result<Guard, AcquireError>;
} }

impl Lock {
    lock_settings!(inner);

    /// Acquires the lock, waiting as `acquire` does, runs `work` on this thread while it is held, and releases it.
    ///
    /// The work is not interrupted if the lock is lost: it is given a view of its lease, which says so. If it is lost when the
    /// work has ended, what the work returned is dropped, and the loss is the error. Panics of the work
    /// come through, with the lock released in the background.
    ///
    /// ```
    /// # use redquorum::testing::Cluster;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::new(3);
    /// # let redlock = redquorum::blocking::Redlock::connect(cluster.builder())?;
    /// let token = redlock.lock("job:nightly").run(|lease| lease.fencing_token())?;
    /// println!("done under token {token}");
    /// // Work that can fail: two errors, two question marks.
    /// redlock.lock("job:nightly").run(|_lease| std::fs::metadata("/"))??;
    /// # Ok(()) }
    /// ```
    ///
    /// The compiler warns of the one that is forgotten:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # fn f(redlock: redquorum::blocking::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// redlock.lock("job:nightly").run(|_lease| std::fs::remove_file("/tmp/report"))?;
    /// # Ok(()) }
    /// ```
    ///
    /// How the release went is logged, as for [`Lock::run`](crate::Lock::run).
    pub fn run<T>(&self, work: impl FnOnce(LeaseView) -> T) -> Result<T, RunError> {
        let work = async |lease: LeaseView| until_checked(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.run(work))
    }

    /// Runs `work` as `run` does if the lock is free, and returns `None` at once if another client holds it: see
    /// [`Lock::try_run`](crate::Lock::try_run).
    pub fn try_run<T>(&self, work: impl FnOnce(LeaseView) -> T) -> Result<Option<T>, RunError> {
        let work = async |lease: LeaseView| until_checked(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.try_run(work))
    }
}

twins! { impl RwLock, RwLock, [] {
    guard fn read() -> Result<ReadGuard, AcquireError>;
    guard fn try_read() -> Result<ReadGuard, AcquireError>;
    guard fn write() -> Result<Guard, AcquireError>;
    guard fn try_write() -> Result<Guard, AcquireError>;
} }

impl RwLock {
    lock_settings!(inner);
}

twins! { impl Guard, Guard<M>, [<M: Mode>] {
    says fn lease() -> LeaseView<M>;
    waits fn extend() -> Result<Duration, ExtendError>;
    waits fn extend_to(ttl: Duration) -> Result<Duration, ExtendError>;
    ends fn release() -> Result<Released, ReleaseError>;
} }

twins! { impl Guard, Guard, [] {
    ends fn keep_for(time: Duration) -> Result<(), ExtendError>;
} }

impl<M: Mode> Guard<M> {
    /// Waits until the lock is lost, for `limit` at most; `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.wait(async { tokio::time::timeout(limit, self.lost()).await.ok() })
    }
}

impl Guard {
    /// See [`Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> DetachedLease {
        self.inner.detach()
    }
}

twins! { impl LockAll, LockAll, [] {
    guard fn acquire() -> Result<AllGuard, AcquireError>;
    guard fn try_acquire() -> Result<AllGuard, AcquireError>;
} }

impl LockAll {
    lock_settings!(inner);

    /// Acquires all, waiting as `acquire` does, runs `work` on this thread while they are held, and releases them: see
    /// [`LockAll::run`](crate::LockAll::run). The work is not interrupted if one is lost.
    pub fn run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<T, RunError> {
        let work = async |all: AllLeases| until_checked(work(all.clone()), all.is_valid(), all.lost()).await;
        self.wait(self.inner.run(work))
    }

    /// Runs `work` as `run` does if all are free, and returns `None` at once if another client holds one: see
    /// [`LockAll::try_run`](crate::LockAll::try_run).
    pub fn try_run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<Option<T>, RunError> {
        let work = async |all: AllLeases| until_checked(work(all.clone()), all.is_valid(), all.lost()).await;
        self.wait(self.inner.try_run(work))
    }
}

twins! { impl AllGuard, AllGuard, [] {
    says fn leases() -> AllLeases;
    waits fn extend() -> Result<Duration, ExtendError>;
    waits fn extend_to(ttl: Duration) -> Result<Duration, ExtendError>;
    ends fn release() -> Result<Released, ReleaseError>;
    ends fn keep_for(time: Duration) -> Result<(), ExtendError>;
} }

impl AllGuard {
    /// Waits until the first of them is lost, for `limit` at most; `None` if none was.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.wait(async { tokio::time::timeout(limit, self.lost()).await.ok() })
    }

    /// See [`AllGuard::into_guards`](crate::AllGuard::into_guards).
    #[must_use = "the locks are released when the guards are dropped"]
    pub fn into_guards(self) -> Vec<Guard> {
        let running = &self.running;
        let guards = self.inner.into_guards().into_iter();
        guards.map(|inner| Blocking { inner, running: Arc::clone(running) }).collect()
    }
}

twins! { impl Semaphore, Semaphore, [] {
    says fn permits() -> u32;
    waits fn inspect() -> Result<Vec<Inspection>, BadRequest>;
} }

impl Semaphore {
    lease_settings!(inner);

    /// See [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.permit(self.inner.acquire())
    }

    /// See [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self) -> Result<Permit, AcquireError> {
        self.permit(self.inner.try_acquire())
    }

    fn permit<E>(&self, acquired: impl Future<Output = Result<crate::Permit, E>>) -> Result<Permit, E> {
        let crate::Permit { guard, index } = self.wait(acquired)?;
        Ok(Permit { guard: self.with(guard), index })
    }
}

impl Permit {
    /// See [`Permit::release`](crate::Permit::release).
    pub fn release(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }
}

twins! { impl Election, Election, [] {
    waits fn leader() -> Result<Option<Leader>, LeaderError>;
} }

impl Election {
    lease_settings!(inner);

    /// See [`Election::campaign`](crate::Election::campaign).
    pub fn campaign(&self, info: &str) -> Result<Leadership, AcquireError> {
        let crate::Leadership { guard, info } = self.wait(self.inner.campaign(info))?;
        Ok(Leadership { guard: self.with(guard), info })
    }

    /// Leads again and again, with `work` on this thread, until that ends while it leads: see [`Election::lead`](crate::Election::lead).
    ///
    /// The work is not interrupted if the lead is lost: it is given a view of its lease, which says so, and should end then. What it returned
    /// is dropped, and it begins again with the next lead.
    pub fn lead<T>(&self, info: &str, mut work: impl FnMut(LeaseView) -> T) -> Result<T, AcquireError> {
        let work = async |lease: LeaseView| until_checked(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.lead(info, work))
    }

    /// See [`Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Result<Observer, BadRequest> {
        Ok(self.with(self.inner.observe()?))
    }
}

impl Observer {
    /// Waits for the next leader, for `limit` at most; `None` if there was none.
    #[must_use]
    pub fn next_within(&mut self, limit: Duration) -> Option<Leader> {
        self.inner.check_process().ok()?;
        self.running.wait(async { tokio::time::timeout(limit, self.inner.next()).await.ok() })
    }
}

/// Waits for one leader after the other, without end: see [`Observer::next`](crate::Observer::next). In a child of the process that built
/// the client there is none.
impl Iterator for Observer {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        self.inner.check_process().ok()?;
        Some(self.running.wait(self.inner.next()))
    }
}

impl Leadership {
    /// See [`Leadership::resign`](crate::Leadership::resign).
    pub fn resign(self) -> Result<Released, ReleaseError> {
        self.guard.release()
    }
}

/// The output of work that blocked. The loss of its lock is looked for once more before that counts as done.
async fn until_checked<T>(output: T, is_valid: bool, lost: impl Future<Output = Loss>) -> T {
    if !is_valid {
        lost.await; // so it is known to a task that waits for it beside the work
    }
    yield_now().await;
    output
}
