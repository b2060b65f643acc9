//! Sends one round to the instances, waits for its verdict (P4), and takes in later replies (P6).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::ballot::Ballot;
use super::shared::Shared;
use crate::instance::redis::RedisInstance;
use crate::instance::{ReplyTo, Request};
use crate::protocol::{Cause, Reply, Round, Verdict};

/// The shortest wait that a timer is set for.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// One round for a lease whose replies are outstanding. It belongs to a task of the client, so that it continues without its caller's
/// polls (P22). Dropped at any time it leaves the keys alone (P8).
pub(super) struct RoundInFlight {
    shared: Arc<Shared>,
    pub(super) round: Round,
    ballot: Arc<Ballot>,
}

impl RoundInFlight {
    /// Queues the request on all instances. Needs no runtime: the caller sends, and a task continues from there.
    pub(super) fn send(shared: &Arc<Shared>, round: Round, request: Request) -> Self {
        let all = shared.all_instances();
        let ballot = Ballot::new(shared.quorum, all);
        match request {
            Request::Keep(claim) => shared.keys.keep(claim, Arc::clone(&ballot)),
            request => RedisInstance::call_each(&shared.instances, all, |id| {
                (request.clone(), ReplyTo::new(Arc::clone(&ballot) as Arc<_>, id))
            }),
        }
        Self { shared: Arc::clone(shared), round, ballot }
    }

    /// Waits for the verdict, and not for any instance longer than that.
    pub(super) async fn verdict(&mut self) -> Verdict {
        self.verdict_of(|_| {}).await
    }

    /// As [`verdict`](Self::verdict); calls `on_replies` with the round when new evidence has come, also before it is decided.
    pub(super) async fn verdict_of(&mut self, mut on_replies: impl FnMut(&Round)) -> Verdict {
        // Each request is answered by the deadline of its connection; a timer is needed only if the round is of no use before that.
        let answered_by = self.round.started_at().saturating_add(self.shared.instance_timeout);
        let too_late = self.round.win_deadline().filter(|end| *end < answered_by);
        loop {
            // Timers only wake, the clock decides (P3).
            let wait = too_late.map(|end| end.saturating_since(self.shared.clock.now()).max(LEAST_WAIT));
            let decided = poll_fn(|cx| {
                if self.take_in(Some(cx)) {
                    on_replies(&self.round);
                }
                // P4: a silent instance is not waited for.
                match self.round.verdict(self.shared.clock.now()) {
                    Verdict::Pending => Poll::Pending,
                    verdict => Poll::Ready(verdict),
                }
            });
            match wait {
                None => return decided.await,
                Some(wait) => {
                    if let Ok(verdict) = timeout(wait, decided).await {
                        return verdict;
                    }
                }
            }
        }
    }

    /// Waits for the replies that are outstanding after the verdict (P6); calls `on_replies` with the round when some have come
    /// with new evidence, and when all have.
    pub(super) async fn finish(&mut self, mut on_replies: impl FnMut(&Round)) {
        poll_fn(|cx| {
            if self.take_in(Some(cx)) {
                on_replies(&self.round);
            }
            if self.ballot.outstanding().is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        if self.take_in(None) {
            on_replies(&self.round);
        }
    }

    /// Records the replies that have come; whether there were any.
    fn take_in(&mut self, context: Option<&Context<'_>>) -> bool {
        self.ballot.take_out(&mut self.round, &*self.shared.clock, context)
    }

    /// Whether only instances that were not ready kept the round from its quorum, and nothing was done there: they had lost
    /// their scripts, which are being loaded by now, or their record, which is written by now. So it is worth repeating once.
    pub(super) fn lacks_only_scripts(&self) -> bool {
        let could_grant = self.round.which(|reply| match reply {
            None | Some(Reply::Granted | Reply::Repaired) => true,
            Some(reply) => {
                matches!(reply, Reply::NotSent(Cause::ScriptMissing | Cause::Unrecorded | Cause::JustConnected))
            }
        });
        could_grant.len() >= self.round.quorum().votes() && !self.round.is_too_slow()
    }
}
