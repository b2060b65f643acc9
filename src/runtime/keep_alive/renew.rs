//! Renews leases before they end (P19): those that are due together share commands to each instance.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::table::{SendOrder, SharedLeaseTable};
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, ReplyTo, Request, TakesReplies};
use crate::protocol::{Cause, InstanceId, Instant, Quorum, RenewalSchedule, Reply, Verdict};
use crate::runtime::counters::Counters;
use crate::runtime::held_lease::{HeldLease, HeldLeaseState, who_did_not_grant};

/// The most replies that are taken in at once.
const MOST_REPLIES: usize = 1024;

/// A lease that is to be renewed now.
type Due = (Arc<HeldLease>, Arc<Claim>);

/// What becomes of a lease that is due.
enum NextStep {
    /// It has ended.
    Remove,
    /// It is not renewed now; it is due again at `next_at`.
    Wait { next_at: Instant },
    /// It is renewed, and is due again at `next_at` whatever the answer.
    Renew { next_at: Instant, claim: Arc<Claim> },
}

/// What a reply has made of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RenewalOutcome {
    /// It has ended.
    Ended,
    /// It is held.
    Held,
    /// It is held, and this renewal of it is won.
    Renewed,
    /// It is held, and this renewal of it is lost.
    Failed(FailedRenewal),
}

/// What the log says of a renewal that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FailedRenewal {
    /// Whether the one before was won.
    is_first: bool,
    cause: String,
    /// How long the lease is still valid.
    remaining: Duration,
}

/// Leases whose renewal was begun together.
struct RenewalBatch {
    started_at: Instant,
    leases: Vec<Arc<HeldLease>>,
    /// Whether nothing was sent for it before.
    is_first: bool,
    replies: mpsc::UnboundedSender<RenewalReply>,
}

impl TakesReplies for RenewalBatch {
    fn take(self: Arc<Self>, instance: InstanceId, number: usize, reply: Reply) {
        let replies = self.replies.clone();
        let _ = replies.send(RenewalReply { batch: self, instance, number, reply }); // the task of the leases may be gone
    }
}

/// What one instance answered for one lease of a batch.
pub(super) struct RenewalReply {
    batch: Arc<RenewalBatch>,
    instance: InstanceId,
    /// Which lease.
    number: usize,
    reply: Reply,
}

/// Leases that one instance has extended, which ended its watch of their keys.
pub(super) struct Confirmed {
    pub(super) by: InstanceId,
    pub(super) leases: Vec<Arc<HeldLease>>,
    /// Those of them whose key was set again.
    pub(super) repaired: Vec<Arc<HeldLease>>,
}

pub(super) struct Renewer {
    instances: Arc<[RedisInstance]>,
    quorum: Quorum,
    clock: Arc<dyn Clock>,
    table: Arc<SharedLeaseTable>,
    /// What instances answer, by way of the batches.
    sender: mpsc::UnboundedSender<RenewalReply>,
    replies: mpsc::UnboundedReceiver<RenewalReply>,
    counters: Arc<Counters>,
}

impl Renewer {
    pub(super) fn new(
        instances: Arc<[RedisInstance]>,
        quorum: Quorum,
        clock: Arc<dyn Clock>,
        table: Arc<SharedLeaseTable>,
        counters: Arc<Counters>,
    ) -> Self {
        let (sender, replies) = mpsc::unbounded_channel();
        Self { instances, quorum, clock, table, sender, replies, counters }
    }

    /// The replies that have come, once there are some.
    pub(super) async fn next_replies(&mut self) -> Vec<RenewalReply> {
        let mut replies = Vec::new();
        self.replies.recv_many(&mut replies, MOST_REPLIES).await;
        replies
    }

    /// Begins a renewal of every lease that is due. Returns when the next will be.
    pub(super) fn renew_due(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut table = self.table.lock_send_order();
        let mut due: Vec<Due> = Vec::new();
        let (mut over, mut long_held) = (Vec::new(), Vec::new());
        while let Some(held) = table.pop_due(now) {
            let mut state = held.state();
            state.schedule_key = None;
            let claim = match self.begin(&mut state, now) {
                NextStep::Remove => {
                    drop(state);
                    table.remove(&held);
                    over.push(held);
                    continue;
                }
                NextStep::Wait { next_at } => {
                    table.schedule(&held, &mut state, next_at);
                    continue;
                }
                NextStep::Renew { next_at, claim } => {
                    table.schedule(&held, &mut state, next_at);
                    claim
                }
            };
            if state.is_long_held(now) {
                long_held.push(Arc::clone(&held));
            }
            drop(state);
            due.push((held, claim));
        }
        if !due.is_empty() {
            self.send(&table, due, now);
        }
        let next = table.mark_asleep();
        drop(table); // those who wait are told without it
        over.iter().for_each(|held| drop(held.ended(&*self.clock)));
        for held in &long_held {
            if let Some(times) = self.counters.renewal_warnings.note(now) {
                held.tell_long_held(now, times);
            }
        }
        next
    }

    fn begin(&self, state: &mut HeldLeaseState, now: Instant) -> NextStep {
        if state.has_ended() || !state.lease.is_valid(now) {
            return NextStep::Remove;
        }
        let valid_until = state.lease.valid_until();
        if !state.is_renewed_at(now) {
            return NextStep::Wait { next_at: valid_until };
        }
        let terms = state.renewal_terms();
        let next_at = RenewalSchedule::new(terms.ttl()).after_failure(now).min(valid_until);
        if state.renewal.as_mut().is_some_and(|round| round.verdict(now) == Verdict::Pending) {
            return NextStep::Wait { next_at }; // its answers may still come
        }
        let Ok(round) = state.lease.begin_extend(self.quorum, terms, now) else { return NextStep::Remove };
        state.renewal = Some(Box::new(round));
        state.renewal_started_at = now;
        NextStep::Renew { next_at, claim: state.claim_to_extend(terms.ttl()) }
    }

    fn send(&self, order: &SendOrder<'_>, due: Vec<Due>, started_at: Instant) {
        let (leases, claims): (Vec<_>, Vec<_>) = due.into_iter().unzip();
        let batch = Arc::new(RenewalBatch { started_at, leases, is_first: true, replies: self.sender.clone() });
        for id in InstanceId::all(self.instances.len()) {
            self.send_to(order, id, &batch, &claims);
        }
    }

    fn send_to(&self, _order: &SendOrder<'_>, id: InstanceId, batch: &Arc<RenewalBatch>, claims: &[Arc<Claim>]) {
        let Some(instance) = self.instances.get(id.index()) else { return };
        let request = |(number, claim): (usize, &Arc<Claim>)| {
            let reply_to = ReplyTo::numbered(Arc::clone(batch) as Arc<_>, id, number);
            (Request::Extend(Arc::clone(claim)), reply_to)
        };
        instance.call_all(claims.iter().enumerate().map(request).collect());
    }

    /// Feeds replies to the rounds of their leases. Gives those that instances have extended.
    pub(super) fn on_replies(&self, replies: Vec<RenewalReply>) -> Vec<Confirmed> {
        let mut confirmed: Vec<Confirmed> = InstanceId::all(self.instances.len())
            .map(|by| Confirmed { by, leases: Vec::new(), repaired: Vec::new() })
            .collect();
        for RenewalReply { batch, instance, number, reply } in replies {
            let Some(held) = batch.leases.get(number) else { continue };
            if matches!(reply, Reply::NotSent(Cause::ScriptMissing)) && batch.is_first {
                self.ask_again(held, batch.started_at, instance);
                continue;
            }
            let is_repaired = reply == Reply::Repaired;
            let granted = is_repaired || reply == Reply::Granted;
            if self.record_reply(held, batch.started_at, instance, reply)
                && granted
                && let Some(by) = confirmed.get_mut(instance.index())
            {
                by.repaired.extend(is_repaired.then(|| Arc::clone(held)));
                by.leases.push(Arc::clone(held));
            }
        }
        confirmed.retain(|confirmed| !confirmed.leases.is_empty());
        confirmed
    }

    /// The instance has lost its scripts, which are on their way to it again.
    fn ask_again(&self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId) {
        let order = self.table.lock_send_order();
        let state = held.state();
        let is_open = state.renewal.as_ref().is_some_and(|round| round.started_at() == started_at);
        if is_open && !state.has_ended() {
            let (leases, replies) = (vec![Arc::clone(held)], self.sender.clone());
            let batch = Arc::new(RenewalBatch { started_at, leases, is_first: false, replies });
            self.send_to(&order, id, &batch, &[Arc::clone(&state.claim)]);
        }
    }

    /// Takes in one reply; whether the lease is still held after it.
    fn record_reply(&self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId, reply: Reply) -> bool {
        let mut table = self.table.lock_send_order();
        // Counts whatever has become of the round (P20).
        let notice = held.note_reply(id, &reply, started_at, &*self.clock);
        let outcome = self.feed_round(&mut table, held, started_at, (id, reply));
        drop(table);
        notice.tell();
        match &outcome {
            RenewalOutcome::Renewed => self.counters.renewal_decided(true),
            RenewalOutcome::Failed(failed) => {
                self.counters.renewal_decided(false);
                self.tell_failure(held, failed);
            }
            RenewalOutcome::Ended | RenewalOutcome::Held => {}
        }
        outcome != RenewalOutcome::Ended
    }

    /// The first failure of a lease is a warning, unless many leases fail at once.
    fn tell_failure(&self, held: &HeldLease, failed: &FailedRenewal) {
        let resource = held.claim().resource.display();
        let FailedRenewal { is_first, cause, remaining } = failed;
        let times = is_first.then(|| self.counters.renewal_warnings.note(self.clock.now())).flatten();
        if let Some(times) = times {
            tracing::warn!(resource, cause, ?remaining, times, "not renewed, will be tried again");
        } else {
            tracing::debug!(resource, cause, ?remaining, "not renewed, will be tried again");
        }
    }

    fn feed_round(
        &self,
        table: &mut SendOrder<'_>,
        held: &Arc<HeldLease>,
        started_at: Instant,
        (id, reply): (InstanceId, Reply),
    ) -> RenewalOutcome {
        let mut state = held.state();
        if state.has_ended() {
            drop(state);
            table.remove(held);
            return RenewalOutcome::Ended;
        }
        let now = self.clock.now(); // P9: read after the lease is locked
        let Some(mut round) = state.renewal.take_if(|round| round.started_at() == started_at) else {
            return RenewalOutcome::Held;
        };
        let was_pending = round.verdict(now) == Verdict::Pending;
        round.on_reply(id, reply, now);
        let schedule = RenewalSchedule::new(state.lease.terms().ttl());
        let mut outcome = RenewalOutcome::Held;
        match round.verdict(now) {
            Verdict::Won if was_pending && state.settle(&mut round, now).is_some() => {
                let due = schedule.after_success(started_at).min(state.lease.valid_until());
                table.schedule(held, &mut state, due);
                outcome = RenewalOutcome::Renewed;
            }
            Verdict::Lost if was_pending => {
                let is_first = state.note_failure(&round);
                let (cause, remaining) = (who_did_not_grant(&round), state.lease.remaining(now));
                outcome = RenewalOutcome::Failed(FailedRenewal { is_first, cause, remaining });
                let due = schedule.after_failure(started_at).max(now).min(state.lease.valid_until());
                table.schedule(held, &mut state, due);
            }
            _ => {}
        }
        if round.verdict(now) == Verdict::Won && round.has_repaired() {
            // P19: until the others are asked again, they may have lost the key before it was set.
            let soon = schedule.after_failure(started_at).max(now).min(state.lease.valid_until());
            if state.schedule_key.is_none_or(|planned| soon < planned.due) {
                table.schedule(held, &mut state, soon);
            }
        }
        // Decided, but answers that are still to come may show that it is gone.
        let is_lost = round.verdict(now) == Verdict::Lost;
        let is_complete = round.replies().iter().all(Option::is_some);
        if !is_lost && !is_complete {
            state.renewal = Some(round);
        }
        outcome
    }

    /// Goes on after a panic: the answers to what was under way may be lost.
    pub(super) fn recover(&self) {
        self.table.lock_send_order().recover(self.clock.now());
    }

    /// Renews a lease as soon as its pace allows.
    pub(super) fn renew_soon(&self, held: &Arc<HeldLease>) {
        let now = self.clock.now();
        let mut table = self.table.lock_send_order();
        let mut state = held.state();
        if state.is_renewed() && !state.has_ended() {
            let soonest = RenewalSchedule::new(state.lease.terms().ttl()).after_failure(state.renewal_started_at);
            let due = soonest.max(now).min(state.lease.valid_until());
            if state.schedule_key.is_none_or(|planned| due < planned.due) {
                table.schedule(held, &mut state, due);
            }
        }
    }
}
