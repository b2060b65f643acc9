//! The task that keeps the leases of a client alive.
//!
//! It renews them before they end (P19); those that are due together share commands to each instance. And it checks their keys when
//! an instance pushes that they changed (P20). A push is no proof: tables overflow, connections break. What counts is what the
//! instance has when it is looked at.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::table::{SendOrder, SharedLeaseTable};
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, Invalidation, KeyState, ReplyTo, Request, TakesReplies, split_into_commands};
use crate::protocol::{Cause, InstanceId, InstanceSet, Instant, Quorum, RenewalSchedule, Reply, Round, Verdict};
use crate::runtime::counters::Counters;
use crate::runtime::held_lease::{HeldLease, HeldLeaseState, who_did_not_grant};
use crate::runtime::observed::Observed;
use crate::runtime::tasks::ran_to_its_end;

/// The longest sleep while a lease is held: timers stand still while the machine sleeps, so the
/// clock is read this often to notice a lease that ended meanwhile (P3).
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// How many leases are renewed at once, on average over the instances. After a pause of the process tens of thousands may be due: sent
/// together they would wait for longer than the instance timeout, and with them all that other callers send.
const MOST_UNDER_WAY: usize = 4096;

/// The longest sleep while so many are under way, as a reply wakes the task.
const SLEEP_WHILE_FULL: Duration = Duration::from_millis(20);

/// The most replies that are taken in at once.
const MOST_REPLIES: usize = 1024;

/// The most leases in one key check.
const MAX_CHECKED: usize = 128;

/// What the task needs.
pub(crate) struct KeepAliveParts {
    pub(crate) instances: Arc<[RedisInstance]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    /// Notified when the clock was put forward.
    pub(crate) clock_moved: Arc<Notify>,
    /// Pushes of the instances.
    pub(crate) invalidations: mpsc::Receiver<Invalidation>,
    /// The most keys that are watched.
    pub(crate) most_watched: usize,
    pub(crate) counters: Arc<Counters>,
}

/// Requests to the task.
#[derive(Debug)]
pub(super) enum TaskMessage {
    /// A lease is due earlier than the task would wake.
    Wake,
    /// A task waits for the loss of this lease.
    Watch(Arc<HeldLease>),
    /// These instances have extended a lease that is watched, which ended their watch of its keys.
    Recheck(Arc<HeldLease>, InstanceSet),
}

/// What a reply means for a lease.
enum RenewalOutcome {
    /// It has ended.
    Ended,
    /// It is held.
    Held,
    /// It is held, and this renewal of it is won.
    Renewed,
    /// It is held, and this renewal of it is lost.
    Failed {
        /// Whether the one before was won.
        is_first: bool,
        round: Box<Round>,
        /// How long the lease is still valid.
        remaining: Duration,
    },
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
struct RenewalReply {
    batch: Arc<RenewalBatch>,
    instance: InstanceId,
    /// Which lease.
    number: usize,
    reply: Reply,
}

/// What one instance has of some leases.
struct CheckedKeys {
    leases: Vec<Arc<HeldLease>>,
    instance: InstanceId,
    sent: Instant,
    /// By lease.
    keys: Vec<KeyState>,
}

pub(super) struct KeepAliveTask {
    parts: KeepAliveParts,
    table: Arc<SharedLeaseTable>,
    observed: Arc<Observed>,
    messages: mpsc::UnboundedReceiver<TaskMessage>,
    /// What instances answer, by way of the batches.
    sender: mpsc::UnboundedSender<RenewalReply>,
    replies: mpsc::UnboundedReceiver<RenewalReply>,
    /// How many replies to renewals are outstanding. After a panic some may be counted that were lost: it begins anew then.
    outstanding: usize,
    /// The key checks that are not answered yet.
    checks: FuturesUnordered<BoxFuture<'static, CheckedKeys>>,
}

impl KeepAliveTask {
    pub(super) fn new(
        parts: KeepAliveParts,
        table: Arc<SharedLeaseTable>,
        observed: Arc<Observed>,
        messages: mpsc::UnboundedReceiver<TaskMessage>,
    ) -> Self {
        let (sender, replies) = mpsc::unbounded_channel();
        Self { parts, table, observed, messages, sender, replies, outstanding: 0, checks: FuturesUnordered::new() }
    }

    pub(super) async fn run(mut self) {
        while !ran_to_its_end("renews leases", self.serve()).await {
            self.table.lock_send_order().recover(self.now()); // the answers to what was under way may be lost
            self.outstanding = 0;
        }
    }

    async fn serve(&mut self) {
        let mut replies = Vec::new();
        loop {
            let next = self.renew_due();
            let pause = next.map(|next| next.saturating_since(self.now()).min(LONGEST_SLEEP));
            tokio::select! {
                biased; // answers first, and what leads to more questions last
                count = self.replies.recv_many(&mut replies, MOST_REPLIES) => {
                    self.outstanding = self.outstanding.saturating_sub(count);
                    self.on_replies(replies.drain(..));
                }
                Some(checked) = self.checks.next() => self.on_checked(checked),
                message = self.messages.recv() => match message {
                    Some(TaskMessage::Wake) => {}
                    Some(TaskMessage::Watch(held)) => self.watch(&held),
                    Some(TaskMessage::Recheck(held, instances)) => self.check_on(&held, instances),
                    None => return,
                },
                Some(invalidation) = self.parts.invalidations.recv() => {
                    self.observed.changed(&invalidation.keys);
                    self.on_invalidation(&invalidation);
                }
                () = self.parts.clock_moved.notified() => {} // P17: leases that have ended by that are reported at once
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn now(&self) -> Instant {
        self.parts.clock.now()
    }
}

/// Renewals.
impl KeepAliveTask {
    /// Begins a renewal of every lease that is due, unless too many are under way: then of the first. Returns when the next will be.
    fn renew_due(&mut self) -> Option<Instant> {
        let now = self.now();
        let instances = self.parts.instances.len();
        let room = MOST_UNDER_WAY.saturating_sub(self.outstanding / instances.max(1));
        let mut table = self.table.lock_send_order();
        let (mut leases, mut claims) = (Vec::new(), Vec::new());
        let (mut over, mut long_held) = (Vec::new(), Vec::new());
        while leases.len() < room
            && let Some(held) = table.pop_due(now)
        {
            let mut state = held.state();
            state.schedule_key = None;
            let Some((next_at, claim)) = self.begin(&mut state, now) else {
                drop(state);
                table.remove(&held);
                over.push(held);
                continue;
            };
            table.schedule(&held, &mut state, next_at);
            let Some(claim) = claim else { continue };
            if state.is_long_held(now) {
                long_held.push(Arc::clone(&held));
            }
            drop(state);
            leases.push(held);
            claims.push(claim);
        }
        let is_full = leases.len() == room;
        if !leases.is_empty() {
            self.outstanding += leases.len() * instances;
            let batch = RenewalBatch { started_at: now, leases, is_first: true, replies: self.sender.clone() };
            let batch = Arc::new(batch);
            InstanceId::all(instances).for_each(|id| self.send_to(&table, id, &batch, &claims));
        }
        let next = table.mark_asleep();
        let next = if is_full { next.map(|next| next.max(now.saturating_add(SLEEP_WHILE_FULL))) } else { next };
        drop(table); // waiting tasks are notified without it
        over.iter().for_each(|held| drop(held.ended(&*self.parts.clock)));
        for held in &long_held {
            if let Some(times) = self.parts.counters.renewal_warnings.note(now) {
                held.tell_long_held(now, times);
            }
        }
        next
    }

    /// When a lease is due again that is due now, and what is sent for it, if it is renewed now; `None` if it has ended.
    fn begin(&self, state: &mut HeldLeaseState, now: Instant) -> Option<(Instant, Option<Arc<Claim>>)> {
        if state.has_ended() || !state.lease.is_valid(now) {
            return None;
        }
        let valid_until = state.lease.valid_until();
        if !state.is_renewed_at(now) {
            return Some((valid_until, None));
        }
        let terms = state.renewal_terms();
        let next_at = RenewalSchedule::new(terms.ttl()).after_failure(now).min(valid_until); // with any answer
        if state.renewal.as_mut().is_some_and(|round| round.verdict(now) == Verdict::Pending) {
            return Some((next_at, None)); // its answers may still come
        }
        let round = state.lease.begin_extend(self.parts.quorum, terms, now).ok()?;
        state.renewal = Some(Box::new(round));
        state.renewal_started_at = now;
        Some((next_at, Some(state.claim_to_extend(terms.ttl()))))
    }

    fn send_to(&self, _order: &SendOrder<'_>, id: InstanceId, batch: &Arc<RenewalBatch>, claims: &[Arc<Claim>]) {
        let Some(instance) = self.parts.instances.get(id.index()) else { return };
        let request = |(number, claim): (usize, &Arc<Claim>)| {
            let reply_to = ReplyTo::numbered(Arc::clone(batch) as Arc<_>, id, number);
            (Request::Extend(Arc::clone(claim)), reply_to)
        };
        instance.call_all(claims.iter().enumerate().map(request).collect());
    }

    /// Feeds replies to the rounds of their leases. Those that instances have extended are watched again.
    fn on_replies(&mut self, replies: impl Iterator<Item = RenewalReply>) {
        let mut extended = vec![Vec::new(); self.parts.instances.len()];
        for RenewalReply { batch, instance, number, reply } in replies {
            let Some(held) = batch.leases.get(number) else { continue };
            if matches!(reply, Reply::NotSent(Cause::ScriptMissing)) && batch.is_first {
                self.ask_again(held, batch.started_at, instance);
                continue;
            }
            let is_extended = matches!(reply, Reply::Repaired | Reply::Granted);
            if self.record_reply(held, batch.started_at, instance, reply)
                && is_extended
                && let Some(leases) = extended.get_mut(instance.index())
            {
                leases.push(Arc::clone(held));
            }
        }
        let extended = InstanceId::all(extended.len()).zip(extended);
        extended.filter(|(_, leases)| !leases.is_empty()).for_each(|(id, leases)| self.watch_again(leases, id));
    }

    /// The instance has lost its scripts, which are on their way to it again.
    fn ask_again(&mut self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId) {
        let order = self.table.lock_send_order();
        let state = held.state();
        let is_open = state.renewal.as_ref().is_some_and(|round| round.started_at() == started_at);
        if is_open && !state.has_ended() {
            let (leases, replies) = (vec![Arc::clone(held)], self.sender.clone());
            let batch = Arc::new(RenewalBatch { started_at, leases, is_first: false, replies });
            self.outstanding += 1;
            self.send_to(&order, id, &batch, &[Arc::clone(&state.claim)]);
        }
    }

    /// Takes in one reply; whether the lease is still held after it.
    fn record_reply(&self, held: &Arc<HeldLease>, started_at: Instant, id: InstanceId, reply: Reply) -> bool {
        let mut table = self.table.lock_send_order();
        // Counts with any result of the round (P20).
        let notice = held.note_reply(id, &reply, started_at, &*self.parts.clock);
        let outcome = self.feed_round(&mut table, held, started_at, (id, reply));
        drop(table);
        notice.notify();
        let counters = &self.parts.counters;
        match outcome {
            RenewalOutcome::Ended => return false,
            RenewalOutcome::Held => {}
            RenewalOutcome::Renewed => counters.renewals.add(1),
            RenewalOutcome::Failed { is_first, round, remaining } => {
                counters.failed_renewals.add(1);
                let resource = held.claim().resource.display();
                let cause =
                    who_did_not_grant(&round, |instances| RedisInstance::addresses(&self.parts.instances, instances));
                // The first failure of a lease is a warning, unless many leases fail at once.
                if let Some(times) = is_first.then(|| counters.renewal_warnings.note(self.now())).flatten() {
                    tracing::warn!(resource, cause, ?remaining, times, "not renewed, will be tried again");
                } else {
                    tracing::debug!(resource, cause, ?remaining, "not renewed, will be tried again");
                }
            }
        }
        true
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
        let now = self.now(); // P9: read after the lease is locked
        let Some(mut round) = state.renewal.take_if(|round| round.started_at() == started_at) else {
            return RenewalOutcome::Held;
        };
        let was_pending = round.verdict(now) == Verdict::Pending;
        round.on_reply(id, reply, now);
        let mut outcome = RenewalOutcome::Held;
        match round.verdict(now) {
            Verdict::Won if was_pending && state.settle(&mut round, now).is_some() => {
                let schedule = RenewalSchedule::new(state.lease.terms().ttl());
                let due = schedule.after_success(started_at).min(state.lease.valid_until());
                table.schedule(held, &mut state, due);
                outcome = RenewalOutcome::Renewed;
            }
            Verdict::Lost if was_pending => {
                let is_first = state.note_failure(&round);
                let (round, remaining) = (round.clone(), state.lease.remaining(now));
                outcome = RenewalOutcome::Failed { is_first, round, remaining };
                let due = state.retry_at(started_at, now);
                table.schedule(held, &mut state, due);
            }
            _ => {}
        }
        // Decided, but answers that are still to come may show that it is gone.
        let is_lost = round.verdict(now) == Verdict::Lost;
        let is_complete = round.replies().iter().all(Option::is_some);
        if !is_lost && !is_complete {
            state.renewal = Some(round);
        }
        outcome
    }

    /// Renews a lease as soon as its pace allows.
    fn renew_soon(&self, held: &Arc<HeldLease>) {
        let now = self.now();
        let mut table = self.table.lock_send_order();
        let mut state = held.state();
        if state.is_renewed() && !state.has_ended() {
            let soonest = state.retry_at(state.renewal_started_at, now);
            table.schedule_sooner(held, &mut state, soonest);
        }
    }
}

/// Key checks.
impl KeepAliveTask {
    /// Watches a lease on every instance, if not too many keys are watched already.
    fn watch(&self, held: &Arc<HeldLease>) {
        let is_watched = self.table.lock_send_order().watch(held);
        if is_watched {
            self.check_on(held, InstanceSet::first(self.parts.instances.len()));
        }
    }

    /// After a renewal, which ended the watch of the instance: watches again, and what was not watched yet.
    fn watch_again(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let mut table = self.table.lock_send_order();
        let watched: Vec<_> = leases.into_iter().filter(|held| table.watch(held)).collect();
        drop(table);
        self.check_all(&watched, id);
    }

    /// Checks the keys of one lease on these instances; they push the next change of them.
    fn check_on(&self, held: &Arc<HeldLease>, instances: InstanceSet) {
        for id in instances.iter() {
            self.check(vec![Arc::clone(held)], id);
        }
    }

    /// An instance says that keys changed.
    fn on_invalidation(&self, invalidation: &Invalidation) {
        let leases = self.table.lock_send_order().watched_under(&invalidation.keys);
        self.check_all(&leases, invalidation.instance);
    }

    fn check_all(&self, leases: &[Arc<HeldLease>], id: InstanceId) {
        split_into_commands(leases, MAX_CHECKED, |held| held.claim().command_size())
            .for_each(|leases| self.check(leases.to_vec(), id));
    }

    fn check(&self, leases: Vec<Arc<HeldLease>>, id: InstanceId) {
        let Some(instance) = self.parts.instances.get(id.index()) else { return };
        let sent = self.now();
        let check = instance.check_keys(leases.iter().map(|held| held.claim()).collect());
        self.checks.push(Box::pin(async move { CheckedKeys { leases, instance: id, sent, keys: check.await } }));
    }

    /// Takes in what an instance has. A renewal repairs what it has lost.
    fn on_checked(&self, checked: CheckedKeys) {
        let CheckedKeys { leases, instance, sent, keys } = checked;
        let mut missing = Vec::new();
        for (held, key) in leases.into_iter().zip(keys) {
            let value = match key {
                KeyState::NotOwn(value) => value,
                KeyState::Own => {
                    held.state().lease.note_present(instance, sent, self.now());
                    continue;
                }
                KeyState::Unknown => continue,
            };
            held.note_missing(instance, value, sent);
            if held.state().has_ended() {
                self.table.lock_send_order().remove(&held);
            } else {
                missing.push(held);
            }
        }
        missing.iter().for_each(|held| self.renew_soon(held));
    }
}
