//! Renews leases before they end (P19): those that are due together go to each instance in one
//! command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{KeepAliveTask, TaskEvent};
use crate::instance::{Claim, Request, split_into_commands};
use crate::protocol::{InstanceId, Instant, RenewalPlan, Reply, Verdict};
use crate::runtime::held_lease::{HeldLease, HeldLeaseState};

/// The most leases in one command: an instance does nothing else meanwhile.
const MAX_BATCH: usize = 128;

/// A lease that is to be renewed now.
type Due = (Arc<HeldLease>, Arc<Claim>);

/// Leases whose renewal was begun together.
struct RenewalBatch {
    started_at: Instant,
    leases: Vec<Arc<HeldLease>>,
}

/// What one instance said to a batch.
pub(super) struct BatchReplies {
    batch: Arc<RenewalBatch>,
    id: InstanceId,
    replies: Vec<Option<Reply>>,
}

impl KeepAliveTask {
    /// Begins a renewal of every lease that is due; gives when the next will be.
    pub(super) fn renew_due(&self) -> Option<Instant> {
        let now = self.now();
        let mut table = self.table();
        let mut together: BTreeMap<Duration, Vec<Due>> = BTreeMap::new();
        let (mut whole, mut refreshed) = (Vec::new(), 0);
        while let Some(held) = table.pop_due(now) {
            let mut state = held.state();
            state.due = None;
            let Some((next, claim)) = self.begin(&mut state, now) else {
                drop(state);
                let _ = held.ended(&*self.clock); // its validity has passed: whoever waits is told
                table.remove(&held);
                continue;
            };
            table.schedule(&held, &mut state, next);
            let Some(claim) = claim else { continue };
            // P13: a batch leaves the token alone. Few at a time, or a client with many leases would fill
            // its lane; the others have their turn with their next renewal.
            let refreshes = claim.resources.len() == 1 && refreshed < MAX_BATCH && state.refreshes_token(now);
            drop(state);
            refreshed += usize::from(refreshes);
            if refreshes || claim.resources.len() > 1 {
                whole.push((held, claim));
            } else {
                together.entry(claim.ttl).or_default().push((held, claim));
            }
        }
        // Sent while the book is locked: a release that comes now is sent behind.
        for leases in together.into_values() {
            split_into_commands(&leases, MAX_BATCH, |(_, claim)| claim.command_size())
                .for_each(|leases| self.send(leases, now, false));
        }
        whole.chunks(1).for_each(|lease| self.send(lease, now, true));
        table.mark_asleep()
    }

    /// When the lease is due next, and the claim if it is to be renewed now. `None` if it has ended.
    fn begin(&self, state: &mut HeldLeaseState, now: Instant) -> Option<(Instant, Option<Arc<Claim>>)> {
        if state.has_ended() || !state.lease.is_valid(now) {
            return None;
        }
        let valid_until = state.lease.valid_until();
        if !state.policy.renews_at(now) {
            return Some((valid_until, None));
        }
        let terms = state.lease.terms();
        let again = RenewalPlan::new(terms.ttl()).after_failure(now);
        let next = again.min(valid_until);
        if state.round.as_mut().is_some_and(|round| round.verdict(now) == Verdict::Pending) {
            return Some((next, None)); // its answers may still come
        }
        let round = state.lease.begin_extend(self.quorum, terms, now).ok()?;
        state.round = Some(Box::new(round));
        state.renewal_started_at = now;
        Some((next, Some(state.claim_to_extend(terms.ttl()))))
    }

    fn send(&self, leases: &[Due], started_at: Instant, whole: bool) {
        let (leases, claims): (Vec<_>, Vec<_>) = leases.iter().cloned().unzip();
        let batch = Arc::new(RenewalBatch { started_at, leases });
        for (id, instance) in InstanceId::all(self.instances.len()).zip(self.instances.iter()) {
            let batch = Arc::clone(&batch);
            let replies = match claims.as_slice() {
                [one] if whole => {
                    let call = instance.call(Request::Extend(Arc::clone(one)));
                    Box::pin(async move { vec![Some(call.await)] })
                }
                _ => instance.renew(claims.clone()),
            };
            self.in_flight.push(Box::pin(async move {
                TaskEvent::BatchReplies(BatchReplies { batch, id, replies: replies.await })
            }));
        }
    }

    /// Feeds the answers of one instance to the rounds of its batch.
    pub(super) fn on_batch_replies(&mut self, renewed: BatchReplies) {
        let BatchReplies { batch, id, replies } = renewed;
        let mut confirmed = Vec::new();
        for (held, reply) in batch.leases.iter().zip(replies) {
            match reply {
                Some(reply) => {
                    let granted = matches!(reply, Reply::Granted | Reply::Repaired);
                    if self.take_in(held, batch.started_at, id, reply) && granted {
                        confirmed.push(Arc::clone(held));
                    }
                }
                None => self.extend_alone(held, batch.started_at, id),
            }
        }
        self.recheck(confirmed, id);
    }

    /// P10: the instance does not have the key as expected; a whole extend says why, and repairs.
    fn extend_alone(&self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId) {
        let _nothing_is_released_meanwhile = self.table();
        let state = held.state();
        let is_open = state.round.as_ref().is_some_and(|round| round.started_at() == started_at);
        let Some(instance) = self.instances.get(id.index()).filter(|_| is_open && !state.has_ended()) else { return };
        let call = instance.call(Request::Extend(Arc::clone(&state.claim)));
        let batch = Arc::new(RenewalBatch { started_at, leases: vec![Arc::clone(held)] });
        self.in_flight.push(Box::pin(async move {
            TaskEvent::BatchReplies(BatchReplies { batch, id, replies: vec![Some(call.await)] })
        }));
    }

    /// One answer; false if the lease has ended, by now or with it.
    fn take_in(&self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId, reply: Reply) -> bool {
        let mut table = self.table();
        // Counts whatever has become of the round (P20).
        held.note_answer(id, &reply, started_at);
        let mut state = held.state();
        if state.has_ended() {
            drop(state);
            table.remove(held);
            return false;
        }
        let now = self.now(); // P9: read after the lease is locked
        let Some(mut round) = state.round.take_if(|round| round.started_at() == started_at) else { return true };
        let was_pending = round.verdict(now) == Verdict::Pending;
        round.on_reply(id, reply, now);
        let terms = state.lease.terms();
        let plan = RenewalPlan::new(terms.ttl());
        match round.verdict(now) {
            Verdict::Won if was_pending && state.settle(&mut round, now).is_some() => {
                let due = plan.after_success(started_at).min(state.lease.valid_until());
                table.schedule(held, &mut state, due);
            }
            Verdict::Lost if was_pending => {
                tracing::debug!(resources = state.claim.resources.display_all(), "not renewed, will be tried again");
                state.note_failure(&round);
                let due = plan.after_failure(started_at).max(now).min(state.lease.valid_until());
                table.schedule(held, &mut state, due);
            }
            _ => {}
        }
        // Decided, but answers that are still to come may show that it is gone.
        let is_lost = round.verdict(now) == Verdict::Lost;
        let is_complete = round.answers().iter().all(Option::is_some);
        if !is_lost && !is_complete {
            state.round = Some(round);
        }
        true
    }

    /// Renews a lease as soon as its pace allows.
    pub(super) fn renew_soon(&self, held: &Arc<HeldLease>) {
        let now = self.now();
        let mut table = self.table();
        let mut state = held.state();
        if state.policy.renews && !state.has_ended() {
            let soonest = RenewalPlan::new(state.lease.terms().ttl()).after_failure(state.renewal_started_at);
            let due = soonest.max(now).min(state.lease.valid_until());
            if state.due.is_none_or(|(planned, _)| due < planned) {
                table.schedule(held, &mut state, due);
            }
        }
    }
}
