//! How many attempts of a client are under way at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::protocol::Instant;

/// So many attempts of a client are under way at once: as many as the commands that may be on their way to an instance can
/// carry. Thousands that are sent together wait in front of the connections for longer than the instance timeout;
/// they are all given up, released and sent again, and hardly any is won.
const MAX_ASKS: usize = 256;

/// So many of them may be repeated because a pause is over. The waiters of thousands of locks that other clients have poll
/// now and then: first attempts, and those of waiters that were woken, are not to queue behind them.
const MAX_REPEATS: usize = 192;

/// A key that waits for a permit.
pub(super) trait WaitsForPermit: Send + Sync {
    /// It is its turn to have one, or something was learnt while it waits.
    fn called(self: Arc<Self>, is_its_turn: bool);
}

/// The permits of a client.
pub(super) struct Permits(Mutex<State>);

struct State {
    asks_left: usize,
    repeats_left: usize,
    /// The keys that wait for a permit, first come first served.
    first_asks: VecDeque<(Instant, Weak<dyn WaitsForPermit>)>,
    repeats: VecDeque<Weak<dyn WaitsForPermit>>,
}

/// The right to send an attempt. Dropped, it goes to the key that has waited longest: never under the mutex of a key.
pub(super) struct AskPermit {
    permits: Arc<Permits>,
    is_repeat: bool,
}

impl Permits {
    pub(super) fn new() -> Arc<Self> {
        let (asks_left, repeats_left) = (MAX_ASKS, MAX_REPEATS);
        let state = State { asks_left, repeats_left, first_asks: VecDeque::new(), repeats: VecDeque::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// A permit, if there is one and no key has waited for longer, or it is the turn of this one.
    pub(super) fn take(self: &Arc<Self>, is_repeat: bool, is_its_turn: bool) -> Option<AskPermit> {
        let mut state = self.lock();
        let waits = !is_its_turn && if is_repeat { !state.repeats.is_empty() } else { !state.first_asks.is_empty() };
        if waits || state.asks_left == 0 || (is_repeat && state.repeats_left == 0) {
            return None;
        }
        state.asks_left -= 1;
        state.repeats_left -= usize::from(is_repeat);
        Some(AskPermit { permits: Arc::clone(self), is_repeat })
    }

    /// The key waits: it is called when there is a permit.
    pub(super) fn wait(&self, key: Weak<dyn WaitsForPermit>, is_repeat: bool, now: Instant) {
        let mut state = self.lock();
        if is_repeat { state.repeats.push_back(key) } else { state.first_asks.push_back((now, key)) }
    }

    /// Calls the keys that may have a permit now.
    pub(super) fn call_next(&self) {
        let mut state = self.lock();
        let mut called = Vec::new();
        let (mut asks, mut repeats) = (state.asks_left, state.repeats_left);
        while asks > 0 && called.is_empty() {
            let next = match state.first_asks.pop_front() {
                Some((_, key)) => Some(key),
                None if repeats > 0 => state.repeats.pop_front(),
                None => None,
            };
            let Some(next) = next else { break };
            if let Some(key) = next.upgrade() {
                asks -= 1;
                repeats = repeats.saturating_sub(1);
                called.push(key);
            }
        }
        drop(state);
        called.into_iter().for_each(|key| key.called(true));
    }

    /// Takes out those that have waited for a first attempt since before that.
    pub(super) fn take_waiting(&self, before: Instant) -> Vec<Arc<dyn WaitsForPermit>> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        while state.first_asks.front().is_some_and(|(since, _)| *since < before) {
            taken.extend(state.first_asks.pop_front().and_then(|(_, key)| key.upgrade()));
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AskPermit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        state.asks_left += 1;
        state.repeats_left += usize::from(self.is_repeat);
        drop(state);
        self.permits.call_next();
    }
}
