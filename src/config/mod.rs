//! How a client is set up, and which settings go together.

#[cfg(feature = "config")]
mod access;
#[cfg(feature = "config")]
mod address;
mod build;
mod check;
#[cfg(feature = "config")]
mod duration;
mod instance;
#[cfg(feature = "config")]
mod sources;
#[cfg(feature = "config")]
mod value;

use std::sync::Arc;
use std::time::Duration;

pub use build::StartError;
pub(crate) use check::Settings;
pub use instance::Instance;
#[cfg(feature = "config")]
pub use sources::{Config, ConfigError};

use crate::clock::{Clock, SystemClock};
use crate::instance::redis::Address;
use crate::protocol::DEFAULT_DRIFT_PPM;
use crate::resource::display_name;

/// Sets up a [`Redlock`](crate::Redlock). Every setting has a default except the instances.
///
/// ```no_run
/// use std::time::Duration;
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = redquorum::Redlock::builder()
///     .instances(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
///     .namespace("billing:")
///     .ttl(Duration::from_secs(5))
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    instances: Vec<Instance>,
    /// Of this, who connects and how counts when a client is built; the rest is in other fields.
    #[cfg(feature = "config")]
    access: Config,
    /// Instances that a test connects to by itself.
    dialed: Vec<Address>,
    /// Gets the quarantine when a client is built.
    on_build: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    /// What its locks share.
    settings: Settings,
    instance_timeout: Duration,
    connect_timeout: Duration,
    quorum: Option<usize>,
    retry_delay: (Duration, Duration),
    label: Option<String>,
    admission: Admission,
    /// Both are turned off by tests alone.
    watches_keys: bool,
    order_between_clients: bool,
    /// Whether it wants locks before the first acquire.
    wants_locks: bool,
    clock: Arc<dyn Clock>,
}

/// Whether locks are renewed until they are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// In the background, at a third of the ttl and then every tenth until one succeeds.
    #[default]
    Auto,
    /// Not: a lock ends with its ttl unless it is extended by hand. Nothing watches its keys before that, unless a caller waits for
    /// [`lost`](crate::LeaseView::lost).
    Off,
}

/// Whether instances that may have forgotten locks are kept from voting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// They do not vote for `max_ttl` after they may have forgotten locks. Needs `INFO` and, for
    /// data that is replaced by an old copy of itself, `CLIENT TRACKING`.
    #[default]
    On,
    /// Classic Redlock: an instance that was restarted empty, flushed or failed over votes at once,
    /// and a lock can be granted twice. For servers that deny `INFO`; fencing tokens still protect.
    Off,
    /// For tools: the client uses the times in the records instead of its own `max_ttl` and `quarantine`, and writes no
    /// record. It may lock for as long as the record allows, which does not bound marks of [`keep_for`](crate::Guard::keep_for), and gets
    /// no vote of an instance without a record.
    AsRecorded,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            instances: Vec::new(),
            #[cfg(feature = "config")]
            access: Config::default(),
            dialed: Vec::new(),
            on_build: None,
            settings: Settings {
                namespace: Arc::default(),
                ttl: Duration::from_secs(10),
                max_ttl: Duration::from_secs(10),
                quarantine: None,
                drift_ppm: DEFAULT_DRIFT_PPM,
                renewal: Renewal::Auto,
                max_hold: None,
            },
            instance_timeout: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(5),
            quorum: None,
            retry_delay: (Duration::from_millis(10), Duration::from_millis(100)),
            label: None,
            admission: Admission::On,
            watches_keys: true,
            order_between_clients: true,
            wants_locks: false,
            clock: Arc::new(SystemClock),
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dialed = self.dialed.iter().map(|address| address as &dyn std::fmt::Debug);
        let instances: Vec<_> = dialed.chain(self.instances.iter().map(|instance| instance as _)).collect();
        f.debug_struct("Builder")
            .field("instances", &instances)
            .field("namespace", &display_name(&self.settings.namespace))
            .field("ttl", &self.settings.ttl)
            .field("max_ttl", &self.settings.max_ttl)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// The independent masters, as `host`, `host:port`, or URLs: `redis://[user][:password@]host[:port][/db]`, `rediss://`
    /// for TLS (with a feature `tls-*`), `unix:///path`; or as [`Instance`]s where there is more to say. Three or five
    /// are usual; replaces those given before.
    ///
    /// They must not replicate each other, and each address must lead to one server process only.
    /// All clients that lock the same names must name the same instances.
    pub fn instances<I>(mut self, instances: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Instance>,
    {
        self.instances = instances.into_iter().map(Into::into).collect();
        self
    }

    /// Put before every resource's name to make its key. Default: empty.
    pub fn namespace(mut self, namespace: impl AsRef<[u8]>) -> Self {
        self.settings.namespace = namespace.as_ref().into();
        self
    }

    /// The ttl of locks that do not name their own. Default: 10 s. At most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// The longest ttl that any lock may have. Default: 10 s, at most a day. Must be the same for every client of
    /// the same instances: it is how long an instance that may have forgotten locks must wait. While clients run an operator changes it
    /// in steps, see [`quarantine`](Self::quarantine).
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.settings.max_ttl = max_ttl;
        self
    }

    /// How long an instance that may have forgotten locks does not vote. Default: `max_ttl`, and not less; at most a
    /// day. It is longer only while `max_ttl` is being changed, since each client must wait for as long as any
    /// other's `max_ttl`: raise the quarantine of all clients first, then the time in the records
    /// ([`AdmissionRecords::set`](crate::operator::AdmissionRecords::set)), then their `max_ttl`; lower it in the other order.
    /// `docs/operations.md` has the steps. A client with a longer `max_ttl` than the records allow, or a shorter quarantine, gets no votes,
    /// and the error names both values.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redquorum::Redlock;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redquorum::BuildError> {
    /// // On the way from 10 s to 30 s: its ttls are 10 s at most, those of others may be 30 s already.
    /// let builder = Redlock::builder().max_ttl(Duration::from_secs(10)).quarantine(Duration::from_secs(30));
    /// let redlock = builder.instances(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).build()?;
    /// # drop(redlock); Ok(()) }
    /// ```
    pub fn quarantine(mut self, quarantine: Duration) -> Self {
        self.settings.quarantine = Some(quarantine);
        self
    }

    /// How long to wait for the answer of one instance. Default: 200 ms. It delays no verdict
    /// while a quorum answers.
    pub fn instance_timeout(mut self, timeout: Duration) -> Self {
        self.instance_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) waits for a quorum. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// By how much the rates of two clocks may differ, in parts per million. Default: 10 000 (1 %).
    /// Together with 2 ms it is taken off every ttl, so that a lock's validity ends before its keys do. Below 500 000.
    pub fn drift_ppm(mut self, ppm: u32) -> Self {
        self.settings.drift_ppm = ppm;
        self
    }

    /// The votes needed. Default: a majority, `N / 2 + 1`; never fewer.
    ///
    /// If `d` of the addresses may lead to two server processes at once (a master that is failed
    /// over, a virtual IP), two disjoint majorities can exist; choose `q` with `2 q > N + d`.
    pub fn quorum(mut self, votes: usize) -> Self {
        self.quorum = Some(votes);
        self
    }

    /// The pause between two tries of a waiting acquire, drawn from this range. Default: 10 ms to 100 ms.
    /// With every fourth failure it doubles, up to a second, so that many waiters do not disturb each
    /// other.
    pub fn retry_delay(mut self, least: Duration, most: Duration) -> Self {
        self.retry_delay = (least, most);
        self
    }

    /// The name of this client that other clients show when it holds a lock. Default: `host/pid`. At most
    /// 200 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Whether instances that may have forgotten locks are kept from voting. Default:
    /// [`Admission::On`]. Must be the same for every client of the same instances that locks.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Whether locks are renewed until they are released. Default: [`Renewal::Auto`].
    pub fn renew(mut self, renewal: Renewal) -> Self {
        self.settings.renewal = renewal;
        self
    }

    /// For how long a lock is renewed at most, counted from when it is acquired; it ends at the latest
    /// one ttl after that. Default: without end. Then a task that is stuck keeps its lock for ever; the log warns of one that is
    /// held for 100 of its ttls.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.settings.max_hold = Some(longest);
        self
    }

    /// For tests: the client behaves as without the right to `CLIENT TRACKING`.
    #[cfg(feature = "testing")]
    pub fn without_watched_keys(mut self) -> Self {
        self.watches_keys = false;
        self
    }

    /// For tests: turned off, the client behaves as without the rights to `SUBSCRIBE` and `PUBLISH`.
    #[cfg(feature = "testing")]
    pub fn order_between_clients(mut self, in_order: bool) -> Self {
        self.order_between_clients = in_order;
        self
    }

    #[cfg(feature = "testing")]
    pub(crate) fn dialed(mut self, instances: Vec<Address>) -> Self {
        self.dialed = instances;
        self
    }

    #[cfg(feature = "testing")]
    pub(crate) fn on_build(mut self, notify: Arc<dyn Fn(Duration) + Send + Sync>) -> Self {
        self.on_build = Some(notify);
        self
    }

    #[cfg(feature = "testing")]
    pub(crate) fn wants_locks(mut self) -> Self {
        self.wants_locks = true;
        self
    }

    #[cfg(feature = "testing")]
    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}
