//! One timer for all keys of a client. What is entered is not taken out again: a key that is due for nothing any more is looked at in vain.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::protocol::Instant;

/// The shortest pause for which a timer is set.
pub(super) const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// When keys are due.
#[derive(Debug)]
pub(super) struct Timer<K> {
    state: Mutex<State<K>>,
    sooner: Notify,
}

#[derive(Debug)]
struct State<K> {
    entries: BinaryHeap<Reverse<Entry<K>>>,
    /// Those that are to be looked at in any case, also if nobody else has them any more.
    called: Vec<Arc<K>>,
    /// Until when the task sleeps; `None` if it waits for an entry.
    asleep_until: Option<Instant>,
}

#[derive(Debug)]
struct Entry<K> {
    due: Instant,
    key: Weak<K>,
}

impl<K> Default for Timer<K> {
    fn default() -> Self {
        let state = State { entries: BinaryHeap::new(), called: Vec::new(), asleep_until: None };
        Self { state: Mutex::new(state), sooner: Notify::new() }
    }
}

impl<K> Timer<K> {
    /// The key is looked at when this is due.
    pub(super) fn enter(&self, key: &Arc<K>, due: Instant) {
        self.lock().entries.push(Reverse(Entry { due, key: Arc::downgrade(key) }));
        self.wake_by(due);
    }

    /// The key is looked at now, whatever becomes of it meanwhile.
    pub(super) fn call(&self, key: Arc<K>, now: Instant) {
        self.lock().called.push(key);
        self.wake_by(now);
    }

    /// What is due is looked at by then.
    pub(super) fn wake_by(&self, due: Instant) {
        let mut state = self.lock();
        let is_sooner = state.asleep_until.is_none_or(|until| due < until);
        if is_sooner {
            state.asleep_until = Some(due); // one notification is enough
        }
        drop(state);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    /// The client is gone.
    pub(super) fn end(&self) {
        self.sooner.notify_one();
    }

    /// Waits until a key may be due: at `next`, or as one was entered that is due before.
    pub(super) async fn wait(&self, next: Option<Duration>) {
        let pause = next.map(|next| next.max(LEAST_PAUSE));
        tokio::select! {
            biased;
            () = self.sooner.notified() => {}
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }

    /// Takes out the keys that are due, and when the next will be.
    pub(super) fn take_due(&self, now: Instant) -> (Vec<Arc<K>>, Option<Instant>) {
        let mut state = self.lock();
        let mut due = std::mem::take(&mut state.called);
        while let Some(Reverse(first)) = state.entries.peek()
            && first.due <= now
        {
            due.extend(state.entries.pop().and_then(|Reverse(entry)| entry.key.upgrade()));
        }
        state.asleep_until = state.entries.peek().map(|Reverse(first)| first.due);
        (due, state.asleep_until)
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl<K> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<K> Eq for Entry<K> {}
