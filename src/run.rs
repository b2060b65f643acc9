//! Work under a lock.

use crate::error::{ReleaseError, RunError};
use crate::foreign::contain;
use crate::guard::{Guard, Released};
use crate::lease::LeaseView;

/// Runs work until it ends or the lock is lost (P21), and then releases the lock.
pub(crate) async fn run_while_held<W, F>(guard: Guard, work: W) -> Result<F::Output, RunError>
where
    W: FnOnce(LeaseView) -> F,
    F: Future,
{
    let lease = guard.lease();
    let output = tokio::select! {
        biased; // what is lost does not go on
        loss = lease.lost() => return Err(RunError::Lost(loss)),
        output = work(guard.lease()) => output,
    };
    let released = guard.release().await;
    contain(|| log_release(&lease, &released));
    Ok(output)
}

/// Says how a release went at which nobody else looks.
fn log_release(lease: &LeaseView, released: &Result<Released, ReleaseError>) {
    if matches!(released, Ok(Released { was_still_held: true })) {
        return;
    }
    let (claim, token) = (lease.tenure.claim(), lease.fencing_token());
    let resources = claim.resources.display_all();
    let times = lease.shared.counters.release_warnings.note(lease.shared.clock.now());
    match (released, times) {
        (Ok(_), Some(times)) => {
            tracing::warn!(resources, %token, times, "the lock was gone when its work had ended: others may have had it meanwhile");
        }
        (Ok(_), None) => tracing::debug!(resources, %token, "the lock was gone when its work had ended"),
        (Err(error), Some(times)) => {
            tracing::warn!(resources, %token, %error, times, "its work is done, its release is not confirmed")
        }
        (Err(error), None) => {
            tracing::debug!(resources, %token, %error, "its work is done, its release is not confirmed")
        }
    }
}
