//! The mirror of the scripts with its data, for comparisons.

use std::time::Duration;

use super::{Admission, Ask};
use crate::protocol::{AdmissionRecord, AttachedRecord, Instant, Reply};
use crate::resource::TOKENS_KEY;
use crate::testing::mirror::bulk::{self, NewRecord};
use crate::testing::mirror::scripts::run;
use crate::testing::mirror::store::Store;

/// The data of an in-process instance, and the scripts as they are mirrored there. Every operation
/// takes the instant at which it is carried out.
#[derive(Debug, Default)]
pub struct Mirror(Store);

/// What is under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// A string, and how long it still lives; `None` for ever.
    Text(Vec<u8>, Option<Duration>),
    /// A sorted set: each member with its score, and how long it still lives; `None` for ever.
    Scores(Vec<(Vec<u8>, f64)>, Option<Duration>),
    /// Neither.
    OtherType,
}

impl Mirror {
    /// Carries a request out when the instance's wall clock reads `wall_us`.
    pub fn run(&mut self, ask: &Ask, record: Option<&AdmissionRecord>, now: Instant, wall_us: u64) -> Option<Reply> {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
        let (reply, _) = run(&mut self.0, &ask.request("")?, attached.as_ref(), (now, wall_us));
        Some(reply)
    }

    /// As `write_record.lua`: what is under the record's key afterwards, or `no string`.
    pub fn admit(&mut self, admission: &Admission, wall_us: u64) -> Option<Vec<u8>> {
        let Admission { found, identity, longest_ttl_ms, origin, vote_from_ms, wait_ms, order } = admission.clone();
        let new = NewRecord { found, identity, longest_ttl_ms, origin, vote_from_ms, wait_ms, order };
        bulk::write_record(&mut self.0, new, wall_us)
    }

    /// SET NX PX.
    pub fn set_if_absent(&mut self, key: &str, value: &str, ttl: Duration, now: Instant) -> bool {
        self.0.expire(now);
        self.0.set_if_absent(key.as_bytes(), value.as_bytes(), Some(now.saturating_add(ttl)))
    }

    /// SET.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.set(key.as_bytes(), value.as_bytes(), None);
    }

    /// DEL and RPUSH.
    pub fn set_other_type(&mut self, key: &str) {
        self.0.set_other_type(key.as_bytes());
    }

    /// DEL and ZADD: a sorted set of another program.
    pub fn set_scores(&mut self, key: &str, member: &str, score: f64) {
        self.0.remove(key.as_bytes());
        let _ = self.0.set_score(key.as_bytes(), member.as_bytes(), score); // it is empty now
    }

    /// PEXPIRE.
    pub fn expire_in(&mut self, key: &str, ttl: Duration, now: Instant) {
        self.0.expire(now);
        self.0.expire_at(key.as_bytes(), now.saturating_add(ttl));
    }

    /// PERSIST: whether it had an end.
    pub fn persist(&mut self, key: &str, now: Instant) -> bool {
        self.0.expire(now);
        let had_end = self.0.ttl(key.as_bytes(), now).is_some();
        self.0.persist(key.as_bytes());
        had_end
    }

    /// DEL: whether it was there.
    pub fn remove(&mut self, key: &str, now: Instant) -> bool {
        self.0.expire(now);
        self.0.remove(key.as_bytes())
    }

    /// ZADD: stores a token for the lock with this key.
    pub fn set_token(&mut self, key: &str, score: f64) {
        let _ = self.0.set_score(TOKENS_KEY.as_bytes(), key.as_bytes(), score);
    }

    /// ZREM: whether a token was stored for the lock with this key.
    pub fn remove_token(&mut self, key: &str) -> bool {
        self.0.remove_score(TOKENS_KEY.as_bytes(), key.as_bytes())
    }

    /// ZSCORE: what is stored for the lock with this key.
    #[must_use]
    pub fn token(&self, key: &str) -> Content {
        match self.0.score(TOKENS_KEY.as_bytes(), key.as_bytes()) {
            Ok(score) => score.map_or(Content::Nothing, |score| Content::Text(score.to_string().into_bytes(), None)),
            Err(_) => Content::OtherType,
        }
    }

    /// As `forget_tokens.lua`: from which score on to continue, if there is more to look at.
    pub fn forget_tokens(
        &mut self,
        retention: Duration,
        after: Option<f64>,
        now: Instant,
        wall_us: u64,
    ) -> Option<f64> {
        self.0.expire(now);
        bulk::forget_tokens(&mut self.0, retention, |score| after.is_none_or(|after| score > after), wall_us)
    }

    /// FLUSHALL.
    pub fn flush(&mut self) {
        self.0.flush();
    }

    /// What is under a key.
    pub fn content(&mut self, key: &str, now: Instant) -> Content {
        self.0.expire(now);
        match self.0.get(key.as_bytes()) {
            Some(text) => Content::Text(text.to_vec(), self.0.ttl(key.as_bytes(), now)),
            None if self.0.score(key.as_bytes(), b"").is_ok() && self.0.contains(key.as_bytes()) => {
                Content::Scores(self.0.scores(key.as_bytes()), self.0.ttl(key.as_bytes(), now))
            }
            None if self.0.contains(key.as_bytes()) => Content::OtherType,
            None => Content::Nothing,
        }
    }
}
