//! Bounds how many tries of one client for the same lock are under way at once.
//!
//! Only one of them can win. A thousand that are sent together keep every instance, and the connections
//! that other locks use as well, busy with refusals and their releases.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::params::AcquireParams;

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
    /// For whom: the next of the same holder shares what this one wins (P23).
    under_way: Vec<Arc<str>>,
    /// In the order in which they asked.
    waiting: VecDeque<(Arc<str>, oneshot::Sender<AttemptPermit>)>,
}

impl LockQueue {
    fn may_begin(&self, holder: &Arc<str>) -> bool {
        self.under_way.len() < MAX_PER_LOCK && (holder.is_empty() || !self.under_way.contains(holder))
    }
}

/// The right to try for a lock now. Dropped, it goes to the next that waits and may begin.
#[derive(Debug)]
pub(super) struct AttemptPermit {
    limiter: Arc<AttemptLimiter>,
    lock: u64,
    holder: Arc<str>,
    /// Whether it is given back already.
    is_over: bool,
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

    /// Asks for a permit to try.
    pub(super) fn request(self: &Arc<Self>, params: &AcquireParams) -> PermitRequest {
        let lock = self.hasher.hash_one(&params.resources);
        let holder = Arc::clone(&params.holder);
        let mut queues = self.queues();
        let queue = queues.entry(lock).or_default();
        if queue.may_begin(&holder) {
            queue.under_way.push(Arc::clone(&holder));
            return PermitRequest::Granted(self.permit(lock, holder));
        }
        let (sender, permit) = oneshot::channel();
        queue.waiting.push_back((holder, sender));
        PermitRequest::Queued(permit)
    }

    fn permit(self: &Arc<Self>, lock: u64, holder: Arc<str>) -> AttemptPermit {
        AttemptPermit { limiter: Arc::clone(self), lock, holder, is_over: false }
    }

    /// A try has ended.
    fn end(&self, lock: u64, holder: &Arc<str>) {
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(&lock) else { return };
        if let Some(at) = queue.under_way.iter().position(|under_way| under_way == holder) {
            queue.under_way.swap_remove(at);
        }
        queue.waiting.retain(|(_, next)| !next.is_closed());
        if queue.under_way.is_empty() && queue.waiting.is_empty() {
            queues.remove(&lock);
        }
    }

    /// The next that may begin now, and counts as under way from now on.
    fn next(&self, lock: u64) -> Option<(Arc<str>, oneshot::Sender<AttemptPermit>)> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&lock)?;
        let at = queue.waiting.iter().position(|(holder, _)| queue.may_begin(holder))?;
        let next = queue.waiting.remove(at)?;
        queue.under_way.push(Arc::clone(&next.0));
        Some(next)
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u64, LockQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Self { limiter, lock, holder, .. } = self;
        limiter.end(*lock, holder);
        while let Some((holder, next)) = limiter.next(*lock) {
            if let Err(mut unused) = next.send(limiter.permit(*lock, holder)) {
                unused.is_over = true; // its caller is gone since; not in a drop within a drop
                limiter.end(*lock, &unused.holder);
            }
        }
    }
}
