//! Keys with expiry, as far as the scripts need them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::Instant;

/// What is stored under a key.
#[derive(Clone, Debug)]
enum Content {
    Text(Vec<u8>),
    /// A list, a hash: present, but no string.
    OtherType,
}

#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    expires_at: Option<Instant>,
}

/// The data of one instance. Every operation takes the instant at which it is carried out.
#[derive(Debug, Default)]
pub(crate) struct Store(BTreeMap<Vec<u8>, Entry>);

impl Store {
    /// Forgets everything (FLUSHALL, or a restart without a file).
    pub(crate) fn flush(&mut self) {
        self.0.clear();
    }

    /// Drops what has expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, entry| entry.expires_at.is_none_or(|end| now < end));
    }

    /// GET, or one element of MGET: a key that is no string is as if missing.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        match &self.0.get(key)?.content {
            Content::Text(text) => Some(text),
            Content::OtherType => None,
        }
    }

    /// EXISTS.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_key(key)
    }

    /// SET NX: whether the key was free.
    pub(crate) fn set_if_absent(&mut self, key: &[u8], value: &[u8], expires_at: Option<Instant>) -> bool {
        let free = !self.contains(key);
        if free {
            self.set(key, value, expires_at);
        }
        free
    }

    /// SET.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], expires_at: Option<Instant>) {
        self.0.insert(key.to_vec(), Entry { content: Content::Text(value.to_vec()), expires_at });
    }

    /// RPUSH or the like: a key that is no string.
    pub(crate) fn set_other_type(&mut self, key: &[u8]) {
        self.0.insert(key.to_vec(), Entry { content: Content::OtherType, expires_at: None });
    }

    /// PEXPIREAT.
    pub(crate) fn expire_at(&mut self, key: &[u8], at: Instant) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.expires_at = Some(at);
        }
    }

    /// As `prolong.lua`: PEXPIREAT, unless the key lives for longer anyway.
    pub(crate) fn prolong(&mut self, key: &[u8], at: Instant) {
        if let Some(entry) = self.0.get_mut(key).filter(|entry| entry.expires_at.is_none_or(|end| end < at)) {
            entry.expires_at = Some(at);
        }
    }

    /// PTTL; `None` if the key is missing or never expires.
    pub(crate) fn ttl(&self, key: &[u8], now: Instant) -> Option<Duration> {
        let left = self.0.get(key)?.expires_at?.saturating_since(now);
        Some(Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
    }

    /// DEL: whether there was such a key.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.0.remove(key).is_some()
    }

    /// All keys in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }
}
