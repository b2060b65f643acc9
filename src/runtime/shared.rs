//! A client: what its operations use, the leases that it has, and the locks that its callers have or wait for.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::acquire::AcquireFailure;
use super::acquire::keys::Keys;
use super::held_lease::{GuardNumber, HeldLease, LeaseOwner};
use super::keep_alive::KeepAlive;
use super::parts::ClientParts;
use super::tasks::TrackedAttempt;
use crate::instance::redis::RedisInstance;
use crate::protocol::{Cause, InstanceId, InstanceSet, Reply, Round};

/// How often a shutdown checks whether the guards of leases that it has ended were dropped.
const GUARD_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How often a shutdown checks which instances have pending releases.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What the operations of one client share.
pub(crate) struct Shared {
    parts: Arc<ClientParts>,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) keys: Arc<Keys>,
}

impl Deref for Shared {
    type Target = ClientParts;

    fn deref(&self) -> &ClientParts {
        &self.parts
    }
}

impl Shared {
    /// Must be called within a runtime.
    pub(crate) fn start(parts: ClientParts, keep_alive: KeepAlive) -> Arc<Self> {
        let parts = Arc::new(parts);
        Arc::new_cyclic(|client: &Weak<Self>| {
            let keys = Keys::start(Arc::clone(&parts), Weak::clone(client) as Weak<dyn LeaseOwner>);
            Self { parts, keep_alive, keys }
        })
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

    /// What a round says that cannot be sent because the runtime of the client has ended.
    pub(crate) fn not_sent(&self) -> Box<Round> {
        let now = self.clock.now();
        let mut round = Round::release(self.quorum, now);
        for id in InstanceId::all(self.instances.len()) {
            round.on_reply(id, Reply::NotSent(runtime_ended()), now);
        }
        Box::new(round)
    }

    /// Drops one guard of a lease; `None` for one that no caller has collected. After the last one it is offered for
    /// the next waiter of this client (P24), or to be released (P22): then this returns where. After that the waiters of this client
    /// are notified.
    pub(crate) fn begin_to_let_go(&self, held: &Arc<HeldLease>, guard: Option<GuardNumber>) -> Option<InstanceSet> {
        let others = || self.others_waiting(held);
        if self.is_forked() || self.keys.hand_over(held, others) {
            return None;
        }
        let targets = self.keep_alive.drop_guard(held, guard);
        if targets.is_none() && !held.has_guards() {
            self.keys.let_go(held); // nothing is to be released
        }
        targets
    }

    /// As [`begin_to_let_go`](Self::begin_to_let_go); the release continues in the background.
    pub(crate) fn let_go(&self, held: &Arc<HeldLease>, guard: Option<GuardNumber>) {
        if let Some(targets) = self.begin_to_let_go(held, guard) {
            self.keys.release(held, self.next_to_wake(&held.claim().resource), targets, None);
        }
    }

    /// Lets no new try begin, and waits at most `limit` until no lease is held.
    pub(crate) async fn wait_for_guards(&self, limit: Duration) {
        self.close();
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
        self.close();
        self.end_leases(self.instance_timeout.min(limit / 2));
        let begun = self.clock.now();
        if timeout(limit, self.attempts.wait()).await.is_err() {
            return false;
        }
        let left = limit.saturating_sub(self.clock.now().saturating_since(begun));
        tokio::select! {
            biased; // a run that is repeated under a seed takes the same branches
            () = self.pending.drain(left) => {}
            () = self.until_only_unreachable() => {}
        }
        self.pending.are_confirmed_by_quorums()
    }

    /// From now on no try begins, and none that is under way returns a lock.
    fn close(&self) {
        self.attempts.close();
        if !self.is_forked() {
            self.keys.close(&AcquireFailure::ShutDown);
        }
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
        match held.release_for_guards() {
            Some(targets) => self.keys.release(held, self.next_to_wake(&held.claim().resource), targets, None),
            None => self.keys.let_go(held),
        }
    }

    /// Returns once only instances without a connection have had pending releases for one instance timeout.
    async fn until_only_unreachable(&self) {
        let mut since = self.clock.now();
        loop {
            sleep(DRAIN_POLL_INTERVAL).await;
            let pending = self.pending.counts();
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
impl LeaseOwner for Shared {
    fn addresses(&self, instances: InstanceSet) -> Vec<String> {
        self.parts.addresses(instances)
    }

    fn let_go_uncollected(&self, held: &Arc<HeldLease>) {
        self.let_go(held, None);
    }

    fn release_after_loss(&self, held: &HeldLease) {
        if !self.is_forked() {
            if let Some(targets) = self.keep_alive.release_after_loss(held) {
                self.keys.release(held, None, targets, None);
            }
            self.keys.lease_lost(&held.claim().resource);
        }
    }
}

/// Why nothing is sent once the runtime of the client has ended.
pub(super) fn runtime_ended() -> Cause {
    Cause::NotConnected("the runtime in which the client was built has ended".to_owned())
}
