//! The data of an instance, and the requests that it got.

use std::time::Duration;

use super::TestInstance;
use crate::clock::Clock;
use crate::protocol::FencingToken;
use crate::resource::{RESERVED, TOKENS_KEY};
use crate::testing::mirror::store::Store;
use crate::testing::requests::Requests;

/// Data.
impl TestInstance {
    /// How the instance is called in errors.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// What its wall clock reads, in microseconds since the Unix epoch.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.0.server.clock().wall_us()
    }

    /// How many requests the instance has carried out.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.0.server.requests()
    }

    /// The keys of all locks and of everything else but the library's own, sorted. Bytes that are
    /// no text are replaced.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.0.server.with_data(|store, _| {
            let keys = store.keys().filter(|key| !key.starts_with(RESERVED));
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
        })
    }

    /// The value of a key, if it is there and a string.
    #[must_use]
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.0.server.with_data(|store, _| store.get(key.as_ref()).map(<[u8]>::to_vec))
    }

    /// How long a key will still live, in whole milliseconds; `None` if it is missing or never
    /// expires.
    #[must_use]
    pub fn expires_in(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.0.server.with_data(|store, now| store.ttl(key.as_ref(), now))
    }

    /// The fencing token that the instance has stored for the lock with this key.
    #[must_use]
    pub fn fencing_token(&self, key: impl AsRef<[u8]>) -> Option<FencingToken> {
        let stored = |store: &Store| store.score(TOKENS_KEY.as_bytes(), key.as_ref()).ok().flatten();
        self.0.server.with_data(|store, _| stored(store).and_then(FencingToken::from_score))
    }

    /// Stores this as the fencing token of the lock with this key: [`FencingToken::to_score`], or anything.
    pub fn set_token_score(&self, key: impl AsRef<[u8]>, score: f64) {
        self.0.server.with_data(|store, _| {
            let _ = store.set_score(TOKENS_KEY.as_bytes(), key.as_ref(), score); // the key has no other type
        });
    }

    /// Sets a key as a client of another library would, with `SET key value NX PX ttl`; gives
    /// whether it was free.
    pub fn set_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> bool {
        self.0
            .server
            .with_data(|store, now| store.set_if_absent(key.as_ref(), value.as_ref(), Some(now.saturating_add(ttl))))
    }

    /// Sets a key that never expires, in place of any other.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.server.with_data(|store, _| store.set(key.as_ref(), value.as_ref(), None));
    }

    /// Makes a key that is no string, as a list or a hash is.
    pub fn set_other_type(&self, key: impl AsRef<[u8]>) {
        self.0.server.with_data(|store, _| store.set_other_type(key.as_ref()));
    }

    /// Deletes a key; gives whether it was there.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.0.server.with_data(|store, _| store.remove(key.as_ref()))
    }
}
