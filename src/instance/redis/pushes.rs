//! What an instance pushes: gathered as it comes in, bounded, and passed on together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::connection::Link;
use super::flushes::FlushCount;
use crate::instance::Hint;
use crate::protocol::{InstanceId, Remedy};
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
    gathered: Mutex<Gathered>,
    came: Notify,
    flushes: FlushCount,
}

/// What the pushes said so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gathered {
    /// Keys that changed.
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// Any key may have changed.
    any: bool,
    /// All data of a database was thrown away or replaced, perhaps of ours.
    flushed: bool,
}

impl Pushes {
    /// How often data was thrown away or replaced.
    pub(super) const fn flushes(&self) -> &FlushCount {
        &self.flushes
    }

    /// Takes one in. Called between two replies, so it does not wait.
    pub(super) fn take_in(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        let mut gathered = self.gathered();
        match push.data.into_iter().next() {
            Some(Value::Array(keys)) => gathered.add(keys),
            _ => {
                self.flushes.note();
                gathered.flushed = true;
                gathered.forget_which();
            }
        }
        drop(gathered);
        self.came.notify_one();
    }

    async fn next(&self) -> Gathered {
        loop {
            self.came.notified().await;
            let gathered = std::mem::take(&mut *self.gathered());
            if gathered != Gathered::default() {
                return gathered;
            }
        }
    }

    /// Passes on what comes: to admission what is about the record, and to those who watch keys.
    ///
    /// Those who watch were not told of what changed while nobody was connected: they look first.
    pub(super) async fn pass_on(&self, link: &Link, instance: InstanceId, hints: &mpsc::Sender<Hint>) {
        // An error means that the client is gone.
        let _ = hints.send(Hint { instance, keys: None }).await;
        loop {
            let gathered = self.next().await;
            if let Some(guarded) = link.guarded() {
                if gathered.flushed {
                    guarded.note_flush();
                } else if gathered.may_be(ADMISSION_KEY.as_bytes()) {
                    guarded.ask(Remedy::Readmit);
                }
            }
            let keys = (!gathered.any).then_some(gathered.keys);
            let _ = hints.send(Hint { instance, keys }).await;
            sleep(PAUSE).await;
        }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathered {
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
        pushes.take_in(push(&[b"a", b"b"]));
        pushes.take_in(push(&[b"c"]));
        assert_eq!(pushes.gathered().keys, [b"a", b"b", b"c"]);
        assert!(pushes.gathered().may_be(b"c") && !pushes.gathered().may_be(ADMISSION_KEY.as_bytes()));
        for _ in 0..100_000 {
            pushes.take_in(push(&[b"key"]));
        }
        let gathered = std::mem::take(&mut *pushes.gathered());
        assert_eq!((gathered.keys.len(), gathered.bytes, gathered.any, gathered.flushed), (0, 0, true, false));
        assert!(gathered.may_be(ADMISSION_KEY.as_bytes()), "the record may have been among them");
        pushes.take_in(push(&[&vec![0; MAX_BYTES + 1]]));
        assert!(pushes.gathered().any);
        assert_eq!(pushes.flushes.count(), 0);
    }

    #[test]
    fn a_flush_is_known_before_the_next_reply() {
        let pushes = Pushes::default();
        pushes.take_in(PushInfo { kind: PushKind::Invalidate, data: vec![Value::Nil] });
        assert_eq!(pushes.flushes.count(), 1);
        let gathered = std::mem::take(&mut *pushes.gathered());
        assert!(gathered.flushed && gathered.any);
    }

    #[test]
    fn what_is_no_change_of_a_key_is_left_out() {
        let pushes = Pushes::default();
        pushes.take_in(PushInfo { kind: PushKind::Message, data: vec![Value::Int(1)] });
        assert_eq!(*pushes.gathered(), Gathered::default());
    }
}
