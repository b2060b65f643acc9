//! Work under a lock.

use crate::error::{Loss, ReleaseError, RunError};
use crate::guard::{Guard, Released};
use crate::lease::LeaseView;

/// Runs work until it ends or the lock is lost (P21), and then releases the lock.
pub(crate) async fn run_while_held<W, F>(guard: Guard, work: W) -> Result<F::Output, RunError>
where
    W: FnOnce(LeaseView) -> F,
    F: Future,
{
    let lease = guard.lease();
    let output = until_lost(lease.lost(), || work(guard.lease())).await?;
    release_after_work(guard).await;
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
    let released = guard.release().await;
    log_release(&lease, &released);
}

/// Logs how a release went that no caller looks at.
fn log_release(lease: &LeaseView, released: &Result<Released, ReleaseError>) {
    if matches!(released, Ok(Released { was_still_held: true })) {
        return;
    }
    let (claim, token) = (lease.tenure.claim(), lease.fencing_token());
    let resource = claim.resource.display();
    let times = lease.shared.counters.release_warnings.note(lease.shared.clock.now());
    let what = match released {
        Ok(_) => "the lock was gone when its work had ended: another client may have held it meanwhile",
        Err(_) => "its work is done, its release is not confirmed",
    };
    let error = released.as_ref().err().map(tracing::field::display);
    match times {
        Some(times) => tracing::warn!(resource, %token, error, times, "{what}"),
        None => tracing::debug!(resource, %token, error, "{what}"),
    }
}
