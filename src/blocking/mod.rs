//! The same locks for code that does not run on tokio, with the same words.
//!
//! A client has its own thread for all that must not wait for callers: connections, renewals,
//! notices of losses, releases. So a lease is renewed while its holder computes or blocks. Every call that sends a request
//! blocks the calling thread until the answer is there; do not call it in async code, where it
//! blocks everything else on that thread.
//!
//! ```
//! # use redquorum::testing::Cluster;
//! use std::time::Duration;
//! use redquorum::blocking;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cluster = Cluster::new(3);
//! # let builder = cluster.builder();
//! // let builder = redquorum::Redlock::builder().instances(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
//! let redlock = blocking::Redlock::connect(builder)?;
//! let guard = redlock.lock("orders:42").wait_at_most(Duration::from_secs(5)).acquire()?;
//! println!("token {}", guard.fencing_token()); // .. the work; the lease is renewed meanwhile ..
//! guard.release()?;
//! redlock.shutdown(Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! A thread cannot be interrupted: work continues when its lock is lost. Look at [`is_valid`](crate::LeaseView::is_valid) before each step that
//! cannot be taken back, or give the fencing token to the storage.

mod client;
mod election;
mod guard;
mod lock;
mod lock_all;
mod rw_lock;
mod semaphore;
mod thread;

pub use client::Redlock;
pub use election::{Election, Leadership, Observer};
pub use guard::Guard;
pub use lock::Lock;
pub use lock_all::{AllGuard, LockAll};
pub use rw_lock::{ReadGuard, RwLock};
pub use semaphore::{Permit, Semaphore};
