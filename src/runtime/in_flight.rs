//! Sends one round to the instances, gives its verdict (P4), and follows the rest (P6).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::Shared;
use super::background_release::{OutstandingCall, PendingRelease};
use crate::instance::{Call, Claim, Request};
use crate::protocol::{InstanceId, InstanceSet, Refusal, Reply, Round, Verdict};

/// What becomes of the keys when the flight ends, however it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDrop {
    /// They stay: the round was won, will be repeated, was an extend (P8), or has been settled.
    LeaveKeys,
    /// The round was not won: every instance that may hold them must release them (P5), and put back
    /// what it took over for them (P23).
    ReleaseKeys,
    /// They were being released: what is not known to be gone is still owed (P6, P7).
    FinishRelease,
}

/// One round on its way. It belongs to a task of the client, so that it goes on whoever polls (P22).
/// Dropping it at any time leaves nothing behind: stragglers are followed and what must be released is
/// released in the background (P6).
pub(super) struct RoundInFlight {
    shared: Arc<Shared>,
    pub(super) round: Round,
    request: Request,
    calls: Vec<Option<Call>>,
    /// Instances asked by an earlier send of the same value, to be released with this one.
    pub(super) asked_before: InstanceSet,
    pub(super) on_drop: OnDrop,
}

impl RoundInFlight {
    /// Queues the request on all `targets`. The others count as having nothing (release only). Needs
    /// no runtime: it is sent by whoever asks, and a task goes on from there.
    pub(super) fn launch(shared: &Arc<Shared>, mut round: Round, request: Request, targets: InstanceSet) -> Self {
        let now = shared.clock.now();
        let mut calls = Vec::with_capacity(shared.instances.len());
        for (id, instance) in InstanceId::all(shared.instances.len()).zip(shared.instances.iter()) {
            if targets.contains(id) {
                calls.push(Some(instance.call(request.clone())));
            } else {
                round.on_reply(id, Reply::Refused(Refusal::default()), now);
                calls.push(None);
            }
        }
        let on_drop = match request {
            Request::Acquire(_) => OnDrop::ReleaseKeys,
            Request::Extend(_) | Request::Enter(_) => OnDrop::LeaveKeys,
            Request::Release(_) | Request::GiveBack(_) => OnDrop::FinishRelease,
        };
        Self { shared: Arc::clone(shared), round, request, calls, asked_before: InstanceSet::default(), on_drop }
    }

    /// Waits for the verdict, and not for any instance longer than that.
    pub(super) async fn verdict(&mut self) -> Verdict {
        let now = self.shared.clock.now();
        match self.round.useful_before().map(|end| end.saturating_since(now)) {
            // Each call ends by its own deadline; another timer is needed only if victory would be
            // worthless before that.
            Some(useful) if useful < self.shared.instance_timeout => {
                let mut wait = useful;
                loop {
                    if let Ok(verdict) = timeout(wait, self.decided()).await {
                        return verdict;
                    }
                    wait = Duration::from_millis(1); // timers only wake, the clock decides (P3)
                }
            }
            _ => self.decided().await,
        }
    }

    async fn decided(&mut self) -> Verdict {
        poll_fn(|cx| {
            // Also past the verdict: an error names everything that is known by now, and says "held"
            // or "down" by all of it.
            self.poll_calls(cx);
            // P4: whoever has not answered is not waited for.
            match self.round.verdict(self.shared.clock.now()) {
                Verdict::Pending => Poll::Pending,
                verdict => Poll::Ready(verdict),
            }
        })
        .await
    }

    /// Follows the stragglers to their end (P6); `heard` looks at the round after each that answers.
    pub(super) async fn follow(&mut self, mut heard: impl FnMut(&Round)) {
        poll_fn(|cx| {
            if self.poll_calls(cx) {
                heard(&self.round);
            }
            if self.calls.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes in what has come; whether anything has.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        for (id, call) in InstanceId::all(self.calls.len()).zip(self.calls.iter_mut()) {
            let Some(pending) = call else { continue };
            if let Poll::Ready(reply) = pending.as_mut().poll(cx) {
                *call = None;
                any = true;
                self.round.on_reply(id, reply, self.shared.clock.now());
            }
        }
        any
    }

    pub(super) const fn request(&self) -> &Request {
        &self.request
    }

    pub(super) const fn claim(&self) -> &Arc<Claim> {
        self.request.claim()
    }

    /// Queues the releases that are owed, behind the round's own requests (P6). What is still on its
    /// way is followed by [`follow`](Self::follow).
    pub(super) fn release(&mut self) {
        let owed = match self.on_drop {
            OnDrop::ReleaseKeys => self.round.must_release().union(self.asked_before),
            OnDrop::LeaveKeys | OnDrop::FinishRelease => return,
        };
        self.on_drop = OnDrop::LeaveKeys;
        if !owed.is_empty() {
            self.shared.release_in_background(&Request::give_back(Arc::clone(self.request.claim())), owed);
        }
    }

    /// Whether a release of this instance's key is still owed after its answer, or lack of one.
    fn is_owed(&self, id: InstanceId) -> bool {
        let answer = self.round.answers().get(id.index()).and_then(Option::as_ref);
        answer.is_none_or(|answer| matches!(answer.reply, Reply::NotSent(_) | Reply::Unknown(_)))
    }
}

impl Drop for RoundInFlight {
    fn drop(&mut self) {
        let pays = self.on_drop == OnDrop::FinishRelease;
        let mut owed: InstanceSet = InstanceId::all(self.calls.len()).filter(|id| pays && self.is_owed(*id)).collect();
        let now = self.shared.clock.now();
        let calls = InstanceId::all(self.calls.len()).zip(self.calls.iter_mut()).filter_map(|(id, call)| {
            let call = call.take()?;
            owed.remove(id); // this very call is the release
            Some(OutstandingCall { id, call, debt: pays.then(|| PendingRelease::of(self.request.clone(), now)) })
        });
        let calls: Vec<OutstandingCall> = calls.collect();
        if !calls.is_empty() {
            self.shared.releaser.follow(calls);
        }
        if !owed.is_empty() {
            self.shared.release_in_background(&self.request, owed);
        }
        self.release();
    }
}
