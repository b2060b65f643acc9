//! The commands of a plain acquire, and the one that compares and deletes.

use std::time::Duration;

use super::State;
use super::resp::Answer;
use crate::protocol::{FencingToken, Instant};
use crate::resource::{RESERVED, TOKENS_KEY};
use crate::testing::mirror::store::WrongType;

impl State {
    /// Carries out one of them as it is sent by the library; `None` if it is none.
    pub(super) fn plain(&mut self, names: &[&[u8]], words: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let answer = match (names, words) {
            ([b"SET", _], [_, key, value, b"NX", b"PX", ttl]) => {
                self.requests.acquire += 1;
                Ok(self.set_if_absent(key, value, number(ttl)?, wall_us))
            }
            ([b"ZADD", _], [_, key, b"GT", b"CH", tokens @ ..]) if *key == TOKENS_KEY.as_bytes() => {
                let tokens: Option<Vec<(&[u8], u64)>> = tokens.chunks(2).map(token).collect();
                self.raise(&tokens?)
            }
            // A name that is no lock's (`forget_tokens.rs`): it changes nothing here.
            ([b"ZADD", _], [_, key, b"0", _]) if *key == TOKENS_KEY.as_bytes() => Ok(Answer::Number(0)),
            ([b"DELIFEQ", _], [_, key, value]) if self.process.compares() => {
                // Of a reserved name it is the question of a new connection whether it may (`lone_write.rs`).
                self.requests.release += usize::from(!key.starts_with(RESERVED));
                self.delete_if_equal(key, value)
            }
            ([b"PEXPIRETIME", _], [_, key]) => return Some(self.expires(key)),
            ([b"GETRANGE", _], [_, key, b"0", last]) => self.beginning(key, number(last)?),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|WrongType| Answer::Error("WRONGTYPE Operation against a wrong type".to_owned())))
    }

    /// Why it takes no writes, if so.
    pub(super) fn refuses_writes(&self) -> Option<Answer> {
        let readonly = "READONLY You can't write against a read only replica.";
        let refusal = if self.process.is_master { self.faults.refusal.clone() } else { Some(readonly.to_owned()) };
        refusal.map(Answer::Error)
    }

    fn set_if_absent(&mut self, key: &[u8], value: &[u8], ttl_ms: u64, wall_us: u64) -> Answer {
        if let Some(refused) = self.refuses_writes() {
            return refused;
        }
        let now = Instant::from_nanos(wall_us.saturating_mul(1_000));
        let end = now.saturating_add(Duration::from_millis(ttl_ms));
        if self.store.set_if_absent(key, value, Some(end)) { Answer::Simple("OK") } else { Answer::Nothing }
    }

    fn delete_if_equal(&mut self, key: &[u8], value: &[u8]) -> Result<Answer, WrongType> {
        if let Some(refused) = self.refuses_writes() {
            return Ok(refused);
        }
        match self.store.get(key) {
            None if self.store.contains(key) => Err(WrongType),
            found => {
                let is_equal = found == Some(value);
                Ok(Answer::Number((is_equal && self.store.remove(key)).into()))
            }
        }
    }

    fn beginning(&self, key: &[u8], last: u64) -> Result<Answer, WrongType> {
        match self.store.get(key) {
            Some(value) => Ok(Answer::bytes(value.iter().take(last as usize + 1).copied().collect::<Vec<u8>>())),
            None if self.store.contains(key) => Err(WrongType),
            None => Ok(Answer::bytes("")),
        }
    }

    /// How many of them are larger than what was stored.
    fn raise(&mut self, tokens: &[(&[u8], u64)]) -> Result<Answer, WrongType> {
        if let Some(refused) = self.refuses_writes() {
            return Ok(refused);
        }
        let mut raised = 0;
        for (member, token_us) in tokens {
            let token = FencingToken::from_wire(token_us.to_string().as_bytes()).map_or(0.0, FencingToken::to_score);
            let stored = self.store.score(TOKENS_KEY.as_bytes(), member)?;
            if self.faults.claimed.is_none() && stored.is_none_or(|stored| stored < token) {
                self.store.set_score(TOKENS_KEY.as_bytes(), member, token)?;
                raised += 1;
            }
        }
        Ok(Answer::Number(raised))
    }

    /// In milliseconds of the wall clock, which is the data's time too.
    fn expires(&self, key: &[u8]) -> Answer {
        match self.store.end(key) {
            Some(Some(end)) => Answer::number(end.as_nanos() / 1_000_000),
            Some(None) => Answer::Number(-1),
            None => Answer::Number(-2),
        }
    }
}

/// Whether another connection may be served before the next command of this one: behind what a plain acquire sets.
pub(super) fn may_be_interrupted(words: &[&[u8]]) -> bool {
    matches!(words, [b"SET", key, ..] if !key.starts_with(RESERVED))
}

/// A member of the tokens, and its score.
fn token<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], u64)> {
    let [score, member] = words else { return None };
    Some((member, number(score)?))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
