//! Tries until a lease is won.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::try_acquire::try_acquire;
use crate::random;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::shared::Shared;

/// Tries until a round is won, the wait is over, or trying again cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &AcquireParams,
    limit: Option<Duration>,
) -> Result<Arc<HeldLease>, AcquireFailure> {
    let begun = shared.clock.now();
    let mut params = params.clone();
    let left = || limit.map(|limit| begun.saturating_add(limit).saturating_since(shared.clock.now()));
    // The first round is never cut off, so that a short wait still learns who is in the way.
    let mut result = try_acquire(shared, &params, limit).await;
    let mut failures = 0;
    loop {
        let last = match result {
            Err(failure) if failure.may_pass() => failure,
            result => return result,
        };
        if let AcquireFailure::RoundLost(round) = &last {
            params.seen = round.highest_seen();
        }
        result = loop {
            let pause = shared.retry.after(failures, random::spread());
            failures = failures.saturating_add(1);
            sleep(left().map_or(pause, |left| left.min(pause))).await;
            match left() {
                None => break try_acquire(shared, &params, None).await,
                Some(Duration::ZERO) => {
                    let waited = shared.clock.now().saturating_since(begun);
                    return Err(AcquireFailure::DeadlinePassed { waited, last: Box::new(last) });
                }
                // A round that is cut off here is released like any that is cancelled.
                Some(left) => {
                    if let Ok(result) = timeout(left, try_acquire(shared, &params, None)).await {
                        break result;
                    }
                }
            }
        };
    }
}
