//! The commands of a plain acquire.

use std::time::Duration;

use super::State;
use super::resp::Answer;
use super::steps::{Ask, Said, StepKind};
use crate::protocol::{FencingToken, Instant};
use crate::resource::{RESERVED, TOKENS_KEY};
use crate::testing::mirror::store::WrongType;

impl State {
    /// Carries out one of them as it is sent by the library; `None` if it is none.
    pub(super) fn plain(&mut self, names: &[&[u8]], words: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let answer = match (names, words) {
            ([b"SET", _], [_, key, value, b"NX", b"GET", b"PX", ttl]) => {
                self.requests.acquire += 1;
                self.set_if_absent(key, value, number(ttl)?, wall_us)
            }
            ([b"ZADD", _], [_, key, b"GT", b"CH", tokens @ ..]) if *key == TOKENS_KEY.as_bytes() => {
                let tokens: Option<Vec<(&[u8], u64)>> = tokens.chunks(2).map(token).collect();
                self.raise(&tokens?)
            }
            // A name that is no lock's (`forget_tokens.rs`): it changes nothing here.
            ([b"ZADD", _], [_, key, b"0", _]) if *key == TOKENS_KEY.as_bytes() => Ok(Answer::Number(0)),
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

    /// What was there.
    fn set_if_absent(&mut self, key: &[u8], value: &[u8], ttl_ms: u64, wall_us: u64) -> Result<Answer, WrongType> {
        if let Some(refused) = self.refuses_writes() {
            return Ok(refused);
        }
        let now = Instant::from_nanos(wall_us.saturating_mul(1_000));
        let ttl = Duration::from_millis(ttl_ms);
        let before = self.key_state(key);
        let is_set = self.store.set_if_absent(key, value, Some(now.saturating_add(ttl)));
        let ask =
            Ask { kind: StepKind::Set, key, value, token: None, ttl, resent: false, is_known: true, is_admitted: true };
        self.note_step(&ask, if is_set { Said::Yes } else { Said::No }, before);
        match self.store.get(key) {
            _ if is_set => Ok(Answer::Nothing),
            Some(there) => Ok(Answer::bytes(there)),
            None => Err(WrongType),
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
            let (before, count) = (self.key_state(member), raised);
            if self.faults.claimed.is_none() && stored.is_none_or(|stored| stored < token) {
                self.store.set_score(TOKENS_KEY.as_bytes(), member, token)?;
                raised += 1;
            }
            let token = FencingToken::from_wire(token_us.to_string().as_bytes());
            let (kind, ttl) = (StepKind::Token, Duration::ZERO);
            let ask =
                Ask { kind, key: member, value: &[], token, ttl, resent: false, is_known: true, is_admitted: true };
            self.note_step(&ask, if raised > count { Said::Yes } else { Said::No }, before);
        }
        Ok(Answer::Number(raised))
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
