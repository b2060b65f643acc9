//! Flushes that an instance reports, and whether they were of the data with the locks.
//!
//! Every flush is pushed, that of another database too. Whether ours was flushed the server itself knows:
//! the connection watches the record's key (`WATCH`), and the server marks the connection once the key
//! was touched, by whatever means. A copy of the data that comes back does not take the mark away.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

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

/// Which of them are settled.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    told: FlushCount,
    settled: AtomicU32,
    /// How many had been pushed when the watch was certainly on; `None` without a watch.
    watched_since: Mutex<Option<u32>>,
    /// Nobody settles anything any more.
    has_ended: AtomicBool,
    news: Notify,
}

impl FlushWatch {
    pub(super) fn new(told: FlushCount) -> Self {
        Self { told, ..Self::default() }
    }

    pub(super) const fn count(&self) -> &FlushCount {
        &self.told
    }

    /// The last flush, if it is not settled whether it and those before were of our data.
    pub(super) fn unsettled(&self) -> Option<u32> {
        let told = self.told.count();
        (told != self.settled.load(Ordering::Acquire)).then_some(told)
    }

    /// Whether it is settled for the first so many. Whoever counted them as a vote came need not care for those of later: the
    /// vote was given before.
    pub(super) fn are_settled(&self, count: u32) -> bool {
        count <= self.settled.load(Ordering::Acquire)
    }

    /// Resolves once they are, or nobody settles any more.
    pub(super) async fn settled_up_to(&self, count: u32) {
        loop {
            let news = self.news.notified(); // what is told from here on is not missed
            if self.are_settled(count) || self.has_ended.load(Ordering::Acquire) {
                return;
            }
            news.await;
        }
    }

    /// Tells those who wait what was settled; under no mutex, since it wakes them.
    pub(super) fn tell(&self) {
        self.news.notify_waiters();
    }

    /// The connection has ended: what is unsettled stays so.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.tell();
    }

    /// It is settled for all flushes up to this one; [`tell`](Self::tell) those who wait.
    pub(super) fn settle(&self, flush: u32) {
        self.settled.store(flush, Ordering::Release);
    }

    /// The watch was put on again when so many had been pushed; `None` if the server has no watch.
    pub(super) fn watch_since(&self, told: Option<u32>) {
        *self.since() = told;
    }

    /// Whether the watch was on during all the flushes that are not settled. One that was pushed while it
    /// was being put on may have been before.
    pub(super) fn were_watched(&self) -> bool {
        self.since().is_some_and(|since| since <= self.settled.load(Ordering::Acquire))
    }

    fn since(&self) -> MutexGuard<'_, Option<u32>> {
        self.watched_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_flush_that_was_pushed_while_the_watch_was_put_on_was_not_watched() {
        let flushes = FlushWatch::new(FlushCount::default());
        assert!(!flushes.were_watched(), "no watch");
        flushes.watch_since(Some(0));
        flushes.count().note();
        assert_eq!((flushes.unsettled(), flushes.were_watched()), (Some(1), true));
        flushes.settle(1);
        assert_eq!(flushes.unsettled(), None);

        flushes.count().note();
        flushes.watch_since(Some(flushes.count().count()));
        assert_eq!((flushes.unsettled(), flushes.were_watched()), (Some(2), false));
        flushes.settle(2);
        flushes.count().note();
        assert!(flushes.were_watched());
    }

    #[test]
    fn whoever_waits_is_told_once_the_flushes_of_before_are_settled_and_when_the_connection_ends() {
        let flushes = FlushWatch::new(FlushCount::default());
        assert_eq!(flushes.settled_up_to(0).now_or_never(), Some(()), "nothing was flushed");
        flushes.count().note();
        flushes.count().note();
        let mut waits = Box::pin(flushes.settled_up_to(2));
        assert_eq!((&mut waits).now_or_never(), None);
        flushes.count().note();
        flushes.settle(1);
        flushes.tell();
        assert_eq!((&mut waits).now_or_never(), None, "there is another one before");
        flushes.settle(2);
        flushes.tell();
        assert_eq!(waits.now_or_never(), Some(()), "the last one was after");
        assert!(flushes.are_settled(2) && !flushes.are_settled(3) && flushes.unsettled() == Some(3));

        let mut waits = Box::pin(flushes.settled_up_to(3));
        assert_eq!((&mut waits).now_or_never(), None);
        flushes.end();
        assert_eq!(waits.now_or_never(), Some(()));
        assert_eq!(flushes.unsettled(), Some(3), "it is settled for nobody");
    }
}
