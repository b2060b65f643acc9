//! Work under a lock.

use std::fmt::Display;
use std::time::Duration;

use crate::error::{Loss, RunError};
use crate::guard::{Guard, Released};
use crate::lease::LeaseView;

/// Runs work until it ends or the lock is lost (P21), and then releases the lock, or leaves it until no client has had it for `at_least` so long.
pub(crate) async fn run_while_held<W, F>(guard: Guard, at_least: Duration, work: W) -> Result<F::Output, RunError>
where
    W: FnOnce(LeaseView) -> F,
    F: Future,
{
    let lease = guard.lease();
    let now = || lease.shared.clock.now();
    let acquired = now();
    let output = until_lost(lease.lost(), || work(guard.lease())).await?;
    let left = at_least.saturating_sub(now().saturating_since(acquired));
    if left.is_zero() {
        release_after_work(guard).await
    } else {
        keep_after_work(guard, left).await
    }
    Ok(output)
}

/// Runs work until it ends or what it needs is lost.
pub(crate) async fn until_lost<F: Future>(
    lost: impl Future<Output = Loss>,
    work: impl FnOnce() -> F,
) -> Result<F::Output, RunError> {
    tokio::select! {
        biased; // what is lost does not go on
        loss = lost => Err(RunError::Lost(loss)),
        output = async { work().await } => Ok(output),
    }
}

/// Releases a lock whose work is done.
pub(crate) async fn release_after_work(guard: Guard) {
    let lease = guard.lease();
    match guard.release().await {
        Ok(Released { was_still_held: true }) => {}
        Ok(_) => {
            warn(&lease, "the lock was gone when its work had ended: another client may have held it meanwhile", None)
        }
        Err(error) => warn(&lease, "its work is done, its release is not confirmed", Some(&error)),
    }
}

/// Leaves a lock whose work is done to no client for so long.
async fn keep_after_work(guard: Guard, left: Duration) {
    let lease = guard.lease();
    if let Err(error) = guard.keep_for(left).await {
        warn(&lease, "its work is done, and that no client gets the lock again so soon is not confirmed", Some(&error));
    }
}

/// Logs how it went on with a lock after work, as no caller looks at that.
fn warn(lease: &LeaseView, what: &str, error: Option<&dyn Display>) {
    let (claim, token) = (lease.tenure.claim(), lease.fencing_token());
    let resource = claim.resource.display();
    let times = lease.shared.counters.release_warnings.note(lease.shared.clock.now());
    let error = error.map(tracing::field::display);
    match times {
        Some(times) => tracing::warn!(resource, %token, error, times, "{what}"),
        None => tracing::debug!(resource, %token, error, "{what}"),
    }
}
