//! What needs a runtime: sending rounds, waiting, and cleaning up. Knows instances only by the
//! trait, and leaves every decision to `protocol`.

pub(crate) mod acquire;
pub(crate) mod cleanup;
pub(crate) mod extend;
mod fan_out;
pub(crate) mod hold;
pub(crate) mod holders;
pub(crate) mod keeper;
pub(crate) mod release;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock;
use crate::instance::{Claim, Instance};
use crate::protocol::{Cause, InstanceSet, Quorum, Reply, RetryDelay, Round};
use crate::token::TokenSource;

/// The pause between two looks at who still owes something.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// What the operations of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) instances: Arc<[Arc<dyn Instance>]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tokens: TokenSource,
    pub(crate) cleaner: cleanup::Cleaner,
    pub(crate) keeper: keeper::Keeper,
    pub(crate) holders: holders::Holders,
    pub(crate) instance_timeout: Duration,
    pub(crate) retry: RetryDelay,
    pub(crate) fence_retention: Duration,
    /// Set by `shutdown`: no new locks.
    pub(crate) closed: AtomicBool,
}

impl Shared {
    /// Releases `claim` on `ids`, now as far as they can be reached and later where they cannot.
    pub(crate) fn release_in_background(&self, claim: &Arc<Claim>, ids: InstanceSet) {
        self.cleaner.release(&self.instances, claim, ids, self.clock.now());
    }

    /// Waits until nothing is owed any more that can be paid, at most `limit`; gives what each
    /// instance still owes.
    pub(crate) async fn drain(&self, limit: Duration) -> Vec<usize> {
        tokio::select! {
            owed = self.cleaner.drain(limit) => owed,
            owed = self.only_out_of_reach() => owed,
        }
    }

    /// Ends when for one instance timeout nobody owed anything but instances without a connection.
    async fn only_out_of_reach(&self) -> Vec<usize> {
        let mut since = self.clock.now();
        loop {
            sleep(LOOK_PAUSE).await;
            let owed = self.cleaner.owed();
            let now = self.clock.now();
            let in_reach =
                self.instances.iter().zip(&owed).any(|(instance, owed)| *owed > 0 && instance.obstacle().is_none());
            if in_reach {
                since = now;
            } else if now.saturating_since(since) >= self.instance_timeout {
                return owed;
            }
        }
    }
}

/// Whether instances that lost their scripts alone kept the round from its quorum: they are loading
/// them by now, so it is worth repeating once.
fn missed_scripts(round: &Round) -> bool {
    let could_grant = round.answers().iter().filter(|answer| {
        matches!(
            answer.as_ref().map(|answer| &answer.reply),
            None | Some(Reply::Granted | Reply::Repaired | Reply::NotSent(Cause::ScriptMissing))
        )
    });
    could_grant.count() >= round.quorum().votes() && !round.is_too_slow()
}
