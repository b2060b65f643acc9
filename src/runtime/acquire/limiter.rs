//! Bounds how many tries of one client for the same lock are under way at once.
//!
//! Only one of them can win. A thousand that are sent together keep every instance, and the connections
//! that other locks use as well, busy with refusals and their releases.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::resource::Resources;

/// One whose round is in flight, and one that is ready when it has failed.
const MAX_PER_LOCK: usize = 2;

/// Permits to try for a lock, and the tries that wait for one.
#[derive(Debug, Default)]
pub(crate) struct AttemptLimiter {
    hasher: RandomState,
    /// By the hash of the resources: two locks that share it by chance share their permits.
    queues: Mutex<BTreeMap<u64, LockQueue>>,
}

#[derive(Debug, Default)]
struct LockQueue {
    under_way: usize,
    /// In the order in which they asked.
    waiting: VecDeque<oneshot::Sender<AttemptPermit>>,
}

/// The right to try for a lock now. Dropped, it goes to the next that waits.
#[derive(Debug)]
pub(super) struct AttemptPermit {
    limiter: Option<Arc<AttemptLimiter>>,
    lock: u64,
}

/// A permit, now or later.
pub(super) enum PermitRequest {
    Granted(AttemptPermit),
    Queued(oneshot::Receiver<AttemptPermit>),
}

impl AttemptLimiter {
    /// How many locks have a try under way.
    #[cfg(feature = "testing")]
    pub(crate) fn locks(&self) -> usize {
        self.queues().len()
    }

    /// Asks for a permit to try for these resources.
    pub(super) fn request(self: &Arc<Self>, resources: &Resources) -> PermitRequest {
        let lock = self.hasher.hash_one(resources);
        let mut queues = self.queues();
        let queue = queues.entry(lock).or_default();
        if queue.under_way < MAX_PER_LOCK {
            queue.under_way += 1;
            return PermitRequest::Granted(AttemptPermit { limiter: Some(Arc::clone(self)), lock });
        }
        let (sender, permit) = oneshot::channel();
        queue.waiting.push_back(sender);
        PermitRequest::Queued(permit)
    }

    /// The next that still waits for a permit; if none does, the permit is taken back.
    fn next(&self, lock: u64) -> Option<oneshot::Sender<AttemptPermit>> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&lock)?;
        while let Some(next) = queue.waiting.pop_front() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        queue.under_way = queue.under_way.saturating_sub(1);
        if queue.under_way == 0 {
            queues.remove(&lock);
        }
        None
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u64, LockQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        let Some(mut limiter) = self.limiter.take() else { return };
        while let Some(next) = limiter.next(self.lock) {
            match next.send(Self { limiter: Some(limiter), lock: self.lock }) {
                Ok(()) => return,
                // Dropped since. The permit comes back, and goes to the one after.
                Err(mut permit) => match permit.limiter.take() {
                    Some(back) => limiter = back,
                    None => return,
                },
            }
        }
    }
}
