//! Instances inside the process, for tests of programs that use this library.
//!
//! A [`Cluster`] stands for N independent instances. They answer as a Redis server would, need no
//! server, and can be stopped, hung, slowed down, flushed or made to lose answers while clients use
//! them. Time is the runtime's: under tokio's paused clock nothing waits for real, and a key with a
//! ttl of ten seconds expires when the test has moved the clock by ten seconds.
//!
//! ```
//! use redquorum::AcquireError;
//! use redquorum::testing::{Cluster, Hang};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::new(3);
//! let redlock = cluster.builder().build()?;
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

#[doc(hidden)]
pub mod conformance;
#[doc(hidden)]
pub mod simulation;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{LaggingClock, RuntimeClock};
use crate::config::Builder;
use crate::instance::Instance;
pub use crate::instance::memory::{Hang, Requests};
use crate::instance::memory::{MemoryInstance, Server};
use crate::protocol::{Cause, FencingToken};
use crate::resource::{RESERVED, fence_key};

/// N independent instances inside the process. Cheap to clone; clones are the same instances.
#[derive(Clone)]
pub struct Cluster {
    instances: Arc<[TestInstance]>,
    clock: Arc<RuntimeClock>,
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
        let clock = Arc::new(RuntimeClock::start());
        let instance =
            |index: usize| TestInstance(Arc::new(Server::new(format!("memory:{index}"), Arc::clone(&clock))));
        Self { instances: (0..count).map(instance).collect(), clock }
    }

    /// A builder for a client of these instances that goes by the runtime's clock. Every client has
    /// its own connections. Settings and defaults are those of [`Builder`].
    pub fn builder(&self) -> Builder {
        self.builder_with_wall_clock_off(Duration::ZERO, Duration::ZERO)
    }

    /// As [`builder`](Self::builder), for a client whose wall clock is behind. The wall clock only
    /// proposes fencing tokens.
    pub fn builder_with_wall_clock_behind(&self, by: Duration) -> Builder {
        self.builder_with_wall_clock_off(Duration::ZERO, by)
    }

    /// As [`builder`](Self::builder), for a client whose wall clock is ahead.
    pub fn builder_with_wall_clock_ahead(&self, by: Duration) -> Builder {
        self.builder_with_wall_clock_off(by, Duration::ZERO)
    }

    fn builder_with_wall_clock_off(&self, ahead: Duration, behind: Duration) -> Builder {
        let connect = |instance: &TestInstance| {
            let server = Arc::clone(&instance.0);
            Arc::new(move |timeout| {
                Arc::new(MemoryInstance::connect(Arc::clone(&server), timeout)) as Arc<dyn Instance>
            }) as Arc<dyn Fn(Duration) -> Arc<dyn Instance> + Send + Sync>
        };
        let clock = Arc::new(self.clock.with_wall_clock_off(ahead, behind));
        Builder::default().instance_factories(self.instances.iter().map(connect).collect(), clock)
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

    /// How many requests reached the instances together.
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
        Builder::default().instance_factories(Vec::new(), Arc::clone(&self.0) as Arc<dyn crate::clock::Clock>)
    }

    /// Its clock does not count so much of the time that has passed, as if the machine had been paused.
    pub fn stand_still(&self, by: Duration) {
        self.0.stand_still(by);
    }
}

/// One in-process instance: faults to set, and its data. Cheap to clone.
///
/// Setting a fault ends every client's belief that the instance is silent, as a new connection
/// would.
#[derive(Clone)]
pub struct TestInstance(Arc<Server>);

impl fmt::Debug for TestInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestInstance")
            .field("address", &self.0.address())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

/// Faults.
impl TestInstance {
    /// Stops the process. Requests on their way are dropped; new ones are not sent. The data stays
    /// for [`start`](Self::start); what expires meanwhile is gone.
    pub fn stop(&self) {
        self.0.change(|faults| faults.stopped = true);
    }

    /// Starts the process with the data that it had.
    pub fn start(&self) {
        self.0.change(|faults| faults.stopped = false);
    }

    /// Starts the process without any data, stopping it first if it runs.
    pub fn start_empty(&self) {
        self.stop();
        self.flush();
        self.start();
    }

    /// Deletes all data, as FLUSHALL does.
    pub fn flush(&self) {
        self.0.with_store(|store, _| store.flush());
    }

    /// Hangs until [`resume`](Self::resume).
    pub fn hang(&self, how: Hang) {
        self.0.change(|faults| faults.hang = Some(how));
    }

    /// Takes `before` until a request is carried out and `after` from then until it is answered.
    /// Default: zero. The order of requests is kept; with a `before` above the instance timeout
    /// they are carried out after the client has given up.
    pub fn slow_down(&self, before: Duration, after: Duration) {
        self.0.change(|faults| faults.delays = (before, after));
    }

    /// Carries out the next `count` requests, but breaks the connection instead of answering.
    pub fn lose_replies(&self, count: usize) {
        self.0.change(|faults| faults.lost_replies = count);
    }

    /// Carries out nothing and answers with `cause`.
    pub fn refuse(&self, cause: Cause) {
        self.0.change(|faults| faults.refusal = Some(cause.clone()));
    }

    /// Carries out no acquire and answers each that it has stored `token`, which is not so.
    pub fn claim_token(&self, token: FencingToken) {
        self.0.change(|faults| faults.lies = Some(token));
    }

    /// Breaks all connections once. What was on its way over them to a slow instance is carried out
    /// after `late`, possibly behind newer requests; what [`Hang::Stopped`] holds back stays so.
    pub fn break_connections(&self, late: Duration) {
        self.0.break_connections(late);
    }

    /// Ends every fault but [`stop`](Self::stop).
    pub fn resume(&self) {
        self.0.change(|faults| {
            let stopped = faults.stopped;
            *faults = Default::default();
            faults.stopped = stopped;
        });
    }
}

/// Data.
impl TestInstance {
    /// How the instance is called in errors.
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// What its wall clock reads, in microseconds since the Unix epoch.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.0.wall_us()
    }

    /// How many requests have reached the instance.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.0.requests()
    }

    /// The keys of all locks and of everything else but the library's own, sorted. Bytes that are
    /// no text are replaced.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.0.with_store(|store, _| {
            let keys = store.keys().filter(|key| !key.starts_with(RESERVED));
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
        })
    }

    /// The value of a key, if it is there and a string.
    #[must_use]
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.0.with_store(|store, _| store.get(key.as_ref()).map(<[u8]>::to_vec))
    }

    /// How long a key will still live, in whole milliseconds; `None` if it is missing or never
    /// expires.
    #[must_use]
    pub fn expires_in(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.0.with_store(|store, now| store.ttl(key.as_ref(), now))
    }

    /// The fencing token that the instance has stored for the lock with this key.
    #[must_use]
    pub fn fencing_token(&self, key: impl AsRef<[u8]>) -> Option<FencingToken> {
        let fence = fence_key(key.as_ref());
        self.0.with_store(|store, _| store.get(&fence).and_then(FencingToken::from_wire))
    }

    /// Sets a key as a client of another library would, with `SET key value NX PX ttl`; gives
    /// whether it was free.
    pub fn set_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> bool {
        self.0.with_store(|store, now| store.set_if_absent(key.as_ref(), value.as_ref(), Some(now.saturating_add(ttl))))
    }

    /// Sets a key that never expires, whatever was there.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.with_store(|store, _| store.set(key.as_ref(), value.as_ref(), None));
    }

    /// Makes a key that is no string, as a list or a hash is.
    pub fn set_other_type(&self, key: impl AsRef<[u8]>) {
        self.0.with_store(|store, _| store.set_other_type(key.as_ref()));
    }

    /// Deletes a key; gives whether it was there.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.0.with_store(|store, _| store.remove(key.as_ref()))
    }
}
