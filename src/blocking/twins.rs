//! The blocking types: what each has of its asynchronous twin.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;

use super::{Blocking, Client};
use crate::lease::Mode;
use crate::lock::{lease_settings, lock_settings};
use crate::{
    AcquireError, AllLeases, BadRequest, BuildError, Builder, ClientStats, ConnectError, DetachedLease, ExtendError,
    Holder, Inspection, InstanceStatus, Leader, LeaderError, LeaseView, Loss, ReleaseError, Released, Renewal,
    ResourceName, RunError, ShutdownError, StartError, Unreleased, Writer,
};

/// Types under the names of their twins.
macro_rules! types {
    ($($twin:ident)*) => { $(
        #[doc = concat!("As [`redquorum::", stringify!($twin), "`](crate::", stringify!($twin), ").")]
        pub type $twin = Blocking<crate::$twin>;
    )* };
}

types! { Redlock Lock RwLock ReadGuard LockAll AllGuard Semaphore Election Observer }

/// As [`redquorum::Guard`](crate::Guard), with all that a [`LeaseView`] has.
pub type Guard<M = Writer> = Blocking<crate::Guard<M>>;
/// As [`redquorum::Permit`](crate::Permit), with all that a [`Guard`] has.
pub type Permit = crate::Permit<Guard>;
/// As [`redquorum::Leadership`](crate::Leadership), with all that a [`Guard`] has.
pub type Leadership = crate::Leadership<Guard>;

/// Methods that do what their twins do. The word behind `=` says how: a method `waits` on this thread, waits for a `guard`, a `permit` or the
/// `lead`, or while `work` runs on this thread; it `ends` a guard, makes something of the same `client`, or answers `at_once`.
macro_rules! twins {
    (impl$(<$mode:ident: Mode>)? $twin:ident$(<$of:ident>)? $(has $settings:ident)? {
        $(fn $name:ident$(<$t:ident>)?($($given:tt)*) $(-> $result:ty)? = $how:ident;)*
    }) => {
        impl$(<$mode: Mode>)? $twin$(<$of>)? {
            $($settings!(inner);)?
            $(twins! { $how
                #[doc = concat!("See [`", stringify!($twin::$name), "`](crate::", stringify!($twin::$name), ").", twins!(@but $how))]
                fn $name$(<$t>)?($($given)*) $(-> $result)?
            })*
        }
    };
    ($how:ident $(#[$doc:meta])* fn $name:ident$(<$t:ident>)?(&self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?) => {
        $(#[$doc])*
        pub fn $name$(<$t>)?(&self, $($arg: $of),*) $(-> $result)? { twins!(@$how self.$name($($arg),*)) }
    };
    ($how:ident $(#[$doc:meta])* fn $name:ident(self $(, $arg:ident: $of:ty)*) -> $result:ty) => {
        $(#[$doc])*
        pub fn $name(self, $($arg: $of),*) -> $result { twins!(@$how self.$name($($arg),*)) }
    };
    (@but work) => {
        " But the work is not interrupted: if the lock was lost when it ends, what it returned is dropped, and \
          [`RunError::Lost`](crate::RunError::Lost) says so."
    };
    (@but $how:ident) => { "" };
    (@at_once $it:ident.$name:ident$args:tt) => { $it.inner.$name$args };
    (@client $it:ident.$name:ident$args:tt) => { $it.with($it.inner.$name$args) };
    (@waits $it:ident.$name:ident$args:tt) => { $it.client.wait($it.inner.$name$args) };
    (@guard $it:ident.$name:ident$args:tt) => { $it.client.wait($it.inner.$name$args).map(|guard| $it.with(guard)) };
    (@permit $it:ident.$name:ident$args:tt) => {
        $it.client.wait($it.inner.$name$args).map(|of| Permit { guard: $it.with(of.guard), index: of.index })
    };
    (@lead $it:ident.$name:ident$args:tt) => {
        $it.client.wait($it.inner.$name$args).map(|of| Leadership { guard: $it.with(of.guard), info: of.info })
    };
    (@ends $it:ident.$name:ident()) => { $it.guard.release() };
    (@work $it:ident.$name:ident($work:ident)) => { $it.client.wait($it.inner.$name(on_this_thread!($work))) };
}

/// Work of a thread as a future. The loss of its lock is looked for once more before it counts as done.
macro_rules! on_this_thread {
    ($work:ident) => {
        async |lease| {
            let output = $work(lease.clone());
            if !lease.is_valid() {
                lease.lost().await; // so it is known to a task that waits for it beside the work
            }
            yield_now().await;
            output
        }
    };
}

twins! { impl Redlock {
    fn namespace(&self, namespace: impl AsRef<[u8]>) -> Redlock = client;
    fn lock(&self, name: impl Into<ResourceName>) -> Lock = client;
    fn rw_lock(&self, name: impl Into<ResourceName>) -> RwLock = client;
    fn lock_all(&self, names: impl IntoIterator<Item: Into<ResourceName>>) -> LockAll = client;
    fn semaphore(&self, name: impl Into<ResourceName>, permits: u32) -> Semaphore = client;
    fn election(&self, name: impl Into<ResourceName>) -> Election = client;
    fn attach(&self, lease: &DetachedLease) -> Result<Guard, ExtendError> = guard;
    fn client_id(&self) -> String = at_once;
    fn want_locks(&self) = at_once;
    fn instances(&self) -> Vec<InstanceStatus> = at_once;
    fn stats(&self) -> ClientStats = at_once;
    fn wait_connected(&self, limit: Duration) -> Result<(), ConnectError> = waits;
    fn shutdown(&self, limit: Duration) -> Result<Vec<Unreleased>, ShutdownError> = waits;
    fn shutdown_gracefully(&self, patience: Duration, limit: Duration) -> Result<Vec<Unreleased>, ShutdownError> = waits;
} }
twins! { impl Lock has lock_settings {
    fn acquire(&self) -> Result<Guard, AcquireError> = guard;
    fn try_acquire(&self) -> Result<Guard, AcquireError> = guard;
    fn run<T>(&self, work: impl FnOnce(LeaseView) -> T) -> Result<T, RunError> = work;
    fn try_run<T>(&self, work: impl FnOnce(LeaseView) -> T) -> Result<Option<T>, RunError> = work;
} }
impl Lock {
    /// See [`Lock::at_least`](crate::Lock::at_least). Work that has lost its lock goes on here, and leaves no mark either.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.inner = self.inner.at_least(time);
        self
    }
}
twins! { impl RwLock has lock_settings {
    fn read(&self) -> Result<ReadGuard, AcquireError> = guard;
    fn try_read(&self) -> Result<ReadGuard, AcquireError> = guard;
    fn write(&self) -> Result<Guard, AcquireError> = guard;
    fn try_write(&self) -> Result<Guard, AcquireError> = guard;
} }
twins! { impl LockAll has lock_settings {
    fn acquire(&self) -> Result<AllGuard, AcquireError> = guard;
    fn try_acquire(&self) -> Result<AllGuard, AcquireError> = guard;
    fn run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<T, RunError> = work;
    fn try_run<T>(&self, work: impl FnOnce(AllLeases) -> T) -> Result<Option<T>, RunError> = work;
} }
twins! { impl Semaphore has lease_settings {
    fn permits(&self) -> u32 = at_once;
    fn acquire(&self) -> Result<Permit, AcquireError> = permit;
    fn try_acquire(&self) -> Result<Permit, AcquireError> = permit;
    fn inspect(&self) -> Result<Vec<Inspection>, BadRequest> = waits;
} }
twins! { impl Election has lease_settings {
    fn campaign(&self, info: &str) -> Result<Leadership, AcquireError> = lead;
    fn leader(&self) -> Result<Option<Leader>, LeaderError> = waits;
} }
twins! { impl Permit {
    fn release(self) -> Result<Released, ReleaseError> = ends;
} }
twins! { impl Leadership {
    fn resign(self) -> Result<Released, ReleaseError> = ends;
} }
twins! { impl<M: Mode> Guard<M> {
    fn lease(&self) -> LeaseView<M> = at_once;
    fn extend(&self) -> Result<Duration, ExtendError> = waits;
    fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> = waits;
    fn release(self) -> Result<Released, ReleaseError> = waits;
} }
twins! { impl Guard {
    fn keep_for(self, time: Duration) -> Result<(), ExtendError> = waits;
    fn detach(self) -> DetachedLease = at_once;
} }
twins! { impl AllGuard {
    fn leases(&self) -> AllLeases = at_once;
    fn extend(&self) -> Result<Duration, ExtendError> = waits;
    fn extend_to(&self, ttl: Duration) -> Result<Duration, ExtendError> = waits;
    fn keep_for(self, time: Duration) -> Result<(), ExtendError> = waits;
    fn release(self) -> Result<Released, ReleaseError> = waits;
} }

impl Redlock {
    /// As [`Builder::build`]. Fails also with [`BuildError::NoThread`].
    pub fn build(builder: Builder) -> Result<Self, BuildError> {
        Client::start(async { builder.build() })
    }

    /// As [`Builder::connect`]: waits until a quorum is connected. Fails also with [`BuildError::NoThread`].
    pub fn connect(builder: Builder) -> Result<Self, StartError> {
        Client::start(builder.connect())
    }
}

impl<M: Mode> Guard<M> {
    /// Waits until the lock is lost, for `limit` at most; `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.client.wait(async { timeout(limit, self.lost()).await.ok() })
    }
}

impl AllGuard {
    /// Waits until the first of them is lost, for `limit` at most; `None` if none was.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        self.client.wait(async { timeout(limit, self.lost()).await.ok() })
    }

    /// See [`AllGuard::into_guards`](crate::AllGuard::into_guards).
    #[must_use = "the locks are released when the guards are dropped"]
    pub fn into_guards(self) -> Vec<Guard> {
        let Self { inner, client } = self;
        inner.into_guards().into_iter().map(|inner| Blocking { inner, client: client.clone() }).collect()
    }
}

impl Election {
    /// Leads again and again, with `work` on this thread, until that ends while it leads: see [`Election::lead`](crate::Election::lead).
    /// Work should end once its lease is lost; what it returned is dropped then, and it begins again with the next lead.
    pub fn lead<T>(&self, info: &str, mut work: impl FnMut(LeaseView) -> T) -> Result<T, AcquireError> {
        self.client.wait(self.inner.lead(info, on_this_thread!(work)))
    }

    /// See [`Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Result<Observer, BadRequest> {
        self.inner.observe().map(|observer| self.with(observer))
    }
}

impl Observer {
    /// Waits for the next leader, for `limit` at most; `None` if there was none.
    #[must_use]
    pub fn next_within(&mut self, limit: Duration) -> Option<Leader> {
        self.inner.shared.check_process().ok()?;
        self.client.wait(async { timeout(limit, self.inner.next()).await.ok() })
    }
}

/// Waits for one leader after the other, without end: see [`Observer::next`](crate::Observer::next). In a child of the process that built
/// the client there is none.
impl Iterator for Observer {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        self.inner.shared.check_process().ok()?;
        Some(self.client.wait(self.inner.next()))
    }
}
