//! Waits until a lease is won.

use std::sync::Arc;
use std::time::Duration;

use super::failure::AcquireFailure;
use super::params::AcquireParams;
use super::place::wait_in_line;
use super::share::share_now;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;

/// Waits until there is a lease, the wait is over, or waiting longer cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    match share_now(shared, params).await {
        Ok(Some(tenure)) => Ok(tenure),
        Err(failure) if !failure.may_pass() => Err(failure),
        // What its holder has cannot be extended now: it waits like anybody.
        Ok(None) | Err(_) => wait_in_line(shared, params, limit).await,
    }
}
