//! When the wait of an acquire is over.

use std::time::Duration;

use tokio::time::sleep;

use super::failure::AcquireFailure;
use crate::clock::Clock;
use crate::protocol::Instant;
use crate::runtime::shared::Shared;

/// When a wait is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    pub(super) fn begin(limit: Option<Duration>, clock: &dyn Clock) -> Self {
        Self { begun: clock.now(), limit }
    }

    fn waited(self, clock: &dyn Clock) -> Duration {
        clock.now().saturating_since(self.begun)
    }

    /// Whether it was over so long ago.
    pub(super) fn is_past(self, by: Duration, clock: &dyn Clock) -> bool {
        self.limit.is_some_and(|limit| self.waited(clock) >= limit.saturating_add(by))
    }

    pub(super) fn has_passed(self, clock: &dyn Clock) -> bool {
        self.is_past(Duration::ZERO, clock)
    }

    /// Returns when it was over so long ago.
    pub(super) async fn wait(self, by: Duration, clock: &dyn Clock) {
        let Some(limit) = self.limit else { return std::future::pending().await };
        // Timers only wake, the clock decides (P3).
        while !self.is_past(by, clock) {
            sleep(limit.saturating_add(by).saturating_sub(self.waited(clock))).await;
        }
    }

    /// The result of this, unless the client is shut down, or the wait was over so long ago before.
    pub(super) async fn in_time<T>(
        self,
        by: Duration,
        shared: &Shared,
        what: impl IntoFuture<Output = T>,
        last: &AcquireFailure,
    ) -> Result<T, AcquireFailure> {
        let clock = &*shared.clock;
        tokio::select! {
            biased; // a run that is repeated under a seed takes the same branches
            () = shared.attempts.closed() => Err(AcquireFailure::ShutDown),
            what = what.into_future() => Ok(what),
            () = self.wait(by, clock) => Err(self.failure(last.clone(), clock)),
        }
    }

    pub(super) fn failure(self, last: AcquireFailure, clock: &dyn Clock) -> AcquireFailure {
        AcquireFailure::DeadlinePassed { waited: self.waited(clock), last: Box::new(last) }
    }
}
