//! What an instance pushes: gathered as it comes in, bounded, and passed on together.
//!
//! Every flush is pushed, that of another database too, and no push says which it was. So any of them puts the instance into
//! quarantine (P15).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use super::resp::{Item, Items};
use crate::instance::ReceivedMessage;
use crate::protocol::{InstanceId, MAX_MESSAGE};

/// The most keys, and bytes of keys, that are kept apart. What is beyond may have been any key.
const MAX_KEYS: usize = 1024;
const MAX_BYTES: usize = 64 * 1024;

/// Pushes that were not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    pending: Mutex<PendingInvalidations>,
    came: Notify,
    /// How many flushes were pushed over the connection, and for how many of them the record is in doubt already.
    ///
    /// They are counted the moment a push arrives: pushes arrive in order with replies, so that no reply of after
    /// the event is judged before it is counted.
    flushes: AtomicU32,
    settled: AtomicU32,
    /// Who takes in messages of other clients, and from which instance.
    messages: Option<(InstanceId, mpsc::Sender<ReceivedMessage>)>,
}

/// What was pushed so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PendingInvalidations {
    /// Keys that changed.
    pub(super) keys: Vec<Vec<u8>>,
    bytes: usize,
    /// Any key may have changed.
    pub(super) any: bool,
    /// All data of a database was thrown away or replaced, perhaps of ours.
    pub(super) flushed: bool,
}

impl Pushes {
    pub(super) fn new(messages: Option<(InstanceId, mpsc::Sender<ReceivedMessage>)>) -> Self {
        Self { messages, ..Self::default() }
    }

    /// The last flush, if no quarantine was begun for it yet. Until then no vote counts.
    pub(super) fn unsettled_flush(&self) -> Option<u32> {
        let pushed = self.flushes.load(Ordering::Acquire);
        (pushed != self.settled.load(Ordering::Acquire)).then_some(pushed)
    }

    /// A quarantine has begun for all flushes up to this one.
    pub(super) fn settle_flushes(&self, flush: u32) {
        self.settled.store(flush, Ordering::Release);
    }

    /// Takes one in. Called between two replies, so it does not wait.
    pub(super) fn receive(&self, push: &[u8]) {
        let mut items = Items::of(push);
        let (Some(Item::Push(_)), Some(kind)) = (items.next(), items.next().and_then(Item::text)) else { return };
        match kind {
            b"invalidate" => self.receive_invalidation(items),
            b"message" => self.receive_message(items),
            _ => {}
        }
    }

    /// Takes in a message of another client, behind the name of the channel. A message that is longer than any, or comes when too many
    /// wait, is dropped: its waiter polls anyway (P27).
    fn receive_message(&self, mut items: Items<'_>) {
        let Some((instance, messages)) = &self.messages else { return };
        if let (Some(_), Some(Item::Text(message))) = (items.next(), items.next())
            && message.len() <= MAX_MESSAGE
        {
            let _ = messages.try_send(ReceivedMessage { instance: *instance, message: message.to_vec() });
        }
    }

    fn receive_invalidation(&self, mut items: Items<'_>) {
        let mut pending = self.pending();
        match items.next() {
            Some(Item::List(_)) => pending.add(items),
            _ => {
                self.flushes.fetch_add(1, Ordering::AcqRel);
                pending.flushed = true;
                pending.forget_which();
            }
        }
        drop(pending);
        self.came.notify_one();
    }

    /// What has come since, once something has.
    pub(super) async fn next(&self) -> PendingInvalidations {
        loop {
            self.came.notified().await;
            let pending = std::mem::take(&mut *self.pending());
            if pending != PendingInvalidations::default() {
                return pending;
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingInvalidations> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingInvalidations {
    fn add(&mut self, mut keys: Items<'_>) {
        while let Some(key) = keys.next() {
            let Item::Text(key) = key else { continue };
            if self.any {
                return;
            }
            self.bytes += key.len();
            self.keys.push(key.to_vec());
            if self.keys.len() > MAX_KEYS || self.bytes > MAX_BYTES {
                self.forget_which();
            }
        }
    }

    fn forget_which(&mut self) {
        (self.keys, self.bytes, self.any) = (Vec::new(), 0, true);
    }

    pub(super) fn may_be(&self, key: &[u8]) -> bool {
        self.any || self.keys.iter().any(|changed| changed == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ADMISSION_KEY;

    fn push(keys: &[&[u8]]) -> Vec<u8> {
        let text = |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        let head = [&b">2\r\n$10\r\ninvalidate\r\n"[..], format!("*{}\r\n", keys.len()).as_bytes()].concat();
        keys.iter().fold(head, |all, key| [all, text(key)].concat())
    }

    #[test]
    fn a_few_keys_are_kept_apart_and_a_flood_may_be_about_any() {
        let pushes = Pushes::default();
        pushes.receive(&push(&[b"a", b"b"]));
        pushes.receive(&push(&[b"c"]));
        assert_eq!(pushes.pending().keys, [b"a", b"b", b"c"]);
        assert!(pushes.pending().may_be(b"c") && !pushes.pending().may_be(ADMISSION_KEY.as_bytes()));
        for _ in 0..100_000 {
            pushes.receive(&push(&[b"key"]));
        }
        let pending = std::mem::take(&mut *pushes.pending());
        assert_eq!((pending.keys.len(), pending.bytes, pending.any, pending.flushed), (0, 0, true, false));
        assert!(pending.may_be(ADMISSION_KEY.as_bytes()), "the record may have been among them");
        pushes.receive(&push(&[&vec![0; MAX_BYTES + 1]]));
        assert!(pushes.pending().any);
        assert_eq!(pushes.unsettled_flush(), None);
    }

    #[test]
    fn as_many_keys_are_kept_apart_as_was_decided_and_not_one_more() {
        let pushes = Pushes::default();
        let kept = || {
            let pending = pushes.pending();
            (pending.keys.len(), pending.any)
        };
        pushes.receive(&push(&[b"k".as_slice(); MAX_KEYS]));
        assert_eq!(kept(), (MAX_KEYS, false));
        pushes.receive(&push(&[b"k"]));
        assert_eq!(kept(), (0, true));

        let pushes = Pushes::default();
        pushes.receive(&push(&[&[0; MAX_BYTES]]));
        assert!(!pushes.pending().any);
    }

    fn flush(pushes: &Pushes) {
        pushes.receive(b">2\r\n$10\r\ninvalidate\r\n_\r\n");
    }

    #[test]
    fn a_flush_is_known_before_the_next_reply() {
        let pushes = Pushes::default();
        flush(&pushes);
        assert_eq!(pushes.unsettled_flush(), Some(1));
        let pending = std::mem::take(&mut *pushes.pending());
        assert!(pending.flushed && pending.any);
    }

    #[test]
    fn a_flush_that_comes_while_another_is_settled_is_not_settled_with_it() {
        let pushes = Pushes::default();
        flush(&pushes);
        flush(&pushes);
        pushes.settle_flushes(1);
        assert_eq!(pushes.unsettled_flush(), Some(2));
        pushes.settle_flushes(2);
        assert_eq!(pushes.unsettled_flush(), None);
    }

    #[test]
    fn what_is_no_change_of_a_key_is_left_out() {
        let pushes = Pushes::default();
        pushes.receive(b">2\r\n$7\r\nmessage\r\n:1\r\n");
        assert_eq!(*pushes.pending(), PendingInvalidations::default());
    }
}
