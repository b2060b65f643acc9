//! Who writes what callers want of the connections of a client: each caller at once, or, while tasks wait for callers to say what they want
//! next, these tasks, on all connections.
//!
//! A caller queues, and looks whether a task waits, under the mutex of its connection. A task ends its wait, and only then locks that: it
//! finds what is queued, or the caller locks later, and sees that it waits no more. `tests/gathering` tries this file in all orders.

use std::future::poll_fn;
use std::mem::replace;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

/// The connections of a client, and how many of their tasks wait for callers to say what they want next.
pub(crate) struct Gathering<C> {
    waiting: AtomicUsize,
    connections: Mutex<Vec<Weak<C>>>,
}

impl<C> Default for Gathering<C> {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), connections: Mutex::default() }
    }
}

impl<C> Gathering<C> {
    pub(super) fn is_on(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Queues on a connection, and writes, unless a task gathers: that writes it afterwards.
    pub(super) fn put<'a, S>(
        &self,
        connection: &'a Mutex<S>,
        queue: impl FnOnce(&mut S),
        write: impl FnOnce(&mut S),
    ) -> MutexGuard<'a, S> {
        let mut state = connection.lock().unwrap_or_else(PoisonError::into_inner);
        queue(&mut state);
        if !self.is_on() {
            write(&mut state);
        }
        state
    }

    /// Lets all tasks run that are ready now, and then has what they want written; also if the task that gathers ends meanwhile.
    pub(super) async fn gather(&self, write: fn(&[Arc<C>])) {
        struct Waits<'a, C>(&'a Gathering<C>, fn(&[Arc<C>]));
        impl<C> Drop for Waits<'_, C> {
            fn drop(&mut self) {
                self.0.waiting.fetch_sub(1, Ordering::AcqRel);
                let connections: Vec<_> = self.0.connections().iter().filter_map(Weak::upgrade).collect();
                self.1(&connections);
            }
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waits = Waits(self, write);
        let mut has_waited = false;
        // `yield_now` would keep other threads from taking this up.
        poll_fn(|cx| match replace(&mut has_waited, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }

    pub(super) fn add(&self, connection: &Arc<C>) {
        let mut connections = self.connections();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Weak<C>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
