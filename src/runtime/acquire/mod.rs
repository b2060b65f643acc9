//! Acquires a lease. Each wait is a task of the client, and so is each single try; those for one lock share a slot.

mod asking;
mod attempt;
mod deadline;
mod failure;
pub(crate) mod left_mark;
mod params;
mod place;
mod read;
mod several;
pub(crate) mod slot;
pub(crate) mod tracker;
mod try_acquire;
mod turns;
mod uncollected;
mod waiter;

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Access;
use crate::runtime::held_lease::Tenure;
use crate::runtime::shared::Shared;
use deadline::Deadline;
pub(crate) use failure::AcquireFailure;
pub(crate) use params::{AcquireParams, Purpose};
pub(crate) use several::Several;
pub(crate) use try_acquire::try_acquire;
pub(in crate::runtime) use uncollected::UncollectedLease;

/// Waits until there is a lease, the wait is over, or waiting longer cannot help.
pub(crate) async fn acquire_until(
    shared: &Arc<Shared>,
    params: &Arc<AcquireParams>,
    limit: Option<Duration>,
) -> Result<Tenure, AcquireFailure> {
    if shared.is_forked() {
        return Err(AcquireFailure::Forked);
    }
    let deadline = Deadline::begin(limit, &*shared.clock);
    match params.access {
        Access::Write => waiter::acquire(shared, params, deadline).await,
        Access::Read => read::read(shared, params, deadline).await,
    }
}
