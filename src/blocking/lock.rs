//! A lock that a thread is about to acquire.

use std::time::Duration;

use tokio::task::yield_now;

use super::{Blocking, Guard};
use crate::config::Renewal;
use crate::error::{AcquireError, Loss, RunError};
use crate::holder::Holder;
use crate::lease::LeaseView;
use crate::lock::lock_settings;

/// As [`redquorum::Lock`](crate::Lock): what to lock and how, which can be kept and acquired again and again.
pub type Lock = Blocking<crate::Lock>;

impl Lock {
    lock_settings!(inner);

    /// Waits until the lock is acquired: see [`Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquired(self.inner.acquire())
    }

    /// Tries once: see [`Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Guard, AcquireError> {
        self.acquired(self.inner.try_acquire())
    }

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
        let work = async |lease: LeaseView| seen_to_its_end(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.run(work))
    }

    /// Runs `work` as `run` does if the lock is free, and returns `None` at once if another client holds it: see
    /// [`Lock::try_run`](crate::Lock::try_run).
    pub fn try_run<T>(&self, work: impl FnOnce(LeaseView) -> T) -> Result<Option<T>, RunError> {
        let work = async |lease: LeaseView| seen_to_its_end(work(lease.clone()), lease.is_valid(), lease.lost()).await;
        self.wait(self.inner.try_run(work))
    }
}

/// What work that blocked gave. Its lock's loss is looked for once more before that counts as done.
pub(super) async fn seen_to_its_end<T>(output: T, is_valid: bool, lost: impl Future<Output = Loss>) -> T {
    if !is_valid {
        lost.await; // so it is known to a task that waits for it beside the work
    }
    yield_now().await;
    output
}
