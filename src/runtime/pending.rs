//! How many releases instances have yet to confirm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::protocol::{InstanceSet, Quorum};

/// The releases of a client that are not confirmed.
#[derive(Debug)]
pub(crate) struct Pending {
    quorum: Quorum,
    by_instance: Box<[AtomicUsize]>,
    /// How many a quorum has not confirmed: their locks may still be held.
    unconfirmed: AtomicUsize,
    /// Notified when none is left on one of the instances.
    none_left: Notify,
}

impl Pending {
    pub(crate) fn new(quorum: Quorum) -> Self {
        let by_instance = (0..quorum.instances()).map(|_| AtomicUsize::new(0)).collect();
        Self { quorum, by_instance, unconfirmed: AtomicUsize::new(0), none_left: Notify::new() }
    }

    /// One that these instances are to confirm.
    pub(super) fn begin(&self, instances: InstanceSet) {
        if self.quorum.is_out_of_reach(instances.len()) {
            self.unconfirmed.fetch_add(1, Ordering::AcqRel);
        }
        for count in instances.iter().filter_map(|id| self.by_instance.get(id.index())) {
            count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Of one that was pending on `before` some have confirmed it, or its keys have expired there: it is pending on `left`.
    pub(super) fn end(&self, before: InstanceSet, left: InstanceSet) {
        if self.quorum.is_out_of_reach(before.len()) && !self.quorum.is_out_of_reach(left.len()) {
            self.unconfirmed.fetch_sub(1, Ordering::AcqRel);
        }
        for count in before.without(left).iter().filter_map(|id| self.by_instance.get(id.index())) {
            if count.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.none_left.notify_waiters();
            }
        }
    }

    /// How many are pending on each instance.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.by_instance.iter().map(|count| count.load(Ordering::Acquire)).collect()
    }

    /// Whether a quorum has confirmed each, or the keys have expired there.
    pub(super) fn are_confirmed_by_quorums(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire) == 0
    }

    /// Waits until none is pending, at most `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        let until_none = async {
            loop {
                let mut none_left = std::pin::pin!(self.none_left.notified());
                none_left.as_mut().enable();
                if self.counts().iter().all(|count| *count == 0) {
                    return;
                }
                none_left.await;
            }
        };
        let _ = timeout(limit, until_none).await;
    }
}
