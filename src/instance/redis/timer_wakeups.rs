//! Makes deadlines cheap.
//!
//! The runtime's timer driver is woken, by a system call, whenever a timer is registered that is
//! due before all others. Every request has a deadline, nearly all of them are cancelled before
//! they are due, and so without anything else going on each request would pay for that. While
//! requests are made, one timer that is always due before their deadlines saves it; while none are
//! made there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// One for all connections of a client.
#[derive(Debug)]
pub(crate) struct TimerWakeups {
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
    begun: Notify,
}

impl TimerWakeups {
    /// Must be called within a tokio runtime.
    pub(crate) fn start(instance_timeout: Duration) -> Self {
        let state = Arc::<State>::default();
        let task = tokio::spawn(pace(Arc::clone(&state), instance_timeout / 4));
        Self { state, task }
    }

    /// A request with a deadline is made.
    pub(super) fn note_request(&self) {
        if !self.state.busy.load(Ordering::Relaxed) {
            self.state.busy.store(true, Ordering::Relaxed);
            self.state.begun.notify_one();
        }
    }
}

impl Drop for TimerWakeups {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pace(state: Arc<State>, pause: Duration) {
    loop {
        state.begun.notified().await;
        while state.busy.swap(false, Ordering::Relaxed) {
            sleep(pause).await;
        }
    }
}
