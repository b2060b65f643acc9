//! Releases that outlive their callers (P6): stragglers are followed to their end, and an instance
//! keeps its debt until it is paid or the ttl has passed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::instance::{Call, Instance, Request};
use crate::protocol::{InstanceId, InstanceSet, Instant, Reply};

/// The pause before an unpaid release is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long a retry waits for a connection before it looks for debts that have expired.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The most releases that are sent again to one instance at once, and the most that it may owe.
const MAX_BURST: usize = 1024;
const MAX_PENDING: usize = 64 * 1024;

/// A release that one instance owes.
#[derive(Debug)]
pub(super) struct PendingRelease {
    /// What pays it.
    request: Request,
    /// From then on the key has expired by itself.
    expires_at: Instant,
}

impl PendingRelease {
    /// What an instance owes that was sent a claim before `now`, and has to answer `request` for it.
    pub(super) fn of(request: Request, now: Instant) -> Self {
        // Twice the ttl: no clock is off by that much.
        let expires_at = now.saturating_add(request.claim().ttl.saturating_mul(2));
        Self { request, expires_at }
    }
}

/// A call whose verdict has been reached without it.
pub(super) struct OutstandingCall {
    pub(super) id: InstanceId,
    pub(super) call: Call,
    /// What remains owed unless the call pays it.
    pub(super) debt: Option<PendingRelease>,
}

/// Hands work to the client's cleaning task. Never blocks and needs no runtime.
#[derive(Debug)]
pub(crate) struct BackgroundReleaser {
    work: mpsc::UnboundedSender<Vec<OutstandingCall>>,
    owed: Arc<watch::Sender<Vec<usize>>>,
}

impl BackgroundReleaser {
    /// Starts the task. It ends when the client is gone and everything is paid or void.
    pub(crate) fn start(instances: Arc<[Arc<dyn Instance>]>, clock: Arc<dyn Clock>) -> Self {
        let (work, receiver) = mpsc::unbounded_channel();
        let owed = Arc::new(watch::Sender::new(vec![0; instances.len()]));
        let debts = instances.iter().map(|_| VecDeque::new()).collect();
        let cleaning =
            ReleaseTask { instances, clock, debts, owed: Arc::clone(&owed), retrying: InstanceSet::default() };
        tokio::spawn(cleaning.run(receiver));
        Self { work, owed }
    }

    /// Queues releases on the instances at once and follows them until they are paid.
    pub(super) fn release(&self, instances: &[Arc<dyn Instance>], release: &Request, ids: InstanceSet, now: Instant) {
        let call = |id: InstanceId| {
            let call = instances.get(id.index())?.call(release.clone());
            Some(OutstandingCall { id, call, debt: Some(PendingRelease::of(release.clone(), now)) })
        };
        self.follow(ids.iter().filter_map(call).collect());
    }

    /// Follows calls to their end.
    pub(super) fn follow(&self, calls: Vec<OutstandingCall>) {
        self.owed.send_if_modified(|owed| {
            for call in calls.iter().filter(|call| call.debt.is_some()) {
                if let Some(count) = owed.get_mut(call.id.index()) {
                    *count += 1;
                }
            }
            false // only a count that falls wakes those who wait for zero
        });
        // An error means that the runtime is gone, and the connections with it.
        let _ = self.work.send(calls);
    }

    /// Waits until nothing is owed any more, at most `limit`; gives what each instance still owes.
    pub(crate) async fn drain(&self, limit: Duration) -> Vec<usize> {
        let mut owed = self.owed.subscribe();
        let settled = timeout(limit, owed.wait_for(|owed| owed.iter().all(|count| *count == 0))).await;
        match settled {
            Ok(Ok(counts)) => counts.clone(),
            _ => self.owed(),
        }
    }

    /// Whether the task is gone, and with it the runtime.
    pub(super) fn has_ended(&self) -> bool {
        self.work.is_closed()
    }

    /// How many releases each instance owes.
    pub(crate) fn owed(&self) -> Vec<usize> {
        self.owed.borrow().clone()
    }
}

/// What the task works on.
enum Done {
    Call { id: InstanceId, reply: Reply, debt: Option<PendingRelease> },
    Retry(InstanceId),
}

struct ReleaseTask {
    instances: Arc<[Arc<dyn Instance>]>,
    clock: Arc<dyn Clock>,
    debts: Vec<VecDeque<PendingRelease>>,
    owed: Arc<watch::Sender<Vec<usize>>>,
    retrying: InstanceSet,
}

impl ReleaseTask {
    async fn run(mut self, mut work: mpsc::UnboundedReceiver<Vec<OutstandingCall>>) {
        let mut going: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
        let mut open = true;
        while open || !going.is_empty() {
            tokio::select! {
                calls = work.recv(), if open => match calls {
                    Some(calls) => going.extend(calls.into_iter().map(to_its_end)),
                    None => open = false,
                },
                Some(done) = going.next(), if !going.is_empty() => match done {
                    Done::Call { id, reply, debt: Some(debt) } => self.settle(id, &reply, debt, &mut going),
                    Done::Call { .. } => {}
                    Done::Retry(id) => self.retry(id, &mut going),
                },
            }
        }
    }

    fn settle(
        &mut self,
        id: InstanceId,
        reply: &Reply,
        debt: PendingRelease,
        going: &mut FuturesUnordered<BoxFuture<'static, Done>>,
    ) {
        let paid = matches!(reply, Reply::Granted | Reply::Refused(_)); // gone or foreign is as good
        let Some(debts) = self.debts.get_mut(id.index()).filter(|_| !paid) else {
            self.forget(id, 1);
            return;
        };
        debts.push_back(debt);
        let surplus = debts.len().saturating_sub(MAX_PENDING);
        if surplus > 0 {
            debts.drain(..surplus); // the oldest expire first
            self.forget(id, surplus);
        }
        self.retry_later(id, going);
    }

    fn retry_later(&mut self, id: InstanceId, going: &mut FuturesUnordered<BoxFuture<'static, Done>>) {
        let Some(instance) = self.instances.get(id.index()).filter(|_| !self.retrying.contains(id)) else { return };
        self.retrying.insert(id);
        let wait_connected = instance.wait_connected();
        going.push(Box::pin(async move {
            sleep(RETRY_PAUSE).await;
            let _ = timeout(RETRY_WAIT, wait_connected).await;
            Done::Retry(id)
        }));
    }

    fn retry(&mut self, id: InstanceId, going: &mut FuturesUnordered<BoxFuture<'static, Done>>) {
        self.retrying.remove(id);
        let now = self.clock.now();
        let (Some(instance), Some(debts)) = (self.instances.get(id.index()), self.debts.get_mut(id.index())) else {
            return;
        };
        let before = debts.len();
        debts.retain(|debt| now < debt.expires_at);
        let void = before - debts.len();
        if instance.obstacle().is_none() {
            for debt in debts.drain(..debts.len().min(MAX_BURST)) {
                let call = instance.call(debt.request.clone());
                going.push(to_its_end(OutstandingCall { id, call, debt: Some(debt) }));
            }
        }
        let more = !debts.is_empty();
        self.forget(id, void);
        if more {
            self.retry_later(id, going);
        }
    }

    /// Takes debts that are paid or void off the count.
    fn forget(&self, id: InstanceId, number: usize) {
        if number > 0 {
            self.owed.send_modify(|owed| {
                if let Some(count) = owed.get_mut(id.index()) {
                    *count = count.saturating_sub(number);
                }
            });
        }
    }
}

fn to_its_end(call: OutstandingCall) -> BoxFuture<'static, Done> {
    let OutstandingCall { id, call, debt } = call;
    Box::pin(async move { Done::Call { id, reply: call.await, debt } })
}
