//! Releases that outlive their callers (P6): a release that an instance has not confirmed is sent again until it is, or until
//! the keys have expired.
//!
//! The tasks of the connections put the replies in here. The task of the client only waits: for the pause before a release is
//! sent again, and for a moment for the answer to a lost try.

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use super::ballot::Ballot;
use crate::clock::Clock;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, ReplyTo, Request, TakesReplies, Wake};
use crate::log_limit::LogLimit;
use crate::protocol::{Cause, InstanceId, InstanceSet, Quorum, Reply};
use crate::runtime::pending_releases::{PendingRelease, PendingReleases, ReleaseNumber};
use crate::runtime::tasks::ran_to_its_end;

/// The pause before a release that was not confirmed is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long the release of a lost try waits for the reply that makes it needless; then it is sent behind the try.
const TRY_PATIENCE: Duration = Duration::from_millis(5);

/// How long a retry waits for a connection before it drops the releases whose keys have expired.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The most releases that are sent again to one instance at once, and the most that are kept for it.
const MAX_BURST: usize = 1024;
const MAX_PENDING: usize = 128 * 1024;

/// The releases of a client that are under way. Never blocks and needs no runtime.
pub(crate) struct BackgroundReleaser {
    instances: Arc<[RedisInstance]>,
    quorum: Quorum,
    clock: Arc<dyn Clock>,
    /// Those that wait for the reply to their try, which may show that there is nothing to release.
    for_try: PendingReleases,
    /// Those that are to be sent again.
    for_retry: PendingReleases,
    /// Instances for which a retry is scheduled.
    retrying: Mutex<InstanceSet>,
    /// Releases that were too many.
    drops: LogLimit,
    /// How many releases are pending on each instance.
    pending: Box<[AtomicUsize]>,
    /// How many releases a quorum has not confirmed: their locks may still be held.
    unconfirmed: AtomicUsize,
    /// Notified when none is left on one of them.
    none_left: Notify,
    pauses: mpsc::UnboundedSender<Pause>,
}

/// What the task waits for. The releases are there until it is over.
enum Pause {
    /// For the replies to a lost try, before its releases are sent behind it.
    AfterTry(Arc<LostTry>),
    /// Before the releases for an instance are sent again.
    BeforeRetry(Arc<BackgroundReleaser>, InstanceId),
}

impl BackgroundReleaser {
    /// Starts the task. It ends when the client is gone and every release is confirmed or expired.
    pub(crate) fn start(instances: Arc<[RedisInstance]>, quorum: Quorum, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (pauses, receiver) = mpsc::unbounded_channel();
        let count = instances.len();
        let releases = Arc::new(Self {
            for_try: PendingReleases::new(count),
            for_retry: PendingReleases::new(count),
            pending: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            unconfirmed: AtomicUsize::new(0),
            none_left: Notify::new(),
            retrying: Mutex::default(),
            drops: LogLimit::default(),
            instances,
            quorum,
            clock,
            pauses,
        });
        tokio::spawn(run(Arc::downgrade(&releases), receiver));
        releases
    }

    /// Queues a release on `targets` at once, behind which `wakes` are published, and sends it again until it is confirmed. The
    /// replies go to `ballot` too, if the caller waits for them.
    pub(super) fn release(
        self: &Arc<Self>,
        (claim, wakes): (Arc<Claim>, Option<Arc<[Wake]>>),
        targets: InstanceSet,
        ballot: Option<Arc<Ballot>>,
    ) {
        let release = self.begin(claim, targets);
        let sent = Arc::new(SentRelease { releases: Arc::clone(self), release, ballot });
        sent.call(targets, 0, wakes.as_ref());
    }

    /// P6: keys that earlier attempts for this lock may have left on `targets` are released now, ahead of the request of this claim, which
    /// is sent next.
    pub(super) fn release_ahead(self: &Arc<Self>, claim: &Claim, targets: InstanceSet) {
        if self.for_try.is_empty() && self.for_retry.is_empty() {
            return;
        }
        for id in targets.iter() {
            let Some(instance) = self.instances.get(id.index()) else { continue };
            let mut releases = self.for_try.take_for(id, claim);
            if instance.obstacle().is_none() {
                releases.extend(self.for_retry.take_for(id, claim));
            }
            releases.into_iter().for_each(|release| self.send(id, release)); // they are counted as pending already
        }
    }

    /// The release of an attempt that is lost, on those of `instances` where no reply to it shows that it set no key.
    pub(super) fn release_after_replies(self: &Arc<Self>, ballot: &Ballot, instances: InstanceSet, claim: Arc<Claim>) {
        let release = self.begin(claim, instances);
        let wait = |id: InstanceId| (id, self.for_try.put(id, release.clone()));
        let lost = Arc::new(LostTry { releases: Arc::clone(self), waiting: instances.iter().map(wait).collect() });
        // An error means that the runtime is gone, and the connections with it.
        let _ = self.pauses.send(Pause::AfterTry(Arc::clone(&lost)));
        ballot.leave_to(instances, lost);
    }

    /// Waits until no release is pending, at most `limit`.
    pub(crate) async fn drain(&self, limit: Duration) {
        let until_none = async {
            loop {
                let mut none_left = std::pin::pin!(self.none_left.notified());
                none_left.as_mut().enable();
                if self.pending().iter().all(|count| *count == 0) {
                    return;
                }
                none_left.await;
            }
        };
        let _ = timeout(limit, until_none).await;
    }

    /// Whether the task is gone, and with it the runtime.
    pub(super) fn has_ended(&self) -> bool {
        self.pauses.is_closed()
    }

    /// How many releases are pending on each instance.
    pub(crate) fn pending(&self) -> Vec<usize> {
        self.pending.iter().map(|count| count.load(Ordering::Acquire)).collect()
    }

    /// Whether a quorum has confirmed each release, or the keys have expired there.
    pub(crate) fn are_confirmed_by_quorums(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire) == 0
    }

    /// Sends a release that is counted as pending.
    fn send(self: &Arc<Self>, id: InstanceId, release: PendingRelease) {
        let sent = Arc::new(SentRelease { releases: Arc::clone(self), release, ballot: None });
        sent.call(InstanceSet::only(id), 0, None);
    }

    fn send_again_later(self: &Arc<Self>, id: InstanceId, release: PendingRelease) {
        self.for_retry.put(id, release);
        let dropped = self.for_retry.take_beyond(id, MAX_PENDING); // the oldest expire first
        if !dropped.is_empty() {
            self.end(id, &dropped);
            self.log_dropped(id);
        }
        self.retry_later(id);
    }

    fn log_dropped(&self, id: InstanceId) {
        let (Some(times), Some(instance)) = (self.drops.note(self.clock.now()), self.instances.get(id.index())) else {
            return;
        };
        let instance = instance.address();
        tracing::warn!(
            instance,
            times,
            "more than {MAX_PENDING} releases wait for an instance: of the oldest, the keys stay there until they expire"
        );
    }

    fn retry_later(self: &Arc<Self>, id: InstanceId) {
        let mut retrying = self.retrying.lock().unwrap_or_else(PoisonError::into_inner);
        if !retrying.contains(id) {
            retrying.insert(id);
            let _ = self.pauses.send(Pause::BeforeRetry(Arc::clone(self), id));
        }
    }

    fn retry(self: &Arc<Self>, id: InstanceId) {
        self.retrying.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        let Some(instance) = self.instances.get(id.index()) else { return };
        let expired = self.for_retry.take_expired(id, self.clock.now());
        if instance.obstacle().is_none() {
            for release in self.for_retry.take_oldest(id, MAX_BURST) {
                self.send(id, release);
            }
        }
        let more = self.for_retry.len(id) > 0;
        self.end(id, &expired);
        if more {
            self.retry_later(id);
        }
    }

    /// After a panic a retry may be lost.
    fn recover(self: &Arc<Self>) {
        *self.retrying.lock().unwrap_or_else(PoisonError::into_inner) = InstanceSet::default();
        InstanceId::all(self.instances.len())
            .filter(|id| self.for_retry.len(*id) > 0)
            .for_each(|id| self.retry_later(id));
    }

    /// A release that is pending on `instances` from now on.
    fn begin(&self, claim: Arc<Claim>, instances: InstanceSet) -> PendingRelease {
        if self.quorum.is_out_of_reach(instances.len()) {
            self.unconfirmed.fetch_add(1, Ordering::AcqRel);
        }
        for count in instances.iter().filter_map(|id| self.pending.get(id.index())) {
            count.fetch_add(1, Ordering::AcqRel);
        }
        PendingRelease::new(claim, instances.len(), self.clock.now())
    }

    /// These releases are not pending on an instance any more: it has confirmed them, or their keys have expired.
    fn end(&self, id: InstanceId, releases: &[PendingRelease]) {
        for release in releases {
            let before = release.pending_on.fetch_sub(1, Ordering::AcqRel);
            if self.quorum.is_out_of_reach(before) && !self.quorum.is_out_of_reach(before - 1) {
                self.unconfirmed.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let Some(count) = self.pending.get(id.index()).filter(|_| !releases.is_empty()) else { return };
        let left = |before: usize| before.saturating_sub(releases.len());
        let before = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| Some(left(before)));
        if before.is_ok_and(|before| left(before) == 0) {
            self.none_left.notify_waiters();
        }
    }
}

impl std::fmt::Debug for BackgroundReleaser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackgroundReleaser").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

/// A release that was sent. Where it is not confirmed, it is sent again.
struct SentRelease {
    releases: Arc<BackgroundReleaser>,
    release: PendingRelease,
    /// Where the replies go too, if the caller waits for them.
    ballot: Option<Arc<Ballot>>,
}

impl TakesReplies for SentRelease {
    fn take(self: Arc<Self>, id: InstanceId, number: usize, reply: Reply) {
        if number == 0 && self.ballot.is_some() && matches!(reply, Reply::NotSent(Cause::ScriptMissing)) {
            // The scripts are on their way there again. The next attempt for the lock has another value.
            return self.call(InstanceSet::only(id), 1, None);
        }
        self.settle(id, &reply);
        if let Some(ballot) = &self.ballot {
            Arc::clone(ballot).take(id, number, reply);
        }
    }
}

impl SentRelease {
    /// Sends it. The next waiter may not wait any more when it is sent again.
    fn call(self: &Arc<Self>, targets: InstanceSet, number: usize, wakes: Option<&Arc<[Wake]>>) {
        RedisInstance::call_each(&self.releases.instances, targets, |id| {
            let request = Request::Release(Arc::clone(&self.release.claim), wakes.cloned());
            (request, ReplyTo::numbered(Arc::clone(self) as Arc<_>, id, number))
        });
    }

    fn settle(&self, id: InstanceId, reply: &Reply) {
        let is_confirmed = matches!(reply, Reply::Granted | Reply::Refused(_)); // gone or foreign is as good
        if is_confirmed {
            self.releases.end(id, slice::from_ref(&self.release));
        } else {
            self.releases.send_again_later(id, self.release.clone());
        }
    }
}

/// An attempt that was lost before it was answered everywhere.
struct LostTry {
    releases: Arc<BackgroundReleaser>,
    waiting: Vec<(InstanceId, ReleaseNumber)>,
}

impl TakesReplies for LostTry {
    fn take(self: Arc<Self>, id: InstanceId, _: usize, reply: Reply) {
        let Some((_, number)) = self.waiting.iter().find(|(of, _)| *of == id) else { return };
        // Unless it was sent by now.
        let Some(release) = self.releases.for_try.take(id, *number) else { return };
        if matches!(reply, Reply::Refused(_) | Reply::NotSent(_)) {
            self.releases.end(id, &[release]);
        } else {
            self.releases.send(id, release);
        }
    }
}

impl Pause {
    /// Ends when it is over.
    fn wait(self) -> BoxFuture<'static, Self> {
        let connected = match &self {
            Self::AfterTry(_) => None,
            Self::BeforeRetry(releases, id) => releases.instances.get(id.index()).map(RedisInstance::wait_connected),
        };
        Box::pin(async move {
            match connected {
                None => sleep(TRY_PATIENCE).await,
                Some(connected) => {
                    sleep(RETRY_PAUSE).await;
                    let _ = timeout(RETRY_WAIT, connected).await;
                }
            }
            self
        })
    }

    fn end(self) {
        match self {
            Self::AfterTry(lost) => {
                for (id, number) in &lost.waiting {
                    if let Some(release) = lost.releases.for_try.take(*id, *number) {
                        lost.releases.send(*id, release);
                    }
                }
            }
            Self::BeforeRetry(releases, id) => releases.retry(id),
        }
    }
}

async fn run(releases: Weak<BackgroundReleaser>, mut pauses: mpsc::UnboundedReceiver<Pause>) {
    let mut under_way = FuturesUnordered::new();
    while !ran_to_its_end("releases locks", serve(&mut pauses, &mut under_way)).await {
        releases.upgrade().iter().for_each(BackgroundReleaser::recover);
    }
}

async fn serve(
    pauses: &mut mpsc::UnboundedReceiver<Pause>,
    under_way: &mut FuturesUnordered<BoxFuture<'static, Pause>>,
) {
    let mut open = true;
    while open || !under_way.is_empty() {
        tokio::select! {
            biased; // what is over first
            Some(pause) = under_way.next(), if !under_way.is_empty() => pause.end(),
            pause = pauses.recv(), if open => match pause {
                Some(pause) => under_way.push(pause.wait()),
                None => open = false,
            },
        }
    }
}
