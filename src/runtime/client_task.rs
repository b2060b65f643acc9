//! Work that continues in a task of the client, whether its caller polls or not (P22).
//!
//! A caller may hold a future and not poll it: another branch of its `select!` is busy. What was begun
//! for it takes room in the queues of the instances, and perhaps a permit that others wait for, so a task
//! of the client carries it out. Only the result waits for the caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The runtime of the client has ended: its tasks, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeEnded;

/// Runs work to its end, also if the caller is dropped. The work sends its result through the sender,
/// and may continue after that.
pub(super) async fn run_detached<T, F>(
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
