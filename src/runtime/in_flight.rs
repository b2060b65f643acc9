//! Sends one round to the instances, waits for its verdict (P4), and takes in later replies (P6).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::ballot::Ballot;
use super::shared::Shared;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, ReplyTo, Request};
use crate::protocol::{Cause, InstanceSet, Instant, Reply, Round, Verdict};

/// The shortest wait that a timer is set for.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// What happens to the keys when a round in flight is dropped, at any point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDrop {
    /// They stay: the round was won, will be repeated, was an extend (P8), or has been dealt with.
    LeaveKeys,
    /// The round was not won: they are released on every instance that may have them (P5).
    ReleaseKeys,
}

/// One round whose replies are outstanding. It belongs to a task of the client, so that it continues without its caller's
/// polls (P22). Dropping it at any time leaves nothing behind: keys are released in the background (P6).
pub(super) struct RoundInFlight {
    shared: Arc<Shared>,
    pub(super) round: Round,
    request: Request,
    ballot: Arc<Ballot>,
    /// Instances that an earlier send of the same value reached: they are released with this one.
    pub(super) sent_before: InstanceSet,
    pub(super) on_drop: OnDrop,
}

impl RoundInFlight {
    /// Queues the request on all instances. Needs no runtime: the caller sends, and a task continues from there.
    pub(super) fn send(shared: &Arc<Shared>, round: Round, request: Request) -> Self {
        let all = shared.all_instances();
        if let Request::Acquire(claim) | Request::Keep(claim) = &request {
            shared.releaser.release_ahead(claim, all);
        }
        let ballot = Ballot::new(shared.quorum, all);
        RedisInstance::call_each(&shared.instances, all, |id| {
            (request.clone(), ReplyTo::new(Arc::clone(&ballot) as Arc<_>, id))
        });
        let on_drop = match request {
            Request::Acquire(_) => OnDrop::ReleaseKeys,
            Request::Extend(_) | Request::Keep(_) | Request::Release(..) => OnDrop::LeaveKeys,
        };
        Self { shared: Arc::clone(shared), round, request, ballot, sent_before: InstanceSet::default(), on_drop }
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
            let ends_at = earlier(too_late, self.hopeless_at());
            let verdict = match ends_at {
                None => self.decided((too_late, ends_at), &mut on_replies).await,
                Some(end) => {
                    // Timers only wake, the clock decides (P3).
                    let wait = end.saturating_since(self.shared.clock.now()).max(LEAST_WAIT);
                    timeout(wait, self.decided((too_late, ends_at), &mut on_replies)).await.unwrap_or(Verdict::Pending)
                }
            };
            if verdict != Verdict::Pending {
                return verdict;
            }
            if self.is_hopeless() {
                self.round.give_up();
            }
        }
    }

    /// The verdict; `Pending` if it is to be waited for until another time than `ends_at`.
    async fn decided(
        &mut self,
        (too_late, ends_at): (Option<Instant>, Option<Instant>),
        on_replies: &mut impl FnMut(&Round),
    ) -> Verdict {
        poll_fn(|cx| {
            // Also past the verdict: an error names everything that is known by now, and says "held"
            // or "down" by all of it.
            if self.take_in(Some(cx)) {
                on_replies(&self.round);
            }
            // P4: a silent instance is not waited for, unless a moment more shows a holder of the lock (P31).
            let verdict = self.round.verdict(self.shared.clock.now());
            let is_open = verdict == Verdict::Pending || (self.round.may_show_a_holder() && !self.is_hopeless());
            match is_open {
                true if earlier(too_late, self.hopeless_at()) == ends_at => Poll::Pending,
                true => Poll::Ready(Verdict::Pending),
                false => Poll::Ready(verdict),
            }
        })
        .await
    }

    fn is_hopeless(&self) -> bool {
        self.hopeless_at().is_some_and(|at| self.shared.clock.now() >= at)
    }

    /// P31: when silent instances are not waited for any more, since a rival is known.
    fn hopeless_at(&self) -> Option<Instant> {
        self.round.hopeless_at(|id| self.shared.instances.get(id.index())?.round_trip())
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

    pub(super) const fn claim(&self) -> &Arc<Claim> {
        self.request.claim()
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

    /// Queues the release of the keys of a round that was not won, behind its own requests (P6). Replies
    /// that are still outstanding are left to [`finish`](Self::finish), or decide about the release.
    pub(super) fn release(&mut self) {
        self.let_go(true);
    }

    /// As [`release`](Self::release), but at once everywhere: the next request for the same lock is sent behind it.
    pub(super) fn release_before_repeat(&mut self) {
        self.let_go(false);
    }

    fn let_go(&mut self, awaits_replies: bool) {
        match self.on_drop {
            OnDrop::ReleaseKeys => self.on_drop = OnDrop::LeaveKeys,
            OnDrop::LeaveKeys => return,
        }
        self.take_in(None);
        let claim = Arc::clone(self.request.claim());
        let mut targets = self.round.must_release_one_copy().union(self.sent_before);
        if awaits_replies && self.is_refused() {
            // The replies that are outstanding decide whether there is anything to release.
            let left = self.ballot.outstanding().without(self.sent_before);
            if !left.is_empty() {
                self.shared.releaser.release_after_replies(&self.ballot, left, Arc::clone(&claim));
            }
            targets = targets.without(left);
        }
        if !targets.is_empty() {
            self.shared.releaser.release((claim, None), targets, None);
        }
    }

    /// Whether a rival is known: then instances that have not answered yet will most likely refuse as well.
    fn is_refused(&self) -> bool {
        !self.round.is_too_slow() && self.round.refusals().next().is_some()
    }
}

impl Drop for RoundInFlight {
    fn drop(&mut self) {
        self.release();
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
