//! Instances inside the process, for tests of programs that use this library.
//!
//! A [`Cluster`] is N independent instances. They are servers of this process that speak the protocol
//! of Redis, and clients connect to them as to any other: connections, requests, admission and pushes are those
//! of production, only the bytes never leave the process. No port is opened and no thread is started.
//!
//! Instances can be stopped, hung, slowed down, cut off, restarted with or without their data, flushed, or made to
//! lose answers while clients use them. Time is the runtime's: under tokio's paused clock nothing waits for real,
//! and a key with a ttl of ten seconds expires when the test has slept for ten seconds.
//!
//! ```
//! use redquorum::AcquireError;
//! use redquorum::testing::{Cluster, Hang};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::new(3);
//! let redlock = cluster.builder().connect().await?;
//!
//! cluster.instance(2).hang(Hang::Stopped); // a minority
//! let guard = redlock.lock("orders:42").acquire().await?;
//! assert_eq!(cluster.instance(0).keys(), ["orders:42"]);
//! guard.release().await?;
//!
//! cluster.instance(1).stop(); // a majority
//! let refused = redlock.lock("orders:42").try_acquire().await;
//! assert!(matches!(refused, Err(AcquireError::NoQuorum { .. })));
//! # Ok(()) }
//! ```
//!
//! # Instances that may have forgotten locks
//!
//! As in production, an instance that was restarted, flushed, promoted or whose clock has stepped forward does not vote for
//! a [`max_ttl`](crate::Builder::max_ttl), 10 s by default; [`Admission::Off`](crate::Admission::Off) turns that off. Under a
//! paused clock such a time costs nothing: sleep through it. (`tokio::time::advance` moves the clock at one go, as if the
//! program had been blocked meanwhile: requests that are on their way time out.) A new cluster votes at once: it has admission
//! records from the start, which allow ttls up to the [`quarantine`](crate::Builder::quarantine) of the first client that is built.
//!
//! ```
//! use std::time::Duration;
//!
//! use redquorum::AcquireError;
//! use redquorum::testing::{Cluster, Data};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::new(5);
//! let (one, other) = (cluster.builder().connect().await?, cluster.builder().connect().await?);
//! let guard = one.lock("orders:42").acquire().await?;
//!
//! cluster.instances().take(3).for_each(|instance| instance.start(Data::Nothing)); // a majority has forgotten it
//! tokio::time::sleep(Duration::from_secs(1)).await; // until they are connected again
//! let refused = other.lock("orders:42").try_acquire().await;
//! assert!(matches!(refused, Err(AcquireError::InQuarantine { .. })));
//!
//! tokio::time::sleep(Duration::from_secs(10)).await; // as long as any lock that they forgot can have lasted
//! assert!(!guard.is_valid());
//! let _next = other.lock("orders:42").acquire().await?;
//! # Ok(()) }
//! ```

mod clock;
#[doc(hidden)]
pub mod conformance;
mod instance;
mod mirror;
mod network;
#[doc(hidden)]
pub mod simulation;
mod table_sizes;

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

/// The rules themselves, for the library's own tests. **Not covered by semantic versioning.**
#[doc(hidden)]
pub mod protocol {
    pub use crate::protocol::*;
}

pub use self::instance::{Hang, Requests, TestInstance};
pub use self::simulation::Data;
use crate::clock::{Clock, SystemClock};
use crate::config::Builder;
use crate::testing::clock::LaggingClock;
use crate::testing::instance::microseconds;
use crate::testing::simulation::MachineClock;

/// N independent instances inside the process. Cheap to clone; clones are the same instances.
#[derive(Clone)]
pub struct Cluster {
    instances: Arc<[TestInstance]>,
    clock: Arc<MachineClock>,
    /// Whether a client was built.
    begun: Arc<Once>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.instances()).finish()
    }
}

impl Cluster {
    /// `count` empty instances without faults. Their time is that of the runtime in which this is
    /// called, or the machine's outside of any.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let clock = Arc::new(MachineClock::driven_by(clock::elapsed(), SystemClock.wall_us(), 0));
        let instances = (0..count).map(|index| TestInstance::new(index, &clock)).collect();
        Self { instances, clock, begun: Arc::new(Once::new()) }
    }

    /// A builder for a client of these instances with the runtime's clock. Every client has
    /// its own connections. Settings and defaults are those of [`Builder`].
    pub fn builder(&self) -> Builder {
        self.builder_with_wall_clock_off(0)
    }

    /// As [`builder`](Self::builder), for a client that has the first `count` instances only, as while a list of instances grows.
    pub fn builder_of_first(&self, count: usize) -> Builder {
        let addresses = self.instances().take(count).map(TestInstance::to_address).collect();
        self.builder().dialed(addresses)
    }

    /// As [`builder`](Self::builder), for a client whose wall clock is behind. The wall clock only
    /// proposes fencing tokens.
    pub fn builder_with_wall_clock_behind(&self, by: Duration) -> Builder {
        self.builder_with_wall_clock_off(-microseconds(by))
    }

    /// As [`builder`](Self::builder), for a client whose wall clock is ahead.
    pub fn builder_with_wall_clock_ahead(&self, by: Duration) -> Builder {
        self.builder_with_wall_clock_off(microseconds(by))
    }

    fn builder_with_wall_clock_off(&self, by_us: i64) -> Builder {
        let addresses = self.instances().map(TestInstance::to_address).collect();
        let clock = self.clock.of_another();
        clock.step_us(by_us);
        // As if the instances had been used before: what a first lock takes longer is no matter of most tests.
        Builder::default()
            .wants_locks()
            .dialed(addresses)
            .on_build(self.allow_first_clients_ttls())
            .clock(Arc::new(clock))
    }

    /// The records of new instances allow the ttls of the first client.
    fn allow_first_clients_ttls(&self) -> Arc<dyn Fn(Duration) + Send + Sync> {
        let Self { instances, begun, .. } = self.clone();
        Arc::new(move |quarantine| begun.call_once(|| instances.iter().for_each(|instance| instance.allow(quarantine))))
    }

    /// The instance at `index`, counted from 0.
    ///
    /// # Panics
    /// If there is no such instance.
    #[must_use]
    pub fn instance(&self, index: usize) -> &TestInstance {
        &self.instances[index]
    }

    /// All instances in order.
    pub fn instances(&self) -> impl Iterator<Item = &TestInstance> {
        self.instances.iter()
    }

    /// The keys of all locks that any instance has now, sorted, each once. Empty if nothing is held
    /// and nothing was left behind.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.instances().flat_map(TestInstance::keys).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// How many requests the instances have carried out together.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.instances().fold(Requests::default(), |sum, instance| sum + instance.requests())
    }
}

/// The machine on which a client runs, as far as its clock is concerned.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Machine(Arc<LaggingClock>);

impl Machine {
    /// A builder for a client that runs on it.
    pub fn builder(&self) -> Builder {
        Builder::default().clock(Arc::clone(&self.0) as Arc<dyn Clock>)
    }

    /// Its clock does not count so much of the time that has passed, as if the machine had been paused.
    pub fn stand_still(&self, by: Duration) {
        self.0.stand_still(by);
    }
}
