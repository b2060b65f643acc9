//! Keys with expiry, as far as the scripts need them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::Instant;

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq)]
enum Content {
    Text(Vec<u8>),
    /// A sorted set.
    Scores(BTreeMap<Vec<u8>, f64>),
    /// A list, a hash: present, but neither.
    OtherType,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    content: Content,
    expires_at: Option<Instant>,
}

/// A key is of another kind than a script needs, which ends the script.
#[derive(Debug)]
pub struct WrongType;

/// The data of one instance. Every operation takes the instant at which it is carried out.
#[derive(Clone, Debug, Default)]
pub struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The keys that changed since they were last read, if they are recorded.
    changed: Option<Vec<Vec<u8>>>,
}

impl Store {
    /// Notes from now on which keys change.
    pub(crate) fn note_changes(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// The keys that changed, expired or were touched since this was last read.
    pub(crate) fn take_changes(&mut self) -> Vec<Vec<u8>> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Forgets everything (FLUSHALL, or a restart without a file).
    pub fn flush(&mut self) {
        self.entries.clear();
    }

    /// Drops what has expired.
    pub fn expire(&mut self, now: Instant) {
        let Self { entries, changed, .. } = self;
        entries.retain(|key, entry| {
            let lives = entry.expires_at.is_none_or(|end| now < end);
            if !lives && let Some(changed) = changed {
                changed.push(key.clone());
            }
            lives
        });
    }

    /// GET, or one element of MGET: a key that is no string is as if missing.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        match &self.entries.get(key)?.content {
            Content::Text(text) => Some(text),
            Content::Scores(_) | Content::OtherType => None,
        }
    }

    /// ZSCORE.
    pub(crate) fn score(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, WrongType> {
        match self.entries.get(key).map(|entry| &entry.content) {
            None => Ok(None),
            Some(Content::Scores(scores)) => Ok(scores.get(member).copied()),
            Some(_) => Err(WrongType),
        }
    }

    /// ZADD.
    ///
    /// # Errors
    /// The key has another type.
    pub fn set_score(&mut self, key: &[u8], member: &[u8], score: f64) -> Result<(), WrongType> {
        let empty = || Entry { content: Content::Scores(BTreeMap::new()), expires_at: None };
        let Content::Scores(scores) = &mut self.entries.entry(key.to_vec()).or_insert_with(empty).content else {
            return Err(WrongType);
        };
        scores.insert(member.to_vec(), score);
        self.note(key);
        Ok(())
    }

    /// ZREM: whether it was there.
    pub fn remove_score(&mut self, key: &[u8], member: &[u8]) -> bool {
        let Some(Content::Scores(scores)) = self.entries.get_mut(key).map(|entry| &mut entry.content) else {
            return false;
        };
        let was_there = scores.remove(member).is_some();
        if scores.is_empty() {
            self.entries.remove(key);
        }
        if was_there {
            self.note(key);
        }
        was_there
    }

    /// All members of a sorted set, in the order of their scores.
    pub(crate) fn scores(&self, key: &[u8]) -> Vec<(Vec<u8>, f64)> {
        self.ranked(key).into_iter().map(|(member, score)| (member.to_vec(), score)).collect()
    }

    /// The same, where they are.
    pub(crate) fn ranked(&self, key: &[u8]) -> Vec<(&[u8], f64)> {
        let Some(Content::Scores(scores)) = self.entries.get(key).map(|entry| &entry.content) else {
            return Vec::new();
        };
        let mut all: Vec<_> = scores.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
        all.sort_by(|(_, one), (_, other)| one.total_cmp(other)); // stable: members of one score stay sorted
        all
    }

    /// EXISTS.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// SET NX: whether the key was free.
    pub fn set_if_absent(&mut self, key: &[u8], value: &[u8], expires_at: Option<Instant>) -> bool {
        let free = !self.contains(key);
        if free {
            self.set(key, value, expires_at);
        }
        free
    }

    /// SET.
    pub fn set(&mut self, key: &[u8], value: &[u8], expires_at: Option<Instant>) {
        self.note(key);
        self.entries.insert(key.to_vec(), Entry { content: Content::Text(value.to_vec()), expires_at });
    }

    /// RPUSH or the like: a key that is no string.
    pub fn set_other_type(&mut self, key: &[u8]) {
        self.note(key);
        self.entries.insert(key.to_vec(), Entry { content: Content::OtherType, expires_at: None });
    }

    /// PEXPIREAT.
    pub fn expire_at(&mut self, key: &[u8], at: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.expires_at = Some(at);
            self.note(key);
        }
    }

    /// PERSIST.
    pub fn persist(&mut self, key: &[u8]) {
        self.entries.get_mut(key).into_iter().for_each(|entry| entry.expires_at = None);
    }

    /// As `extend.lua`: PEXPIREAT, unless the key lives for longer anyway.
    pub(crate) fn extend_ttl(&mut self, key: &[u8], at: Instant) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.expires_at.is_none_or(|end| end < at)) {
            entry.expires_at = Some(at);
            self.note(key);
        }
    }

    /// PEXPIRETIME: when a key that is there expires, if ever.
    pub(crate) fn end(&self, key: &[u8]) -> Option<Option<Instant>> {
        self.entries.get(key).map(|entry| entry.expires_at)
    }

    /// PTTL; `None` if the key is missing or never expires.
    pub fn ttl(&self, key: &[u8], now: Instant) -> Option<Duration> {
        let left = self.entries.get(key)?.expires_at?.saturating_since(now);
        Some(Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
    }

    /// DEL: whether there was such a key.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let was_there = self.entries.remove(key).is_some();
        if was_there {
            self.note(key);
        }
        was_there
    }

    /// A key with other contents, or another end, than in another store.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut keys = self.entries.keys().chain(other.entries.keys());
        let key = keys.find(|key| self.entries.get(*key) != other.entries.get(*key))?;
        let of = |store: &Self| format!("{:?}", store.entries.get(key));
        Some(format!("{:?}: {} and {}", String::from_utf8_lossy(key), of(self), of(other)))
    }

    fn note(&mut self, key: &[u8]) {
        if let Some(changed) = &mut self.changed {
            changed.push(key.to_vec());
        }
    }

    /// All keys in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.keys().map(Vec::as_slice)
    }
}
