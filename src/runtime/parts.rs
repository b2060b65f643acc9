//! What all operations of one client use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::counters::Counters;
use super::held_lease::{HeldLease, LeaseOwner};
use super::order::Order;
use super::pending::Pending;
use super::tasks::AttemptTracker;
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, Wake};
use crate::process::{Forked, Process};
use crate::protocol::{
    Access, ClocksApart, FencingToken, InstanceSet, Lease, ProposingClock, Quorum, RetryDelay, proposing_clock,
};
use crate::resource::Resource;
use crate::token::TokenSource;

/// What all operations of one client use.
pub(crate) struct ClientParts {
    pub(crate) instances: Arc<[RedisInstance]>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tokens: TokenSource,
    pub(crate) pending: Pending,
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
    /// Whether the runtime has ended in which the client was built.
    pub(crate) has_ended: AtomicBool,
}

impl ClientParts {
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

    /// What wakes the client that has waited longest for a lock, behind its release; as far as that is known (P26).
    pub(super) fn next_to_wake(&self, resource: &Resource) -> Option<Arc<[Wake]>> {
        self.order.as_ref().and_then(|order| order.next_to_wake(resource))
    }

    /// P26: for how long yet this client backs off from a lock that it has released for another one.
    pub(super) fn backs_off(&self, resource: &Resource) -> Option<Duration> {
        let until = self.order.as_ref()?.backs_off_until(resource)?;
        let left = until.saturating_since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// This client has won this lock, or continues with it: the first guard has this token.
    pub(super) fn hold(
        &self,
        client: Weak<dyn LeaseOwner>,
        lease: Lease,
        (claim, token): (Arc<Claim>, FencingToken),
        holder: &Arc<str>,
    ) -> Arc<HeldLease> {
        if let Some(order) = &self.order
            && claim.access == Access::Write
        {
            order.hold(&claim.resource);
        }
        Arc::new(HeldLease::new(lease, (claim, token), Arc::clone(holder), client, Arc::clone(&self.counters)))
    }

    /// How many are known to wait for what is held, beside those of this client; `None` if that cannot be known.
    pub(super) fn others_waiting(&self, held: &HeldLease) -> Option<usize> {
        self.order.as_ref()?.others_waiting(&held.claim().resource, self.quorum)
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
        self.has_ended.load(Ordering::Acquire)
    }
}
