//! Releases that outlive their callers (P6): outstanding calls are awaited, and a release that an instance has not
//! confirmed is sent again until it is, or until the keys have expired.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::instance::{Instance, ReplyFuture, Request};
use crate::protocol::{Cause, InstanceId, InstanceSet, Instant, Reply};
use crate::runtime::lasting_task::ran_to_its_end;

/// The pause before a release that was not confirmed is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long a give-back waits for the reply that makes it needless; then it is sent behind the try.
const TRY_PATIENCE: Duration = Duration::from_millis(5);

/// How long a retry waits for a connection before it drops the releases whose keys have expired.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// For how long a key may live that a holder has taken over, whatever ttl it asks for itself: a process that is gone may
/// have asked for more.
const LONGEST_TAKEN_OVER: Duration = Duration::from_secs(10 * 60);

/// The most releases that are sent again to one instance at once, and the most that are kept for it.
const MAX_BURST: usize = 1024;
const MAX_PENDING: usize = 64 * 1024;

/// A release that one instance has not confirmed yet.
#[derive(Debug)]
pub(super) struct PendingRelease {
    request: Request,
    /// From then on the keys have expired by themselves.
    expires_at: Instant,
}

impl PendingRelease {
    /// The release of a claim that was sent before `now`.
    pub(super) fn new(request: Request, now: Instant) -> Self {
        let claim = request.claim();
        // What a holder takes over keeps its end, which may be that of a longer ttl (P23).
        let lives = if claim.value.holder_prefix().is_empty() { claim.ttl } else { claim.ttl.max(LONGEST_TAKEN_OVER) };
        // Twice that: no clock is off by that much.
        let expires_at = now.saturating_add(lives.saturating_mul(2));
        Self { request: request.without_successor(), expires_at }
    }

    /// The same for another time.
    fn resent(self) -> Self {
        Self { request: self.request.resent(), ..self }
    }
}

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
    GiveBack(PendingRelease),
}

impl Then {
    const fn releases(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

/// Hands calls and releases to the client's release task. Never blocks and needs no runtime.
#[derive(Debug)]
pub(crate) struct BackgroundReleaser {
    calls: mpsc::UnboundedSender<Vec<OutstandingCall>>,
    /// How many releases are pending on each instance.
    pending: Arc<watch::Sender<Vec<usize>>>,
}

impl BackgroundReleaser {
    /// Starts the task. It ends when the client is gone and every release is confirmed or expired.
    pub(crate) fn start(instances: Arc<[Arc<dyn Instance>]>, clock: Arc<dyn Clock>) -> Self {
        let (calls, receiver) = mpsc::unbounded_channel();
        let pending = Arc::new(watch::Sender::new(vec![0; instances.len()]));
        let unconfirmed = instances.iter().map(|_| VecDeque::new()).collect();
        let retrying = InstanceSet::default();
        let task = ReleaseTask { instances, clock, unconfirmed, pending: Arc::clone(&pending), retrying };
        tokio::spawn(task.run(receiver));
        Self { calls, pending }
    }

    /// Queues a release on `targets` at once, and sends it again until it is confirmed.
    pub(super) fn release(
        &self,
        instances: &[Arc<dyn Instance>],
        request: &Request,
        targets: InstanceSet,
        now: Instant,
    ) {
        let call = |id: InstanceId| {
            let call = instances.get(id.index())?.call(request.clone());
            Some(OutstandingCall { id, call, then: Then::ReleaseAgain(PendingRelease::new(request.clone(), now)) })
        };
        self.finish(targets.iter().filter_map(call).collect());
    }

    /// Awaits calls to their end.
    pub(super) fn finish(&self, calls: Vec<OutstandingCall>) {
        self.pending.send_if_modified(|pending| {
            for call in calls.iter().filter(|call| call.then.releases()) {
                if let Some(count) = pending.get_mut(call.id.index()) {
                    *count += 1;
                }
            }
            false // only a count that falls wakes those who wait for zero
        });
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
    GiveBackDue(OutstandingCall),
    RetryDue(InstanceId),
}

type Events = FuturesUnordered<BoxFuture<'static, Event>>;

struct ReleaseTask {
    instances: Arc<[Arc<dyn Instance>]>,
    clock: Arc<dyn Clock>,
    /// By instance, oldest first: releases to be sent again.
    unconfirmed: Vec<VecDeque<PendingRelease>>,
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
            if self.unconfirmed.get(id.index()).is_some_and(|unconfirmed| !unconfirmed.is_empty()) {
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
                        Then::GiveBack(release) => self.after_try(id, &reply, release, events),
                    },
                    Event::GiveBackDue(call) => self.give_back_unheard(call, events),
                    Event::RetryDue(id) => self.retry(id, events),
                },
                calls = calls.recv(), if open => match calls {
                    Some(calls) => events.extend(calls.into_iter().map(reply_of)),
                    None => open = false,
                },
            }
        }
    }

    fn after_try(&mut self, id: InstanceId, reply: &Reply, release: PendingRelease, events: &Events) {
        if matches!(reply, Reply::Refused(_) | Reply::NotSent(_)) {
            self.count_down(id, 1);
        } else {
            self.send(id, release, events);
        }
    }

    /// The try is awaited to its end (P6), and the release is sent behind it.
    fn give_back_unheard(&mut self, unheard: OutstandingCall, events: &Events) {
        let OutstandingCall { id, call, then } = unheard;
        events.push(reply_of(OutstandingCall { id, call, then: Then::Nothing }));
        if let Then::GiveBack(release) = then {
            self.send(id, release, events);
        }
    }

    fn send(&self, id: InstanceId, release: PendingRelease, events: &Events) {
        if let Some(instance) = self.instances.get(id.index()) {
            let call = instance.call(release.request.clone());
            events.push(reply_of(OutstandingCall { id, call, then: Then::ReleaseAgain(release) }));
        }
    }

    fn on_reply(&mut self, id: InstanceId, reply: &Reply, release: PendingRelease, events: &Events) {
        let is_confirmed = matches!(reply, Reply::Granted | Reply::Refused(_)); // gone or foreign is as good
        let Some(unconfirmed) = self.unconfirmed.get_mut(id.index()).filter(|_| !is_confirmed) else {
            self.count_down(id, 1);
            return;
        };
        unconfirmed.push_back(release);
        let surplus = unconfirmed.len().saturating_sub(MAX_PENDING);
        if surplus > 0 {
            unconfirmed.drain(..surplus); // the oldest expire first
            self.count_down(id, surplus);
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
        let now = self.clock.now();
        let (Some(instance), Some(unconfirmed)) =
            (self.instances.get(id.index()), self.unconfirmed.get_mut(id.index()))
        else {
            return;
        };
        let before = unconfirmed.len();
        unconfirmed.retain(|release| now < release.expires_at);
        let expired = before - unconfirmed.len();
        if instance.obstacle().is_none() {
            for release in unconfirmed.drain(..unconfirmed.len().min(MAX_BURST)) {
                let release = release.resent();
                let call = instance.call(release.request.clone());
                events.push(reply_of(OutstandingCall { id, call, then: Then::ReleaseAgain(release) }));
            }
        }
        let more = !unconfirmed.is_empty();
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
                Then::GiveBack(_) => timeout(TRY_PATIENCE, &mut call).await.ok(),
                Then::Nothing | Then::ReleaseAgain(_) => Some((&mut call).await),
            }
        });
        match answered.catch_unwind().await {
            Ok(Some(reply)) => Event::Reply { id, reply, then },
            Ok(None) => Event::GiveBackDue(OutstandingCall { id, call, then }),
            Err(_) => {
                Event::Reply { id, reply: Reply::Unknown(Cause::Server("its request panicked".to_owned())), then }
            }
        }
    })
}
