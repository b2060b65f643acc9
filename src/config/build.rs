//! Builds a client from its settings.

use std::panic::{UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Admission, Builder};
use crate::client::Redlock;
use crate::clock::{Clock, CorrectedClock};
use crate::error::{BuildError, ConnectError};
use crate::instance::redis::{Address, ClientOptions, RedisInstance};
use crate::instance::{Invalidation, Listener};
use crate::process::Process;
use crate::protocol::{Quorum, RetryDelay};
use crate::runtime::Shared;
use crate::runtime::acquire::slot::Slots;
use crate::runtime::background_release::BackgroundReleaser;
use crate::runtime::counters::Counters;
use crate::runtime::keep_alive::{KeepAlive, KeepAliveParts};
use crate::runtime::order::Order;
use crate::token::TokenSource;

/// The most pushes that wait to be looked after; what comes meanwhile is gathered where it comes in.
const MAX_INVALIDATIONS: usize = 64;

/// The most keys of held locks of which changes are pushed. Changes of other keys are noticed by the next renewal.
const MOST_WATCHED: usize = 4096;

/// The most messages of other clients that wait to be taken in; more are dropped.
const MAX_MESSAGES: usize = 1024;

impl Builder {
    /// Checks the settings and begins to connect in the background.
    ///
    /// Until a quorum is connected, locks fail with `NoQuorum`, and waiting acquires wait; use
    /// [`connect`](Self::connect) to wait for that first.
    ///
    /// Validity counts the time for which the machine is suspended on Linux, Android, Apple's systems, OpenBSD and Windows.
    /// On others the log has a warning that it may not.
    ///
    /// # Errors
    /// [`BuildError`] names the setting, or the relation between settings, that cannot work, or
    /// the missing runtime. Nothing has been connected then.
    pub fn build(self) -> Result<Redlock, BuildError> {
        let (addresses, quorum) = self.check()?;
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        check_runtime(!self.instances.is_empty())?;
        if let Some(limit) = self.clock.limit() {
            tracing::warn!(limit, "see the assumptions in docs/safety.md");
        }
        if let Some(notify) = &self.on_build {
            notify(self.settings.quarantine());
        }
        let (invalidation, invalidations) = mpsc::channel(MAX_INVALIDATIONS);
        let own_clock = Arc::new(CorrectedClock::new(Arc::clone(&self.clock)));
        let tokens = TokenSource::new(self.label.clone().unwrap_or_else(default_label));
        let (message, messages) = mpsc::channel(MAX_MESSAGES);
        // A client that only looks waits for nothing, and does not subscribe.
        let keeps_order = self.order_between_clients && self.admission != Admission::AsRecorded;
        let listener = keeps_order.then(|| Listener { client: tokens.client(), messages: message });
        let instances = self.start(addresses, quorum, &own_clock, invalidation, listener);
        let clock_moved = own_clock.moved();
        let clock: Arc<dyn Clock> = own_clock;
        let retry = RetryDelay::new(self.retry_delay.0, self.retry_delay.1);
        let order = keeps_order.then(|| {
            let (instances, clock) = (Arc::clone(&instances), Arc::clone(&clock));
            Order::start(tokens.client(), instances, clock, (self.instance_timeout, retry), messages)
        });
        let counters = Arc::new(Counters::default());
        let keep_alive = KeepAlive::start(KeepAliveParts {
            instances: Arc::clone(&instances),
            quorum,
            clock: Arc::clone(&clock),
            clock_moved,
            invalidations,
            most_watched: if self.watches_keys { MOST_WATCHED } else { 0 },
            counters: Arc::clone(&counters),
        });
        let shared = Shared {
            keep_alive,
            counters,
            releaser: BackgroundReleaser::start(Arc::clone(&instances), quorum, Arc::clone(&clock)),
            instances,
            quorum,
            clock,
            tokens,
            instance_timeout: self.instance_timeout,
            retry,
            process: Process::this(),
            runtime,
            attempts: Arc::default(),
            order,
            slots: Slots::default(),
        };
        Ok(Redlock::new(Arc::new(shared), Arc::new(self.settings)))
    }

    fn start(
        &self,
        addresses: Vec<Address>,
        quorum: Quorum,
        own_clock: &Arc<CorrectedClock>,
        invalidations: mpsc::Sender<Invalidation>,
        listener: Option<Listener>,
    ) -> Arc<[RedisInstance]> {
        let options = ClientOptions {
            process: Process::this(),
            instance_timeout: self.instance_timeout,
            quorum,
            max_ttl: self.settings.max_ttl,
            quarantine: self.settings.quarantine(),
            drift_ppm: self.settings.drift_ppm,
            admission: self.admission != Admission::Off,
            as_recorded: self.admission == Admission::AsRecorded,
            wants_locks: self.wants_locks,
            machine_clock: Arc::clone(&self.clock),
            own_clock: Arc::clone(own_clock),
            invalidations,
            listener,
            gathering: Arc::default(),
        };
        RedisInstance::start_all(addresses, options).into()
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

/// A runtime of tokio does not say what it can do; it panics where it cannot.
fn check_runtime(needs_network: bool) -> Result<(), BuildError> {
    if !can(|| drop(sleep(Duration::ZERO))) {
        return Err(BuildError::NoTimers);
    }
    #[cfg(unix)]
    if needs_network && !can(|| drop(tokio::net::UnixStream::pair())) {
        return Err(BuildError::NoNetwork);
    }
    Ok(())
}

fn can(what: impl FnOnce() + UnwindSafe) -> bool {
    catch_unwind(what).is_ok()
}

/// `host/pid`.
pub(super) fn default_label() -> String {
    let host = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map_or("host", str::trim);
    let cut = host.char_indices().nth(100).map_or(host, |(end, _)| host.get(..end).unwrap_or(host));
    format!("{cut}/{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::log_limit::tests::logged;
    use crate::protocol::Instant;

    /// As that of a system whose clock stands still while the machine is suspended.
    #[derive(Debug)]
    struct Stops;

    impl Clock for Stops {
        fn now(&self) -> Instant {
            SystemClock.now()
        }

        fn limit(&self) -> Option<String> {
            Some("it stops in a suspension".to_owned())
        }
    }

    #[tokio::test]
    async fn a_clock_that_may_not_count_suspended_time_is_a_warning_when_a_client_is_built() {
        let addresses = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
        let sure = Redlock::builder().instances(addresses);
        let unsure = Builder { clock: Arc::new(Stops), ..sure.clone() };
        for (builder, expected) in [(sure, 0), (unsure, 1)] {
            let written = logged(|| drop(builder.build().unwrap()));
            let is_it = |line: &&String| line.starts_with("WARN") && line.contains("it stops in a suspension");
            assert_eq!(written.iter().filter(is_it).count(), expected, "{written:?}");
        }
    }
}
