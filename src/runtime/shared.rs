//! What the operations of one client share.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::acquire::slot::Slots;
use super::background_release::BackgroundReleaser;
use super::counters::Counters;
use super::held_lease::{AfterLoss, GuardNumber, HeldLease};
use super::keep_alive::KeepAlive;
use super::order::Order;
use super::tasks::{AttemptTracker, TrackedAttempt};
use super::wait_events::KnownWaiters;
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, Wake};
use crate::process::{Forked, Process};
use crate::protocol::{
    Access, Cause, ClocksApart, FencingToken, InstanceSet, Lease, ProposingClock, Quorum, RetryDelay, Value,
    WriterMark, proposing_clock,
};
use crate::resource::Resource;
use crate::token::TokenSource;

/// How often a shutdown checks whether the guards of leases that it has ended were dropped.
const GUARD_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How often a shutdown checks which instances have pending releases.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// After so long a writer's mark has ended by itself (`acquire.lua`).
const LONGEST_MARK: Duration = Duration::from_secs(3);

/// What the operations of one client share.
pub(crate) struct Shared {
    pub(crate) instances: Arc<[RedisInstance]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tokens: TokenSource,
    pub(crate) releaser: Arc<BackgroundReleaser>,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) counters: Arc<Counters>,
    pub(crate) instance_timeout: Duration,
    pub(crate) retry: RetryDelay,
    /// The process in which the client was built.
    pub(crate) process: Process,
    /// Where the client's tasks run, from any caller.
    pub(crate) runtime: Handle,
    pub(crate) attempts: Arc<AttemptTracker>,
    /// `None` if waiting clients do not keep an order among themselves.
    pub(crate) order: Option<Order>,
    pub(crate) slots: Slots,
}

impl Shared {
    /// The clock by which a token is proposed now (P12).
    pub(crate) fn proposing_clock(&self) -> Result<ProposingClock, ClocksApart> {
        let now = self.clock.now();
        let readings = self.instances.iter().map(|instance| instance.wall_us(now));
        proposing_clock(self.clock.wall_us(), readings, self.quorum)
    }

    /// The addresses of these instances, for the log.
    pub(super) fn addresses(&self, instances: InstanceSet) -> Vec<String> {
        RedisInstance::addresses(&self.instances, instances)
    }

    pub(super) fn all_instances(&self) -> InstanceSet {
        InstanceSet::first(self.instances.len())
    }

    /// What is released, and what wakes the client behind that which has waited longest, as far as that is known (P26).
    pub(super) fn with_wakes(&self, claim: Arc<Claim>) -> (Arc<Claim>, Option<Arc<[Wake]>>) {
        let wakes = self.order.as_ref().and_then(|order| order.next_to_wake(&claim.resource));
        (claim, wakes)
    }

    /// P26: for how long yet this client backs off from a lock that it has released for another one.
    pub(super) fn backs_off(&self, resource: &Resource) -> Option<Duration> {
        let until = self.order.as_ref()?.backs_off_until(resource)?;
        let left = until.saturating_since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// This client has won this lock, or continues with it: the first guard has this token.
    pub(super) fn hold(
        self: &Arc<Self>,
        lease: Lease,
        (claim, token): (Arc<Claim>, FencingToken),
        holder: &Arc<str>,
    ) -> Arc<HeldLease> {
        if let Some(order) = &self.order
            && claim.access == Access::Write
        {
            order.hold(&claim.resource);
        }
        let (holder, client) = (Arc::clone(holder), Arc::downgrade(self));
        Arc::new(HeldLease::new(lease, (claim, token), holder, client, Arc::clone(&self.counters)))
    }

    /// How many are known to wait for what is held, beside those of this client; `None` if that cannot be known.
    fn others_waiting(&self, held: &HeldLease) -> Option<usize> {
        self.order.as_ref()?.others_waiting(&held.claim().resource, self.quorum)
    }

    /// The waiters for a lock, as far as this client knows.
    pub(crate) fn known_waiters(&self, resource: &Resource) -> KnownWaiters {
        let here = self.slots.waiting(resource);
        let others = self.order.as_ref().map(|order| order.known_waiters(resource));
        let (elsewhere, first) = others.unwrap_or_default();
        let next = if here > 0 { Some(self.tokens.client()) } else { first };
        KnownWaiters { here, elsewhere, next }
    }

    /// Why an instance cannot be used by the client.
    pub(crate) fn obstacle(&self, instance: &RedisInstance) -> Option<Cause> {
        self.unusable().or_else(|| instance.obstacle())
    }

    /// Why no instance can be used by the client any more.
    pub(crate) fn unusable(&self) -> Option<Cause> {
        if self.is_forked() {
            return Some(Cause::Forked);
        }
        self.has_ended().then(runtime_ended)
    }

    /// Whether this is another process than the one in which the client was built. The connections, and
    /// the locks, belong to that one.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    pub(crate) fn check_process(&self) -> Result<(), Forked> {
        if self.is_forked() { Err(Forked) } else { Ok(()) }
    }

    /// Whether the runtime in which the client was built has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.releaser.has_ended()
    }

    /// Drops one guard of a lease; `None` for one that no caller has collected. After the last one it is offered for
    /// the next waiter of this client (P24), or to be released (P22): then this returns where. After that the waiters of this client
    /// are notified.
    pub(crate) fn begin_to_let_go(&self, held: &Arc<HeldLease>, guard: Option<GuardNumber>) -> Option<InstanceSet> {
        let others = || self.others_waiting(held);
        if self.is_forked() || self.slots.hand_over(held, others, &*self.clock) {
            return None;
        }
        let targets = self.keep_alive.drop_guard(held, guard);
        if targets.is_none() && !held.has_guards() {
            self.slots.let_go(held); // nothing is to be released
        }
        targets
    }

    /// As [`begin_to_let_go`](Self::begin_to_let_go); the release continues in the background.
    pub(crate) fn let_go(&self, held: &Arc<HeldLease>, guard: Option<GuardNumber>) {
        if let Some(targets) = self.begin_to_let_go(held, guard) {
            self.releaser.release(self.with_wakes(held.claim()), targets, None);
            self.slots.let_go(held);
        }
    }

    /// Lets no new try begin, and waits at most `limit` until no lease is held.
    pub(crate) async fn wait_for_guards(&self, limit: Duration) {
        self.attempts.close();
        let begun = self.clock.now();
        let until_none = async {
            self.attempts.wait().await;
            while self.keep_alive.held() > 0 && self.clock.now().saturating_since(begun) < limit {
                sleep(DRAIN_POLL_INTERVAL).await;
            }
        };
        let _ = timeout(limit, until_none).await;
    }

    /// Lets no new try begin, ends every lease, and waits at most `limit` until the tries under way have ended and every
    /// pending release that can be sent is confirmed. Returns whether they have, and a quorum has confirmed each release.
    pub(crate) async fn drain(self: &Arc<Self>, limit: Duration) -> bool {
        self.attempts.close();
        self.end_leases(self.instance_timeout.min(limit / 2));
        let begun = self.clock.now();
        if timeout(limit, self.attempts.wait()).await.is_err() {
            return false;
        }
        let left = limit.saturating_sub(self.clock.now().saturating_since(begun));
        tokio::select! {
            biased; // a run that is repeated under a seed takes the same branches
            () = self.releaser.drain(left) => {}
            () = self.until_only_unreachable() => {}
        }
        self.releaser.are_confirmed_by_quorums()
    }

    /// Ends every lease that is held. Its keys are released when its guards are dropped, so that no client gets the lock before the
    /// work that it protects was dropped (P21), but after `patience` in any case.
    fn end_leases(self: &Arc<Self>, patience: Duration) {
        let leases = self.keep_alive.shut_down();
        if leases.is_empty() || self.is_forked() {
            return;
        }
        tracing::info!(leases = leases.len(), "shut down: the leases that were held have ended");
        if self.has_ended() {
            return leases.iter().for_each(|held| self.release_for_guards(held)); // in vain, and logged
        }
        let (client, tracked) = (Arc::clone(self), TrackedAttempt::of_shutdown(&self.attempts));
        let begun = self.clock.now();
        self.runtime.spawn(async move {
            let waits = || client.clock.now().saturating_since(begun) < patience;
            while waits() && leases.iter().any(|held| held.has_guards()) {
                sleep(GUARD_POLL_INTERVAL).await;
            }
            leases.iter().for_each(|held| client.release_for_guards(held));
            drop(tracked);
        });
    }

    fn release_for_guards(&self, held: &Arc<HeldLease>) {
        if let Some(targets) = held.release_for_guards() {
            self.releaser.release(self.with_wakes(held.claim()), targets, None);
        }
        self.slots.let_go(held);
    }

    /// P34: a mark leaves as a reader does. Unless its writer `has_won`, readers that have announced themselves to this client are woken.
    pub(super) fn remove_mark(&self, resource: &Resource, mark: &WriterMark, has_won: bool) {
        if self.is_forked() {
            return;
        }
        let (value, token) = (Value::from_wire(mark.as_bytes()), FencingToken::propose(0, None));
        let claim = Claim::new(resource.clone(), value, token, LONGEST_MARK);
        let claim = Arc::new(Claim { access: Access::Read, ..claim });
        let leaves = if has_won { (claim, None) } else { self.with_wakes(claim) };
        self.releaser.release(leaves, self.all_instances(), None);
    }

    /// Returns once only instances without a connection have had pending releases for one instance timeout.
    async fn until_only_unreachable(&self) {
        let mut since = self.clock.now();
        loop {
            sleep(DRAIN_POLL_INTERVAL).await;
            let pending = self.releaser.pending();
            let now = self.clock.now();
            let mut instances = self.instances.iter().zip(&pending);
            if instances.any(|(instance, pending)| *pending > 0 && instance.obstacle().is_none()) {
                since = now;
            } else if now.saturating_since(since) >= self.instance_timeout {
                return;
            }
        }
    }
}

/// P20: the keys of a lease that is lost are released though its guards have not been dropped yet.
impl AfterLoss for Shared {
    fn addresses(&self, instances: InstanceSet) -> Vec<String> {
        Self::addresses(self, instances)
    }

    fn release_after_loss(&self, held: &HeldLease) {
        if !self.is_forked() {
            let release = |targets| self.releaser.release((held.claim(), None), targets, None);
            self.keep_alive.release_after_loss(held, release);
        }
    }
}

/// Why nothing is sent once the runtime of the client has ended.
pub(super) fn runtime_ended() -> Cause {
    Cause::NotConnected("the runtime in which the client was built has ended".to_owned())
}
