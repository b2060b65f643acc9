//! One timer for all keys of a client. What is entered is not taken out again: a key that is due for nothing any more is looked at in vain.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::AcquireFailure;
use super::keys::{KeyCell, Keys};
use crate::protocol::Instant;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::ran_to_its_end;

/// The shortest pause for which a timer is set.
pub(super) const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// When keys are due.
#[derive(Debug, Default)]
pub(super) struct Timer {
    state: Mutex<State>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: BinaryHeap<Reverse<Entry>>,
    /// Until when the task sleeps; `None` if it waits for an entry.
    asleep_until: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    key: Weak<KeyCell>,
}

impl Timer {
    /// The key is looked at when this is due.
    pub(super) fn enter(&self, key: &Arc<KeyCell>, due: Instant) {
        let mut state = self.lock();
        state.entries.push(Reverse(Entry { due, key: Arc::downgrade(key) }));
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

    /// Takes out the keys that are due, and when the next will be.
    fn take_due(&self, now: Instant) -> (Vec<Arc<KeyCell>>, Option<Instant>) {
        let mut state = self.lock();
        let mut due = Vec::new();
        while let Some(Reverse(first)) = state.entries.peek()
            && first.due <= now
        {
            due.extend(state.entries.pop().and_then(|Reverse(entry)| entry.key.upgrade()));
        }
        state.asleep_until = state.entries.peek().map(|Reverse(first)| first.due);
        (due, state.asleep_until)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the keys of a client when they are due. Ends with the client.
pub(crate) async fn run(client: Weak<Shared>) {
    let _ended = EndOfRuntime(Weak::clone(&client));
    while !ran_to_its_end("ends waits for locks", serve(&client)).await {}
}

/// Dropped with the runtime: whoever waits must learn of that.
struct EndOfRuntime(Weak<Shared>);

impl Drop for EndOfRuntime {
    fn drop(&mut self) {
        if let Some(client) = self.0.upgrade() {
            Keys::close(&client, &AcquireFailure::RuntimeEnded);
        }
    }
}

async fn serve(client: &Weak<Shared>) {
    loop {
        let Some(shared) = client.upgrade() else { return };
        let timer = shared.slots.timer();
        let (due, next) = timer.take_due(shared.clock.now());
        if !due.is_empty() {
            due.iter().for_each(|key| key.look(&shared));
            continue; // they may be due again
        }
        // Timers only wake, the clock decides (P3).
        let pause = next.map(|next| next.saturating_since(shared.clock.now()).max(LEAST_PAUSE));
        drop(shared);
        tokio::select! {
            biased;
            () = timer.sooner.notified() => {}
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}
