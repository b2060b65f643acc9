//! Tasks of a client.
//!
//! A caller may hold a future and not poll it: another branch of its `select!` is busy. What was begun for it takes room in the
//! queues of the instances, and perhaps a permit that others wait for, so a task of the client carries it out (P22). Only the result
//! waits for the caller.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The pause before a task continues that has panicked: what panics each time must not take a processor.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// The runtime of the client has ended: its tasks, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeEnded;

/// Runs work to its end, also if the caller is dropped. The work sends its result through the sender,
/// and may continue after that.
pub(crate) async fn run_detached<T, F>(
    runtime: &Handle,
    work: impl FnOnce(oneshot::Sender<T>) -> F,
) -> Result<T, RuntimeEnded>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    runtime.spawn(work(sender));
    result.await.map_err(|_| RuntimeEnded)
}

/// As [`run_detached`], but if the caller is dropped before there is a result, so is the work, at once: the
/// releases that its drop queues are queued when the caller's drop returns. Work that another thread polls at that moment is
/// dropped when that poll ends.
pub(super) async fn run_abort_on_drop<T, F>(
    runtime: &Handle,
    work: impl FnOnce(oneshot::Sender<T>) -> F,
) -> Result<T, RuntimeEnded>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let mut task = AbortableTask::spawn(runtime, work(sender));
    let result = result.await.map_err(|_| RuntimeEnded);
    task.0 = None; // it continues by itself
    result
}

/// As [`run_abort_on_drop`], but what the work gains waits for its caller for `patience` only, and is dropped then: `None` for a caller
/// that polls later.
pub(crate) async fn run_and_offer<T, E>(
    runtime: &Handle,
    patience: Duration,
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<Result<Option<T>, E>, RuntimeEnded>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let offered = run_abort_on_drop(runtime, |result: oneshot::Sender<Result<Arc<Offered<T>>, E>>| async move {
        let offered = match work.await {
            Ok(gained) => Arc::new(Offered::new(gained)),
            Err(error) => return drop(result.send(Err(error))),
        };
        let _ = result.send(Ok(Arc::clone(&offered)));
        let _ = timeout(patience, offered.taken()).await;
        drop(offered.take());
    });
    Ok(offered.await?.map(|offered| offered.take()))
}

/// What was gained for a caller that may not poll for long. Caller and client share it: either may take it.
pub(super) struct Offered<T> {
    gained: Mutex<Option<T>>,
    taken: Notify,
}

impl<T> Offered<T> {
    pub(super) const fn new(gained: T) -> Self {
        Self { gained: Mutex::new(Some(gained)), taken: Notify::const_new() }
    }

    /// It, unless it was taken before.
    pub(super) fn take(&self) -> Option<T> {
        let gained = self.gained.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.taken.notify_one();
        gained
    }

    /// Waits until it was taken.
    pub(super) async fn taken(&self) {
        self.taken.notified().await;
    }
}

/// Work that its caller and its task share; `None` once it has ended.
struct SharedWork {
    work: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    aborted: AtomicBool,
}

impl SharedWork {
    /// Drops the work. One that is polled at this moment is dropped behind that poll: a waker may drop the caller in it.
    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        let work = match self.work.try_lock() {
            Ok(mut work) => work.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(work); // not under the lock
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let poll = work.as_mut().map(|work| work.as_mut().poll(cx));
        let aborted = if self.aborted.load(Ordering::Acquire) { work.take() } else { None };
        drop(work);
        match poll {
            Some(Poll::Pending) if aborted.is_none() => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

/// The task's side.
struct WorkTask(Arc<SharedWork>);

impl Future for WorkTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

impl Drop for WorkTask {
    /// The work has ended, or the runtime has: then the caller must learn of it.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The caller's side. Dropped, it drops the work.
struct AbortableTask(Option<(Arc<SharedWork>, JoinHandle<()>)>);

impl AbortableTask {
    fn spawn(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let work = Arc::new(SharedWork { work: Mutex::new(Some(Box::pin(work))), aborted: AtomicBool::new(false) });
        let task = runtime.spawn(WorkTask(Arc::clone(&work)));
        Self(Some((work, task)))
    }
}

impl Drop for AbortableTask {
    fn drop(&mut self) {
        if let Some((work, task)) = self.0.take() {
            work.abort();
            task.abort(); // nothing would ever wake it
        }
    }
}

/// Carries out what a caller polls, with the timers of the client's runtime where no other one is entered: on a plain thread.
pub(crate) async fn with_timers<T>(runtime: &Handle, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _entered = Handle::try_current().is_err().then(|| runtime.enter());
        work.as_mut().poll(cx)
    })
    .await
}

/// Returns where the client's runtime has not run a task for twice this time, beginning after `first`, by a timer of the caller: a
/// current-thread runtime runs only while it is blocked on.
pub(crate) async fn stalled(runtime: &Handle, first: Duration, time: Duration) {
    let watch = async {
        sleep(first).await;
        loop {
            let probe = runtime.spawn(async {});
            // One of them may end late where the whole machine stood still.
            sleep(time).await;
            sleep(time).await;
            if !probe.is_finished() {
                return;
            }
        }
    };
    with_timers(runtime, watch).await;
}

/// Whether `work` of a task on which all locks of a client depend came to its end. A panic is logged,
/// and the task is to begin it again.
pub(crate) async fn ran_to_its_end(what: &'static str, work: impl Future<Output = ()>) -> bool {
    if AssertUnwindSafe(work).catch_unwind().await.is_ok() {
        return true;
    }
    tracing::error!("the task that {what} has panicked, and goes on");
    sleep(AFTER_PANIC).await;
    false
}

/// The tries of one client that are under way, and whether new ones may begin.
#[derive(Debug, Default)]
pub(crate) struct AttemptTracker {
    under_way: AtomicUsize,
    closed: AtomicBool,
    all_ended: Notify,
    closing: Notify,
}

impl AttemptTracker {
    #[cfg(feature = "testing")]
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// From now on no try begins, and none that is under way returns a lock.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until none is under way; of use after [`close`](Self::close).
    pub(crate) async fn wait(&self) {
        loop {
            let mut ended = std::pin::pin!(self.all_ended.notified());
            ended.as_mut().enable();
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// One try, from before anything is sent until its outcome is known and its releases are queued.
#[derive(Debug)]
pub(crate) struct TrackedAttempt(Arc<AttemptTracker>);

impl TrackedAttempt {
    /// `None` if the client was shut down. A shutdown after this waits for the try to end.
    pub(super) fn begin(tracker: &Arc<AttemptTracker>) -> Option<Self> {
        let tracked = Self::of_shutdown(tracker);
        (!tracker.is_closed()).then_some(tracked)
    }

    /// For work of a shutdown: others wait for its end as well.
    pub(crate) fn of_shutdown(tracker: &Arc<AttemptTracker>) -> Self {
        tracker.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(tracker))
    }
}

impl Drop for TrackedAttempt {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_closed() {
            self.0.all_ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_may_begin_again_until_it_comes_to_its_end() {
        let mut begun = 0;
        let mut work = || {
            begun += 1;
            let ends = begun == 3;
            async move { assert!(ends, "as planned") }
        };
        while !ran_to_its_end("is tested", work()).await {}
        assert_eq!(begun, 3);
    }
}
