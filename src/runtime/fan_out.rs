//! Sends one round to the instances and returns at the verdict (P4).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::Shared;
use super::acquire::Failure;
use super::cleanup::{Debt, Straggler};
use crate::instance::{Call, Claim, Request};
use crate::protocol::{InstanceId, InstanceSet, Refusal, Reply, Round, Verdict};

/// What becomes of the keys when the flight ends, however it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// They stay: the round was won, will be repeated, or was an extend (P8).
    Keep,
    /// Every instance that may hold them must release them (P5).
    Release,
    /// They were being released: what is not known to be gone is still owed (P6, P7).
    Collect,
}

/// One round on its way. Dropping it at any time leaves nothing behind: stragglers are followed
/// and what must be released is released in the background (P6).
pub(super) struct Flight<'a> {
    shared: &'a Shared,
    pub(super) round: Round,
    request: Request,
    calls: Vec<Option<Call>>,
    /// Instances asked by an earlier send of the same value, to be released with this one.
    pub(super) asked_before: InstanceSet,
    pub(super) at_end: AtEnd,
}

impl<'a> Flight<'a> {
    /// Queues the request on all `targets`. The others count as having nothing (release only).
    pub(super) fn launch(shared: &'a Shared, mut round: Round, request: Request, targets: InstanceSet) -> Self {
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
        let at_end = match request {
            Request::Acquire(_) => AtEnd::Release,
            Request::Extend(_) => AtEnd::Keep,
            Request::Release(_) => AtEnd::Collect,
        };
        Self { shared, round, request, calls, asked_before: InstanceSet::default(), at_end }
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
                    if let Ok(verdict) = timeout(wait, self.collect()).await {
                        return verdict;
                    }
                    wait = Duration::from_millis(1); // timers only wake, the clock decides (P3)
                }
            }
            _ => self.collect().await,
        }
    }

    async fn collect(&mut self) -> Verdict {
        poll_fn(|cx| {
            for (id, call) in InstanceId::all(self.calls.len()).zip(self.calls.iter_mut()) {
                let Some(pending) = call else { continue };
                if let Poll::Ready(reply) = pending.as_mut().poll(cx) {
                    *call = None;
                    // Also past the verdict: an error names everything that is known by now, and
                    // says "held" or "down" by all of it.
                    self.round.on_reply(id, reply, self.shared.clock.now());
                }
            }
            // P4: whoever has not answered is not waited for.
            match self.round.verdict(self.shared.clock.now()) {
                Verdict::Pending => Poll::Pending,
                verdict => Poll::Ready(verdict),
            }
        })
        .await
    }

    /// Ends a flight that did not win.
    pub(super) fn lost(self) -> Failure {
        Failure::Lost(Box::new(self.round.clone()))
    }

    pub(super) fn claim(&self) -> &Arc<Claim> {
        self.request.claim()
    }

    /// Whether a release of this instance's key is still owed after its answer, or lack of one.
    fn is_owed(&self, id: InstanceId) -> bool {
        let answer = self.round.answers().get(id.index()).and_then(Option::as_ref);
        answer.is_none_or(|answer| matches!(answer.reply, Reply::NotSent(_) | Reply::Unknown(_)))
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let owed = match self.at_end {
            AtEnd::Keep => InstanceSet::default(),
            AtEnd::Release => self.round.must_release().union(self.asked_before),
            AtEnd::Collect => InstanceId::all(self.calls.len()).filter(|id| self.is_owed(*id)).collect(),
        };
        let now = self.shared.clock.now();
        let mut unsent = owed;
        let stragglers = InstanceId::all(self.calls.len()).zip(self.calls.iter_mut()).filter_map(|(id, call)| {
            let call = call.take()?;
            let pays = self.at_end == AtEnd::Collect;
            if pays {
                unsent.remove(id); // this very call is the release
            }
            let debt = pays.then(|| Debt::of(self.request.claim(), now));
            Some(Straggler { id, call, debt })
        });
        let stragglers: Vec<Straggler> = stragglers.collect();
        if !stragglers.is_empty() {
            self.shared.cleaner.follow(stragglers);
        }
        if !unsent.is_empty() {
            // Behind the round's own requests in each instance's queue (P6).
            self.shared.release_in_background(self.request.claim(), unsent);
        }
    }
}
