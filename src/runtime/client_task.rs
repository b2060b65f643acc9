//! Work that goes on in a task of the client, whether its caller polls or not (P22).
//!
//! A caller may hold a future and not poll it: another branch of its `select!` is busy. What was begun
//! for it takes room in the queues of the instances, and perhaps the mutex of a holder, so a task
//! of the client carries it out. Only the result waits for the caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The runtime of the client has ended: nothing goes on any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeEnded;

/// Runs work to its end, also if the caller is dropped. The work sends its result through the sender,
/// and may go on after that.
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
/// releases that its drop queues are queued when the caller's drop returns.
pub(super) async fn run_abort_on_drop<T, F>(
    runtime: &Handle,
    work: impl FnOnce(oneshot::Sender<T>) -> F,
) -> Result<T, RuntimeEnded>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let work = Arc::new(SharedWork(Mutex::new(Some(Box::pin(work(sender)) as BoxFuture))));
    let task = runtime.spawn(WorkTask(Arc::clone(&work)));
    let mut abort_on_drop = AbortOnDrop(Some((work, task)));
    let result = result.await.map_err(|_| RuntimeEnded);
    abort_on_drop.0 = None;
    result
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that its caller and its task share; `None` once it has ended.
struct SharedWork(Mutex<Option<BoxFuture>>);

impl SharedWork {
    fn lock(&self) -> MutexGuard<'_, Option<BoxFuture>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abort(&self) {
        let work = self.lock().take();
        drop(work); // not under the lock
    }
}

/// The task's side.
struct WorkTask(Arc<SharedWork>);

impl Future for WorkTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = self.0.lock();
        match work.as_mut().map(|work| work.as_mut().poll(cx)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(())) | None => Poll::Ready(()),
        }
    }
}

impl Drop for WorkTask {
    /// The work has ended, or the runtime has: then the caller must learn of it.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The caller's side, until it has the result.
struct AbortOnDrop(Option<(Arc<SharedWork>, JoinHandle<()>)>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some((work, task)) = self.0.take() {
            work.abort();
            task.abort(); // nothing would ever wake it
        }
    }
}
