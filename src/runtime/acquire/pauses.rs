//! The pauses between the asks of a line.

use std::sync::Arc;

use tokio::time::sleep;

use super::failure::AcquireFailure;
use crate::random;
use crate::resource::Resources;
use crate::runtime::held_lease::HeldLease;
use crate::runtime::shared::Shared;
use crate::runtime::succession::Wait;
use crate::runtime::wait_events::AskReason;

/// Knows how often the lock was asked for in vain, and waits in order with other clients if this one does (P25).
#[derive(Debug, Default)]
pub(super) struct Pauses {
    failures: u32,
    /// Begun with the first failure.
    wait: Option<Option<Wait>>,
}

impl Pauses {
    /// Waits until it is worth asking again after `last`; why it is.
    pub(super) async fn pause(&mut self, shared: &Shared, resources: &Resources, last: &AcquireFailure) -> AskReason {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        match self.wait.get_or_insert_with(|| begin_wait(shared, resources)) {
            Some(wait) => {
                let lost = match last {
                    AcquireFailure::RoundLost(round) => Some(&**round),
                    _ => None,
                };
                let why = wait.pause(lost, failures, shared.retry).await;
                if why == AskReason::Expired {
                    self.failures = 0; // several may ask now, and those who split the votes must not pause for long
                }
                why
            }
            None => {
                sleep(shared.retry.after(failures, random::spread())).await;
                AskReason::Pause
            }
        }
    }

    /// The lock was won.
    pub(super) fn won(&mut self, held: &Arc<HeldLease>) {
        self.failures = 0;
        if let Some(wait) = self.wait.take().flatten() {
            wait.won(held);
        }
    }
}

fn begin_wait(shared: &Shared, resources: &Resources) -> Option<Wait> {
    let wall_us = shared.proposing_clock().ok()?.us;
    shared.succession.as_ref()?.wait(resources, shared.quorum, wall_us)
}
