//! What needs a runtime: sending rounds, waiting, and cleaning up. Knows instances only by the
//! trait, and leaves every decision to `protocol`.

pub(crate) mod acquire;
mod attempt;
pub(crate) mod attempt_limiter;
pub(crate) mod attempt_tracker;
pub(crate) mod background_release;
mod client_task;
pub(crate) mod extend;
pub(crate) mod held_lease;
mod in_flight;
pub(crate) mod keep_alive;
mod reentry;
pub(crate) mod reentry_table;
pub(crate) mod release;
mod uncollected;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::instance::{Instance, Request};
use crate::protocol::{Cause, ClocksApart, InstanceId, InstanceSet, Quorum, Reply, RetryDelay, Round, proposing_clock};
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
    pub(crate) releaser: background_release::BackgroundReleaser,
    pub(crate) keep_alive: keep_alive::KeepAlive,
    pub(crate) reentry_table: reentry_table::ReentryTable,
    pub(crate) instance_timeout: Duration,
    pub(crate) retry: RetryDelay,
    pub(crate) fence_retention: Duration,
    /// The id of the process in which the client was built.
    pub(crate) process: u32,
    /// Where the client's tasks run, whoever calls it.
    pub(crate) runtime: Handle,
    /// Tries that are under way, and whether new ones may begin.
    pub(crate) attempts: attempt_tracker::AttemptTracker,
    pub(crate) limiter: attempt_limiter::AttemptLimiter,
}

impl Shared {
    /// The clock by which a token is proposed now (P12).
    pub(crate) fn proposing_clock(&self) -> Result<u64, ClocksApart> {
        let now = self.clock.now();
        let readings = self.instances.iter().map(|instance| instance.wall_us(now));
        proposing_clock(self.clock.wall_us(), readings, self.quorum)
    }

    /// Has `release` carried out on `ids`, now as far as they can be reached and later where they cannot.
    fn release_in_background(&self, release: &Request, ids: InstanceSet) {
        self.releaser.release(&self.instances, release, ids, self.clock.now());
    }

    /// What stands between the client and an instance.
    pub(crate) fn obstacle(&self, instance: &dyn Instance) -> Option<Cause> {
        if self.has_ended() { Some(runtime_ended()) } else { instance.obstacle() }
    }

    /// Whether this is another process than the one in which the client was built. The connections, and
    /// the locks, are that one's.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Whether the runtime in which the client was built has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.releaser.has_ended()
    }

    /// One guard of a lease lets go; after the last what is to be released is, in the background (P22).
    pub(crate) fn drop_guard(&self, held: &held_lease::HeldLease) {
        if let Some((release, asked)) = self.keep_alive.drop_guard(held)
            && !self.is_forked()
        {
            self.release_in_background(&release, asked);
        }
    }

    /// Lets no new try begin, and waits until those under way have ended and nothing is owed any more
    /// that can be paid, at most `limit`; gives what each instance still owes.
    pub(crate) async fn drain(&self, limit: Duration) -> Vec<usize> {
        self.attempts.close();
        let begun = self.clock.now();
        if timeout(limit, self.attempts.ended()).await.is_err() {
            return self.releaser.owed();
        }
        let left = limit.saturating_sub(self.clock.now().saturating_since(begun));
        tokio::select! {
            owed = self.releaser.drain(left) => owed,
            owed = self.until_only_unreachable() => owed,
        }
    }

    /// Ends when for one instance timeout nobody owed anything but instances without a connection.
    async fn until_only_unreachable(&self) -> Vec<usize> {
        let mut since = self.clock.now();
        loop {
            sleep(LOOK_PAUSE).await;
            let owed = self.releaser.owed();
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

/// `round` as it is when it cannot be sent because the runtime of the client has ended.
fn nothing_sent(mut round: Round, shared: &Shared) -> Box<Round> {
    let now = shared.clock.now();
    for id in InstanceId::all(shared.instances.len()) {
        round.on_reply(id, Reply::NotSent(runtime_ended()), now);
    }
    Box::new(round)
}

fn runtime_ended() -> Cause {
    Cause::NotConnected("the runtime in which the client was built has ended".to_owned())
}

/// Whether instances that lost their scripts alone kept the round from its quorum: they are loading
/// them by now, so it is worth repeating once.
fn lacks_only_scripts(round: &Round) -> bool {
    let could_grant = round.answers().iter().filter(|answer| {
        matches!(
            answer.as_ref().map(|answer| &answer.reply),
            None | Some(Reply::Granted | Reply::Repaired | Reply::NotSent(Cause::ScriptMissing))
        )
    });
    could_grant.count() >= round.quorum().votes() && !round.is_too_slow()
}
