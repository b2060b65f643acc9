//! Releases that outlive their callers (P6): outstanding calls are awaited, and a release that an instance has not
//! confirmed is sent again until it is, or until the keys have expired.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{ReplyFuture, Request};
use crate::protocol::{Cause, InstanceId, InstanceSet, Instant, Reply};
use crate::resource::Resource;
use crate::runtime::lasting_task::ran_to_its_end;
use crate::runtime::pending_releases::{PendingRelease, PendingReleases, ReleaseNumber};

/// The pause before a release that was not confirmed is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long the release of a lost try waits for the reply that makes it needless; then it is sent behind the try.
const TRY_PATIENCE: Duration = Duration::from_millis(5);

/// How long a retry waits for a connection before it drops the releases whose keys have expired.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The most releases that are sent again to one instance at once, and the most that are kept for it.
const MAX_BURST: usize = 1024;
const MAX_PENDING: usize = 64 * 1024;

/// A call whose round was decided without it.
pub(super) struct OutstandingCall {
    pub(super) id: InstanceId,
    pub(super) call: ReplyFuture,
    pub(super) then: Then,
}

/// What follows the reply to an outstanding call.
pub(super) enum Then {
    Nothing,
    /// The call is this release: it is sent again unless the reply confirms it.
    ReleaseAgain(PendingRelease),
    /// The call is a try that was lost: this release is sent unless the reply shows that it set no key (P5).
    AfterTry(ReleaseNumber),
}

impl Then {
    const fn releases(&self) -> bool {
        matches!(self, Self::ReleaseAgain(_))
    }
}

/// The releases that wait.
#[derive(Debug)]
struct Waiting {
    /// For the reply to their try, which may show that there is nothing to release.
    for_try: PendingReleases,
    /// To be sent again.
    for_retry: PendingReleases,
}

/// Hands calls and releases to the client's release task. Never blocks and needs no runtime.
#[derive(Debug)]
pub(crate) struct BackgroundReleaser {
    calls: mpsc::UnboundedSender<Vec<OutstandingCall>>,
    waiting: Arc<Waiting>,
    /// How many releases are pending on each instance.
    pending: Arc<watch::Sender<Vec<usize>>>,
}

impl BackgroundReleaser {
    /// Starts the task. It ends when the client is gone and every release is confirmed or expired.
    pub(crate) fn start(instances: Arc<[RedisInstance]>, clock: Arc<dyn Clock>) -> Self {
        let (calls, receiver) = mpsc::unbounded_channel();
        let pending = Arc::new(watch::Sender::new(vec![0; instances.len()]));
        let (for_try, for_retry) = (PendingReleases::new(instances.len()), PendingReleases::new(instances.len()));
        let waiting = Arc::new(Waiting { for_try, for_retry });
        let retrying = InstanceSet::default();
        let (of_task, counts) = (Arc::clone(&waiting), Arc::clone(&pending));
        let task = ReleaseTask { instances, clock, waiting: of_task, pending: counts, retrying };
        tokio::spawn(task.run(receiver));
        Self { calls, waiting, pending }
    }

    /// Queues a release on `targets` at once, and sends it again until it is confirmed.
    pub(super) fn release(&self, instances: &[RedisInstance], request: &Request, targets: InstanceSet, now: Instant) {
        let call = |id: InstanceId| {
            let call = instances.get(id.index())?.call(request.clone());
            Some(OutstandingCall { id, call, then: Then::ReleaseAgain(PendingRelease::new(request.clone(), now)) })
        };
        self.finish(targets.iter().filter_map(call).collect());
    }

    /// P6: what earlier tries for this lock may have left on `targets` is released now, ahead of what is asked
    /// next.
    pub(super) fn release_ahead(&self, instances: &[RedisInstance], resource: &Resource, targets: InstanceSet) {
        for id in targets.iter() {
            let Some(instance) = instances.get(id.index()) else { continue };
            let mut releases = self.waiting.for_try.take_for(id, resource);
            if instance.obstacle().is_none() {
                releases.extend(self.waiting.for_retry.take_for(id, resource).into_iter().map(PendingRelease::resent));
            }
            let calls: Vec<OutstandingCall> = releases
                .into_iter()
                .map(|release| {
                    let call = instance.call(release.request.clone());
                    OutstandingCall { id, call, then: Then::ReleaseAgain(release) }
                })
                .collect();
            if !calls.is_empty() {
                let _ = self.calls.send(calls); // they are counted as pending already
            }
        }
    }

    /// The release of a try that is lost and not answered yet: what follows its reply.
    pub(super) fn after_reply(&self, id: InstanceId, release: PendingRelease) -> Then {
        self.count_up(std::iter::once(id));
        Then::AfterTry(self.waiting.for_try.put(id, release))
    }

    fn count_up(&self, ids: impl Iterator<Item = InstanceId>) {
        self.pending.send_if_modified(|pending| {
            for id in ids {
                if let Some(count) = pending.get_mut(id.index()) {
                    *count += 1;
                }
            }
            false // only a count that falls wakes those who wait for zero
        });
    }

    /// Awaits calls to their end.
    pub(super) fn finish(&self, calls: Vec<OutstandingCall>) {
        self.count_up(calls.iter().filter(|call| call.then.releases()).map(|call| call.id));
        // An error means that the runtime is gone, and the connections with it.
        let _ = self.calls.send(calls);
    }

    /// Waits until no release is pending, at most `limit`. Returns how many still are on each instance.
    pub(crate) async fn drain(&self, limit: Duration) -> Vec<usize> {
        let mut pending = self.pending.subscribe();
        let none_left = timeout(limit, pending.wait_for(|pending| pending.iter().all(|count| *count == 0))).await;
        match none_left {
            Ok(Ok(counts)) => counts.clone(),
            _ => self.pending(),
        }
    }

    /// Whether the task is gone, and with it the runtime.
    pub(super) fn has_ended(&self) -> bool {
        self.calls.is_closed()
    }

    /// How many releases are pending on each instance.
    pub(crate) fn pending(&self) -> Vec<usize> {
        self.pending.borrow().clone()
    }
}

/// What the task has finished waiting for.
enum Event {
    Reply {
        id: InstanceId,
        reply: Reply,
        then: Then,
    },
    /// A try that was lost is not answered yet.
    TryIsSilent(OutstandingCall),
    RetryDue(InstanceId),
}

type Events = FuturesUnordered<BoxFuture<'static, Event>>;

struct ReleaseTask {
    instances: Arc<[RedisInstance]>,
    clock: Arc<dyn Clock>,
    waiting: Arc<Waiting>,
    pending: Arc<watch::Sender<Vec<usize>>>,
    /// Instances for which a retry is scheduled.
    retrying: InstanceSet,
}

impl ReleaseTask {
    async fn run(mut self, mut calls: mpsc::UnboundedReceiver<Vec<OutstandingCall>>) {
        let mut events = Events::new();
        while !ran_to_its_end("releases locks", self.serve(&mut calls, &mut events)).await {
            self.recover(&events);
        }
    }

    /// Begins anew after a panic: a retry may be lost.
    fn recover(&mut self, events: &Events) {
        self.retrying = InstanceSet::default();
        for id in InstanceId::all(self.instances.len()) {
            if self.waiting.for_retry.len(id) > 0 {
                self.retry_later(id, events);
            }
        }
    }

    async fn serve(&mut self, calls: &mut mpsc::UnboundedReceiver<Vec<OutstandingCall>>, events: &mut Events) {
        let mut open = true;
        while open || !events.is_empty() {
            tokio::select! {
                biased; // what was sent has its end before more is taken on
                Some(event) = events.next(), if !events.is_empty() => match event {
                    Event::Reply { id, reply, then } => match then {
                        Then::Nothing => {}
                        Then::ReleaseAgain(release) => self.on_reply(id, &reply, release, events),
                        Then::AfterTry(number) => self.after_try(id, &reply, number, events),
                    },
                    Event::TryIsSilent(call) => self.release_unheard(call, events),
                    Event::RetryDue(id) => self.retry(id, events),
                },
                calls = calls.recv(), if open => match calls {
                    Some(calls) => events.extend(calls.into_iter().map(reply_of)),
                    None => open = false,
                },
            }
        }
    }

    fn after_try(&self, id: InstanceId, reply: &Reply, number: ReleaseNumber, events: &Events) {
        let Some(release) = self.take_after_try(id, number) else { return };
        if matches!(reply, Reply::Refused(_) | Reply::NotSent(_)) {
            self.count_down(id, 1);
        } else {
            self.send(id, release, events);
        }
    }

    /// The try is awaited to its end (P6), and the release is sent behind it.
    fn release_unheard(&self, unheard: OutstandingCall, events: &Events) {
        let OutstandingCall { id, call, then } = unheard;
        events.push(reply_of(OutstandingCall { id, call, then: Then::Nothing }));
        if let Then::AfterTry(number) = then
            && let Some(release) = self.take_after_try(id, number)
        {
            self.send(id, release, events);
        }
    }

    /// The release of a try, unless it was sent ahead of another one.
    fn take_after_try(&self, id: InstanceId, number: ReleaseNumber) -> Option<PendingRelease> {
        self.waiting.for_try.take(id, number)
    }

    fn send(&self, id: InstanceId, release: PendingRelease, events: &Events) {
        if let Some(instance) = self.instances.get(id.index()) {
            let call = instance.call(release.request.clone());
            events.push(reply_of(OutstandingCall { id, call, then: Then::ReleaseAgain(release) }));
        }
    }

    fn on_reply(&mut self, id: InstanceId, reply: &Reply, release: PendingRelease, events: &Events) {
        let is_confirmed = matches!(reply, Reply::Granted | Reply::Refused(_)); // gone or foreign is as good
        if is_confirmed {
            self.count_down(id, 1);
            return;
        }
        self.waiting.for_retry.put(id, release);
        if self.waiting.for_retry.len(id) > MAX_PENDING {
            let dropped = self.waiting.for_retry.drop_surplus(id, MAX_PENDING, self.clock.now()); // the oldest expire first
            self.count_down(id, dropped);
        }
        self.retry_later(id, events);
    }

    fn retry_later(&mut self, id: InstanceId, events: &Events) {
        let Some(instance) = self.instances.get(id.index()).filter(|_| !self.retrying.contains(id)) else { return };
        self.retrying.insert(id);
        let connected = instance.wait_connected();
        events.push(Box::pin(async move {
            sleep(RETRY_PAUSE).await;
            let _ = timeout(RETRY_WAIT, connected).await;
            Event::RetryDue(id)
        }));
    }

    fn retry(&mut self, id: InstanceId, events: &Events) {
        self.retrying.remove(id);
        let Some(instance) = self.instances.get(id.index()) else { return };
        let for_retry = &self.waiting.for_retry;
        let expired = for_retry.drop_surplus(id, MAX_PENDING, self.clock.now());
        if instance.obstacle().is_none() {
            for release in for_retry.take_oldest(id, MAX_BURST) {
                let release = release.resent();
                let call = instance.call(release.request.clone());
                events.push(reply_of(OutstandingCall { id, call, then: Then::ReleaseAgain(release) }));
            }
        }
        let more = for_retry.len(id) > 0;
        self.count_down(id, expired);
        if more {
            self.retry_later(id, events);
        }
    }

    /// Takes releases that are confirmed or expired off the count of pending ones.
    fn count_down(&self, id: InstanceId, number: usize) {
        if number > 0 {
            self.pending.send_modify(|pending| {
                if let Some(count) = pending.get_mut(id.index()) {
                    *count = count.saturating_sub(number);
                }
            });
        }
    }
}

fn reply_of(call: OutstandingCall) -> BoxFuture<'static, Event> {
    let OutstandingCall { id, mut call, then } = call;
    Box::pin(async move {
        // A release is not forgotten because an instance panics.
        let answered = AssertUnwindSafe(async {
            match &then {
                Then::AfterTry(_) => timeout(TRY_PATIENCE, &mut call).await.ok(),
                Then::Nothing | Then::ReleaseAgain(_) => Some((&mut call).await),
            }
        });
        match answered.catch_unwind().await {
            Ok(Some(reply)) => Event::Reply { id, reply, then },
            Ok(None) => Event::TryIsSilent(OutstandingCall { id, call, then }),
            Err(_) => {
                Event::Reply { id, reply: Reply::Unknown(Cause::Server("its request panicked".to_owned())), then }
            }
        }
    })
}
