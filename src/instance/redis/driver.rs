//! The task of the redis crate that writes to a connection and reads from it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::task::{AbortHandle, unconstrained};

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The task that writes and reads. It is aborted when this is dropped, and notifies when it ended before.
pub(super) struct Driver(AbortHandle);

impl Driver {
    pub(super) fn start(driver: impl Future<Output = ()> + Send + 'static, ended: Arc<Notify>) -> Self {
        let ended = Ended(ended);
        let task = tokio::spawn(async move {
            driver.await;
            drop(ended);
        });
        Self(task.abort_handle())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells however the task ends: by a panic, or with the runtime, too.
struct Ended(Arc<Notify>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Puts a command into the connection's queue now, by polling its future once; awaiting the
/// result polls it again.
///
/// Unconstrained, because a task that used up its cooperative budget would not queue the command on
/// the first poll, and a later release could overtake it (P6).
pub(super) fn poll_once<T: Send + 'static>(send: impl Future<Output = T> + Send + 'static) -> BoxFuture<T> {
    let mut send: BoxFuture<T> = Box::pin(unconstrained(send));
    match send.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Box::pin(ready(result)),
        Poll::Pending => send,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// P6: what is sent later must not overtake what was sent before, whoever awaits its answer first.
    #[test]
    fn a_command_is_sent_when_it_is_made_and_not_when_its_answer_is_awaited() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let send = |name: &'static str| {
            let sent = Arc::clone(&sent);
            poll_once(async move { sent.lock().unwrap().push(name) })
        };
        let (acquire, release) = (send("acquire"), send("release"));
        assert_eq!(*sent.lock().unwrap(), ["acquire", "release"]);
        drop((release, acquire));
    }
}
