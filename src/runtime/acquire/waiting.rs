//! Waits until a lease is won.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::pauses::Pauses;
use super::place::wait_in_line;
use super::try_acquire::try_acquire;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use crate::runtime::wait_events::{self, AskReason};

/// Waits until there is a lease, the wait is over, or waiting longer cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    if params.holder.is_empty() {
        wait_in_line(shared, params, limit).await
    } else {
        try_until(shared, params, limit).await
    }
}

/// Tries until a round is won: a holder may have the lock already, so it does not stand in line (P23).
async fn try_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    let begun = shared.clock.now();
    let mut seen = None;
    let left = || limit.map(|limit| begun.saturating_add(limit).saturating_since(shared.clock.now()));
    let mut asks = 0;
    let mut tell = |why| {
        asks += 1;
        wait_events::asks(&params.resources, asks, why, || shared.known_waiters(&params.resources));
    };
    tell(AskReason::First);
    // The first round is never cut off, so that a short wait still learns who is in the way.
    let until = limit.map(|limit| begun.saturating_add(limit));
    let mut result = try_acquire(shared, params, None, limit, until).await;
    let mut pauses = Pauses::default();
    loop {
        let last = match result {
            Err(failure) if failure.may_pass() => failure,
            result => {
                if let Ok(tenure) = &result {
                    pauses.won(tenure.held());
                }
                return result;
            }
        };
        if let AcquireFailure::RoundLost(round) = &last {
            seen = round.highest_seen();
            wait_events::refused(&params.resources, round, || shared.known_waiters(&params.resources));
        }
        result = loop {
            let pause = pauses.pause(shared, &params.resources, &last);
            let why = match left() {
                Some(left) => timeout(left, pause).await.unwrap_or(AskReason::Pause),
                None => pause.await,
            };
            if left() == Some(Duration::ZERO) {
                let waited = shared.clock.now().saturating_since(begun);
                return Err(AcquireFailure::DeadlinePassed { waited, last: Box::new(last) });
            }
            tell(why);
            match left() {
                None => break try_acquire(shared, params, seen, None, until).await,
                // A round that is cut off here is released like any that is cancelled.
                Some(left) => {
                    if let Ok(result) = timeout(left, try_acquire(shared, params, seen, None, until)).await {
                        break result;
                    }
                }
            }
        };
    }
}
