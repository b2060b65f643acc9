//! Builds a client from its settings.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::runtime::check_runtime;
use super::{Admission, Builder};
use crate::client::Redlock;
use crate::clock::{Clock, CorrectedClock};
use crate::error::{BuildError, ConnectError};
use crate::instance::redis::{Address, ClientOptions, RedisInstance};
use crate::instance::{Instance, Invalidation, Listener};
use crate::protocol::{ClusterTerms, Quorum, RetryDelay};
use crate::runtime::Shared;
use crate::runtime::acquire::ask_limit::AskLimit;
use crate::runtime::acquire::line::lines::Lines;
use crate::runtime::acquire::reentry_table::ReentryTable;
use crate::runtime::background_release::BackgroundReleaser;
use crate::runtime::counters::Counters;
use crate::runtime::keep_alive::{KeepAlive, KeepAliveParts};
use crate::runtime::succession::Succession;
use crate::token::TokenSource;

/// The most pushes that wait to be looked after; what comes meanwhile is gathered where it comes in.
const MAX_INVALIDATIONS: usize = 64;

/// The most messages of other clients that wait to be taken in; more are dropped.
const MAX_MESSAGES: usize = 1024;

impl Builder {
    /// Checks the settings and begins to connect in the background.
    ///
    /// Until a quorum is connected, locks fail with `NoQuorum`, and waiting acquires wait; use
    /// [`connect`](Self::connect) to wait for that first.
    ///
    /// # Errors
    /// [`BuildError`] names the setting, or the relation between settings, that cannot work, or
    /// the missing runtime. Nothing has been connected then.
    pub fn build(self) -> Result<Redlock, BuildError> {
        let (settings, addresses, quorum) = self.check()?;
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        check_runtime(!self.instances.is_empty())?;
        let (invalidation, invalidations) = mpsc::channel(MAX_INVALIDATIONS);
        let own_clock = Arc::new(CorrectedClock::new(Arc::clone(&self.clock)));
        let tokens = TokenSource::new(self.label.clone().unwrap_or_else(default_label));
        let (message, messages) = mpsc::channel(MAX_MESSAGES);
        let listener = self.order_between_clients.then(|| Listener { client: tokens.client(), messages: message });
        let instances = self.start(addresses, quorum, &own_clock, invalidation, listener);
        let clock_moved = own_clock.moved();
        let clock: Arc<dyn Clock> = own_clock;
        let succession = self.order_between_clients.then(|| {
            let (instances, clock) = (Arc::clone(&instances), Arc::clone(&clock));
            Succession::start(tokens.client(), instances, clock, self.instance_timeout, messages)
        });
        let counters = Arc::new(Counters::default());
        let keep_alive = KeepAlive::start(KeepAliveParts {
            instances: Arc::clone(&instances),
            quorum,
            clock: Arc::clone(&clock),
            clock_moved,
            invalidations,
            most_watched: self.max_watched,
            long_hold: self.long_hold,
            counters: Arc::clone(&counters),
        });
        let shared = Shared {
            keep_alive,
            counters,
            reentry_table: ReentryTable::default(),
            releaser: BackgroundReleaser::start(Arc::clone(&instances), Arc::clone(&clock)),
            instances,
            quorum,
            clock,
            tokens,
            instance_timeout: self.instance_timeout,
            retry: RetryDelay::new(self.retry_delay.0, self.retry_delay.1),
            process: std::process::id(),
            runtime,
            attempts: Arc::default(),
            limiter: Arc::default(),
            ask_limit: AskLimit::default(),
            succession,
            lines: Arc::new(Lines::new(self.local_hand_overs)),
        };
        Ok(Redlock::new(Arc::new(shared), Arc::new(settings)))
    }

    fn start(
        &self,
        addresses: Vec<Address>,
        quorum: Quorum,
        own_clock: &Arc<CorrectedClock>,
        invalidations: mpsc::Sender<Invalidation>,
        listener: Option<Listener>,
    ) -> Arc<[Arc<dyn Instance>]> {
        let options = ClientOptions {
            instance_timeout: self.instance_timeout,
            quorum: quorum.votes(),
            max_ttl: self.max_ttl,
            quarantine: self.quarantine.unwrap_or(self.max_ttl),
            cluster: self.cluster.as_ref().and_then(|name| ClusterTerms::new(name, addresses.len(), quorum.votes())),
            drift_ppm: self.drift_ppm,
            fence_retention: self.fence_retention,
            admission: self.admission == Admission::On,
            machine_clock: Arc::clone(&self.clock),
            own_clock: Arc::clone(own_clock),
            invalidations,
            listener,
        };
        let instances = RedisInstance::start_all(addresses, options).into_iter();
        instances.map(|instance| Arc::new(instance) as Arc<dyn Instance>).collect()
    }

    /// Builds the client and waits until a quorum of instances is connected.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the client; nothing stays behind on the instances.
    ///
    /// # Errors
    /// [`StartError::Build`] as [`build`](Self::build); [`StartError::Connect`] if there is no
    /// quorum within `connect_timeout`.
    pub async fn connect(self) -> Result<Redlock, StartError> {
        let limit = self.connect_timeout;
        let redlock = self.build()?;
        redlock.wait_connected(limit).await?;
        Ok(redlock)
    }
}

/// Why a client could not be built and connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The connections.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// `host/pid`.
fn default_label() -> String {
    let host = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map_or("host", str::trim);
    let cut = host.char_indices().nth(100).map_or(host, |(end, _)| host.get(..end).unwrap_or(host));
    format!("{cut}/{}", std::process::id())
}
