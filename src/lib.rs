//! A distributed lock over N independent Redis or Valkey masters.
//!
//! A lock is held while a quorum of the instances stores its key (Redlock). It stays available while a
//! minority is down, hung or restarted. It is renewed until it is released, and its holder is notified
//! when it is lost. Each holder gets a larger fencing token than the one before; the storage that the
//! lock protects compares them.
//!
//! # Quick start
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use redquorum::Redlock;
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::builder()
//!     .instances(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
//!     .max_hold(Duration::from_secs(600)) // without it a task that is stuck keeps its lock for ever
//!     .connect()
//!     .await?;
//!
//! let guard = redlock.lock("orders:42").acquire().await?; // waits until it is free
//! println!("valid for {:?}, token {}", guard.remaining(), guard.fencing_token());
//! // It is renewed in the background for as long as the guard lives, but for max_hold at most.
//! guard.release().await?; // dropping the guard releases in the background
//!
//! match redlock.lock("orders:42").try_acquire().await {
//!     Ok(guard) => drop(guard),
//!     Err(error) => match error.held_by() {
//!         Some(held_by) => println!("contended: {held_by}"),
//!         None => println!("the instances are the problem: {error}"),
//!     },
//! }
//! # Ok(()) }
//! ```
//!
//! Work that must stop when its lock is lost:
//!
//! ```no_run
//! # async fn report(_token: i64) -> Result<u32, std::io::Error> { Ok(1) }
//! # async fn f(redlock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
//! use redquorum::RunError;
//!
//! let job = redlock.lock("job:nightly");
//! match job.run(async |lease| report(lease.fencing_token().as_i64()).await).await {
//!     Ok(rows) => println!("{} rows", rows?), // what the work gave; the lock is released
//!     Err(RunError::Lost(loss)) => println!("dropped where it waited: {loss}"),
//!     Err(RunError::Acquire(error)) => println!("not begun: {error}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(()) }
//! ```
//!
//! [`Redlock::semaphore`] lets several work at a time, [`Redlock::election`] elects a leader that others can find, and [`Redlock::lock_all`]
//! takes several locks together.
//!
//! [`LeaseView::lost`] waits for the loss without dropping anything. [`Lock::renew`] and
//! [`Lock::max_hold`] bound the renewal. [`Lock::holder`] allows re-entry in one client. [`Redlock::rw_lock`] makes locks that many read
//! and one writes.
//!
//! With the feature `config` the instances and all other settings may come from a TOML file and from variables:
//! `Redlock::from_env()?.connect().await?`.
//!
//! Instances that were just started do not vote for `max_ttl`, 10 s by default; the first acquire
//! on new servers waits for that. The feature `testing` adds `redquorum::testing`: instances inside the
//! process, for tests.
//!
//! The [guides](guide) explain more: [recipes](guide::recipes), [fencing](guide::fencing), [tests of your
//! own](guide::testing), [operations](guide::operations), and [what is guaranteed](guide::safety).
//!
//! # What stops renewal
//!
//! Renewal and all other background work run as tasks of the runtime in which the client was built. Work
//! that computes or blocks on a thread of that runtime keeps them from running: on a current-thread runtime always, on others
//! when all threads are busy. Run such work on its own thread:
//!
//! ```
//! # use redquorum::testing::Cluster;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cluster = Cluster::new(3);
//! # let redlock = cluster.builder().connect().await?;
//! let sum = redlock.lock("report").run(async |_lease| {
//!     tokio::task::spawn_blocking(|| (0..1_000_000_u64).sum::<u64>()).await
//! });
//! assert_eq!(sum.await??, 499_999_500_000);
//! # Ok(()) }
//! ```
//!
//! # Where its futures are polled
//!
//! In the runtime of the client, in another tokio runtime, or by any executor on a plain thread: all futures of this crate work in all of
//! them. The work is that of the client's runtime, which must run meanwhile: a current-thread runtime does only while it is blocked on.
//! Timers are those of the tokio runtime in which a future is polled, which needs `enable_time`; on a plain thread those of the client's
//! runtime. So in another runtime limits hold ([`Lock::wait_at_most`], [`LeaseView::lost`]) also while that of the client does not run:
//! `wait_at_most` and `try_acquire` then fail as `stalled` ([`AcquireError::kind`]), three instance timeouts late at most.
//!
//! A program without a runtime uses `redquorum::blocking` (feature `blocking`), whose client has a thread of its own.
//!
//! # What it guarantees
//!
//! - While a guard is valid, no other client gets the lock, within the limits below.
//!   Validity is counted from before the first request, less what clocks may differ ([`LeaseView::remaining`]).
//! - Acquire, extend and release are decided at the quorum-th reply: no instance that is slow, hung
//!   or dead delays them as long as a quorum answers.
//! - An instance that may have forgotten locks (restarted, flushed, promoted, its clock stepped)
//!   grants nothing new until every lock that it may have forgotten has expired ([`Admission::On`]).
//!   It keeps the locks that the same process still has.
//! - Keys that an unfinished acquire may have set are deleted, also if its future was dropped: at once
//!   on reachable instances, on reconnect elsewhere, by the ttl at the latest.
//! - A failed extend deletes nothing. A release deletes its own keys only. A lease that is over
//!   never becomes valid again.
//! - A lease is renewed until its guards are released or dropped, never after ([`Renewal`]).
//! - [`LeaseView::lost`] resolves when validity ends on the local clock, or when so many instances report
//!   the key missing that no quorum can still hold it. The latter takes a few round trips where
//!   instances push changes, and until the next renewal elsewhere ([`Loss`]).
//! - A holder with an identity may re-enter its own lock, in one client only ([`Holder`]).
//! - Every later holder gets a larger token ([`FencingToken`]).
//!
//! # What it does not guarantee
//!
//! - That a holder is still valid when it writes: a pause may lie between check and write. Only the
//!   storage can refuse that, by the fencing token ([`LeaseView::fencing_token`]).
//! - Anything beyond the clock assumptions: rates that differ by more than
//!   [`drift_ppm`](Builder::drift_ppm), or a majority of instances whose clocks step forward
//!   together within one lease.
//! - Anything if an operator asserts that no lock was held on new instances, and one was
//!   ([`AdmissionRecords::open`](operator::AdmissionRecords::open)).
//! - Anything if one address leads to two processes, unless the [quorum](Builder::quorum) allows
//!   for it.
//! - That work stops when its lock is lost: [`Lock::run`] drops it where it waits; code that never
//!   waits continues.
//! - Exclusion after an operator took a lock away, or attached a lease twice: the former holder notices that
//!   within a few round trips, or at its next renewal. Until then the fencing token decides.
//! - Order between clients: they are served in the order in which they came, if messages arrive and no other client is faster.
//!   After a crash, or without the right to publish, waiters try again after random pauses.

#![warn(clippy::missing_errors_doc)]

mod admission;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
mod config;
mod detached;
mod election;
mod error;
mod guard;
pub mod guide;
mod holder;
mod inspection;
mod instance;
mod lease;
mod listing;
mod lock;
mod lock_all;
mod log_limit;
mod names;
pub mod operator;
mod process;
#[cfg_attr(
    not(feature = "testing"),
    expect(
        dead_code,
        unused_imports,
        unreachable_pub,
        reason = "tests reach the rules, and a few items of their own, by that feature"
    )
)]
mod protocol;
mod random;
#[cfg(feature = "metrics")]
mod recording;
mod resource;
mod run;
mod runtime;
mod rw_lock;
mod semaphore;
#[cfg(feature = "serde")]
mod serialized;
mod span;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;
mod token;

pub use client::Redlock;
pub use config::{Admission, Builder, Instance, Renewal, StartError};
#[cfg(feature = "config")]
pub use config::{Config, ConfigError};
pub use detached::DetachedLease;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{
    AcquireError, BadRequest, BuildError, ConnectError, ExtendError, FinalReason, HeldBy, InstanceAnswer,
    InstanceReport, LeaderError, Loss, PassingReason, ReleaseError, RunError, ShutdownError, Unanswered, Unreleased,
};
pub use guard::{Guard, ReadGuard, Released};
pub use holder::Holder;
pub use inspection::{ForcedRelease, FoundHolder, Inspection};
pub use instance::redis::{Credentials, Tls};
pub use instance::{AdmissionStatus, Cause, InstanceCounts, InstanceStatus, ReplyKind, Trouble};
pub use lease::{LeaseView, Reader, Redundancy, Writer};
pub use lock::Lock;
pub use lock_all::{AllGuard, AllLeases, LockAll};
pub use names::ResourceName;
pub use protocol::{CurrentHolder, FencingToken, HolderKind, NotAToken, QuorumError, TtlError};
pub use resource::ResourceError;
pub use rw_lock::RwLock;
pub use semaphore::{Permit, Semaphore};
pub use stats::ClientStats;

/// Its examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of `run` that cause a compiler warning compile without it, so only the warning makes them fail.
///
/// ```no_run
/// #![warn(unused_must_use)]
/// # async fn charge() -> std::io::Result<u32> { Ok(42) }
/// # async fn f(redlock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// redlock.lock("order:42").run(async |_lease| charge().await).await?; // an error of `charge` would vanish
/// # Ok(()) }
/// ```
///
/// ```no_run
/// #![warn(unused_must_use)]
/// # fn f(redlock: redquorum::blocking::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// redlock.lock("job:nightly").run(|_lease| std::fs::remove_file("/tmp/report"))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(redlock: redquorum::blocking::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// redlock.lock("job:nightly").run(|_lease| std::fs::remove_file("/tmp/report"))?;
/// # Ok(()) }
/// ```
///
/// Work without an error of its own is no warning, and neither are two question marks:
///
/// ```no_run
/// #![deny(unused_must_use)]
/// # async fn f(redlock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// redlock.lock("order:42").run(async |_lease| println!("charged")).await?;
/// redlock.lock("order:42").try_run(async |_lease| println!("charged")).await?;
/// redlock.lock("order:42").run(async |_lease| std::fs::remove_file("/tmp/report")).await??;
/// redlock.lock("order:42").try_run(async |_lease| std::fs::remove_file("/tmp/report")).await?.transpose()?;
/// # Ok(()) }
/// ```
#[cfg(all(doctest, feature = "blocking"))]
struct ForgottenErrors;
