//! Flushes that an instance reports (P15).
//!
//! Every flush is pushed, that of another database too, and no push says which it was. So any of them puts the instance into
//! quarantine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the flushes that were pushed over one connection.
///
/// Counted the moment a push arrives: pushes arrive in order with replies, so that no reply of after
/// the event is judged before it is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct FlushCount(Arc<AtomicU32>);

impl FlushCount {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// The flushes of one connection, and for how many of them the record is in doubt already.
#[derive(Debug)]
pub(super) struct Flushes {
    pushed: FlushCount,
    settled: AtomicU32,
}

impl Flushes {
    pub(super) const fn new(pushed: FlushCount) -> Self {
        Self { pushed, settled: AtomicU32::new(0) }
    }

    /// The last flush, if no quarantine was begun for it yet. Until then no vote counts.
    pub(super) fn unsettled(&self) -> Option<u32> {
        let pushed = self.pushed.count();
        (pushed != self.settled.load(Ordering::Acquire)).then_some(pushed)
    }

    /// A quarantine has begun for all flushes up to this one.
    pub(super) fn settle(&self, flush: u32) {
        self.settled.store(flush, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_comes_while_another_is_settled_is_not_settled_with_it() {
        let flushes = Flushes::new(FlushCount::default());
        assert_eq!(flushes.unsettled(), None);
        flushes.pushed.note();
        let first = flushes.unsettled();
        flushes.pushed.note();
        assert_eq!((first, flushes.unsettled()), (Some(1), Some(2)));
        flushes.settle(1);
        assert_eq!(flushes.unsettled(), Some(2));
        flushes.settle(2);
        assert_eq!(flushes.unsettled(), None);
    }
}
