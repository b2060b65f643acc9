//! What an instance pushes: gathered as it comes in, bounded, and passed on together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::connection::InstanceConnection;
use super::flushes::FlushCount;
use crate::instance::{ChangedKeys, Invalidation, ReceivedMessage};
use crate::protocol::{AdmissionFollowUp, InstanceId, MAX_MESSAGE};
use crate::resource::ADMISSION_KEY;

/// The most keys, and bytes of keys, that are kept apart. What is beyond may have been any key.
const MAX_KEYS: usize = 1024;
const MAX_BYTES: usize = 64 * 1024;

/// The pause after pushes were passed on; those that come meanwhile are passed on together. So a
/// flood leads to so many looks and not more.
const PAUSE: Duration = Duration::from_millis(1);

/// Pushes that were not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    pending: Mutex<PendingInvalidations>,
    came: Notify,
    flushes: FlushCount,
    /// Who takes in messages of other clients, and from which instance.
    messages: Option<(InstanceId, mpsc::Sender<ReceivedMessage>)>,
}

/// What was pushed so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct PendingInvalidations {
    /// Keys that changed.
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// Any key may have changed.
    any: bool,
    /// All data of a database was thrown away or replaced, perhaps of ours.
    flushed: bool,
}

impl Pushes {
    pub(super) fn new(messages: Option<(InstanceId, mpsc::Sender<ReceivedMessage>)>) -> Self {
        Self { messages, ..Self::default() }
    }

    /// How often data was thrown away or replaced.
    pub(super) const fn flushes(&self) -> &FlushCount {
        &self.flushes
    }

    /// Takes one in. Called between two replies, so it does not wait.
    pub(super) fn receive(&self, push: PushInfo) {
        match push.kind {
            PushKind::Invalidate => self.receive_invalidation(push),
            PushKind::Message => self.receive_message(push),
            _ => {}
        }
    }

    /// Takes in a message of another client. What is longer than any, or more than is taken in in time, is
    /// dropped: whoever waits asks again anyway (P27).
    fn receive_message(&self, push: PushInfo) {
        let Some((instance, messages)) = &self.messages else { return };
        if let Some(Value::BulkString(message)) = push.data.into_iter().nth(1)
            && message.len() <= MAX_MESSAGE
        {
            let _ = messages.try_send(ReceivedMessage { instance: *instance, message });
        }
    }

    fn receive_invalidation(&self, push: PushInfo) {
        let mut pending = self.pending();
        match push.data.into_iter().next() {
            Some(Value::Array(keys)) => pending.add(keys),
            _ => {
                self.flushes.note();
                pending.flushed = true;
                pending.forget_which();
            }
        }
        drop(pending);
        self.came.notify_one();
    }

    async fn next(&self) -> PendingInvalidations {
        loop {
            self.came.notified().await;
            let pending = std::mem::take(&mut *self.pending());
            if pending != PendingInvalidations::default() {
                return pending;
            }
        }
    }

    /// Passes on what comes: to admission what is about the record, and to those who watch keys.
    ///
    /// What changed while there was no connection was not pushed: watched keys are checked first.
    pub(super) async fn forward(
        &self,
        connection: &InstanceConnection,
        instance: InstanceId,
        invalidations: &mpsc::Sender<Invalidation>,
    ) {
        // An error means that the client is gone.
        let _ = invalidations.send(Invalidation { instance, keys: ChangedKeys::Any }).await;
        loop {
            let pending = self.next().await;
            if let Some(admission) = connection.admission() {
                if pending.flushed {
                    admission.note_flush();
                } else if pending.may_be(ADMISSION_KEY.as_bytes()) {
                    admission.request_follow_up(AdmissionFollowUp::RereadRecord);
                }
            }
            let keys = if pending.any { ChangedKeys::Any } else { ChangedKeys::Among(pending.keys) };
            let _ = invalidations.send(Invalidation { instance, keys }).await;
            sleep(PAUSE).await;
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingInvalidations> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingInvalidations {
    fn add(&mut self, keys: Vec<Value>) {
        for key in keys {
            let Value::BulkString(key) = key else { continue };
            if self.any {
                return;
            }
            self.bytes += key.len();
            self.keys.push(key);
            if self.keys.len() > MAX_KEYS || self.bytes > MAX_BYTES {
                self.forget_which();
            }
        }
    }

    fn forget_which(&mut self) {
        (self.keys, self.bytes, self.any) = (Vec::new(), 0, true);
    }

    fn may_be(&self, key: &[u8]) -> bool {
        self.any || self.keys.iter().any(|changed| changed == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(keys: &[&[u8]]) -> PushInfo {
        let keys = keys.iter().map(|key| Value::BulkString(key.to_vec())).collect();
        PushInfo { kind: PushKind::Invalidate, data: vec![Value::Array(keys)] }
    }

    #[test]
    fn a_few_keys_are_kept_apart_and_a_flood_may_be_about_any() {
        let pushes = Pushes::default();
        pushes.receive(push(&[b"a", b"b"]));
        pushes.receive(push(&[b"c"]));
        assert_eq!(pushes.pending().keys, [b"a", b"b", b"c"]);
        assert!(pushes.pending().may_be(b"c") && !pushes.pending().may_be(ADMISSION_KEY.as_bytes()));
        for _ in 0..100_000 {
            pushes.receive(push(&[b"key"]));
        }
        let pending = std::mem::take(&mut *pushes.pending());
        assert_eq!((pending.keys.len(), pending.bytes, pending.any, pending.flushed), (0, 0, true, false));
        assert!(pending.may_be(ADMISSION_KEY.as_bytes()), "the record may have been among them");
        pushes.receive(push(&[&vec![0; MAX_BYTES + 1]]));
        assert!(pushes.pending().any);
        assert_eq!(pushes.flushes.count(), 0);
    }

    #[test]
    fn as_many_keys_are_kept_apart_as_was_decided_and_not_one_more() {
        let pushes = Pushes::default();
        let kept = || {
            let pending = pushes.pending();
            (pending.keys.len(), pending.any)
        };
        pushes.receive(push(&[b"k".as_slice(); MAX_KEYS]));
        assert_eq!(kept(), (MAX_KEYS, false));
        pushes.receive(push(&[b"k"]));
        assert_eq!(kept(), (0, true));

        let pushes = Pushes::default();
        pushes.receive(push(&[&[0; MAX_BYTES]]));
        assert!(!pushes.pending().any);
    }

    #[test]
    fn a_flush_is_known_before_the_next_reply() {
        let pushes = Pushes::default();
        pushes.receive(PushInfo { kind: PushKind::Invalidate, data: vec![Value::Nil] });
        assert_eq!(pushes.flushes.count(), 1);
        let pending = std::mem::take(&mut *pushes.pending());
        assert!(pending.flushed && pending.any);
    }

    #[test]
    fn what_is_no_change_of_a_key_is_left_out() {
        let pushes = Pushes::default();
        pushes.receive(PushInfo { kind: PushKind::Message, data: vec![Value::Int(1)] });
        assert_eq!(*pushes.pending(), PendingInvalidations::default());
    }
}
