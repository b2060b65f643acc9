//! How many tries of one client for the same lock are on their way at once.
//!
//! Only one of them can win. A thousand that are sent together keep every instance, and the connections
//! that other locks use as well, busy with refusals and their clean-up.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Shared;
use crate::resource::Resources;

/// One on its way, and one that is there when it has failed.
const MAX_PER_LOCK: usize = 2;

/// Whose turn it is, for each lock that is being tried for.
#[derive(Debug, Default)]
pub(crate) struct AttemptLimiter {
    hasher: RandomState,
    /// By the hash of the resources: two locks that share it by chance share their turns.
    tries: Mutex<HashMap<u64, LockQueue>>,
}

#[derive(Debug, Default)]
struct LockQueue {
    under_way: usize,
    waiting: VecDeque<oneshot::Sender<AttemptPermit>>,
}

/// A place in the line for a lock.
pub(super) type PermitReceiver = oneshot::Receiver<AttemptPermit>;

/// The right to try for a lock now. Dropped, it goes to the next in line.
#[derive(Debug)]
pub(super) struct AttemptPermit {
    shared: Option<Arc<Shared>>,
    lock: u64,
}

impl AttemptLimiter {
    /// A turn if there is one, else a place in line.
    pub(super) fn enter(shared: &Arc<Shared>, resources: &Resources) -> Result<AttemptPermit, PermitReceiver> {
        let lock = shared.limiter.hasher.hash_one(resources);
        let mut tries = shared.limiter.lock();
        let tries = tries.entry(lock).or_default();
        if tries.under_way < MAX_PER_LOCK {
            tries.under_way += 1;
            return Ok(AttemptPermit { shared: Some(Arc::clone(shared)), lock });
        }
        let (turn, line) = oneshot::channel();
        tries.waiting.push_back(turn);
        Err(line)
    }

    /// The next who still waits; without one there is a turn more.
    fn next(&self, lock: u64) -> Option<oneshot::Sender<AttemptPermit>> {
        let mut all = self.lock();
        let tries = all.get_mut(&lock)?;
        while let Some(next) = tries.waiting.pop_front() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        tries.under_way = tries.under_way.saturating_sub(1);
        if tries.under_way == 0 {
            all.remove(&lock);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, LockQueue>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        let Some(mut shared) = self.shared.take() else { return };
        while let Some(next) = shared.limiter.next(self.lock) {
            match next.send(Self { shared: Some(shared), lock: self.lock }) {
                Ok(()) => return,
                // Gone since it was looked at. The turn comes back, and goes to the one after.
                Err(mut turn) => match turn.shared.take() {
                    Some(back) => shared = back,
                    None => return,
                },
            }
        }
    }
}
