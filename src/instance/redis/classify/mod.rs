//! From a server's answers to [`Reply`]s: the only place that knows what they mean.
//!
//! Only the exact words of the request's own script count as a grant, and no other words of a server.

mod cause;
#[cfg(test)]
mod tests;

pub(crate) use cause::{clip, failed};

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::resp::{Item, Items, beginning};
use crate::instance::{Claim, KeyState};
use crate::protocol::{AttachedRecord, Cause, FencingToken, RawReply, Refusal, Reply};
use cause::server_cause;

/// What `PTTL` says of a key without an end.
const NEVER: i64 = -1;

/// In a second.
const MICROS: u64 = 1_000_000;

/// What no script of ours says.
fn odd(said: &[u8]) -> Reply {
    Reply::Unknown(Cause::OddReply(beginning(said)))
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

/// An error of the server: the script may have been carried out in part, so it is unknown, except
/// where the server says that it did not know the script.
fn server_error(text: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(text);
    let (code, details) = text.split_once(' ').unwrap_or((&text, ""));
    match code {
        "NOSCRIPT" => Reply::NotSent(Cause::ScriptMissing),
        _ => Reply::Unknown(server_cause(code, details)),
    }
}

/// Whether a script failed as a whole, perhaps by the fault of one of its requests: not if the error is about the instance,
/// which any request would get.
pub(super) fn is_a_fault_of_a_request(answer: &[u8]) -> bool {
    let Some(Item::Error(text)) = Items::of(answer).next() else { return false };
    match server_error(text) {
        Reply::Unknown(cause) => !matches!(
            cause,
            Cause::Loading | Cause::Busy | Cause::OutOfMemory | Cause::ReadOnly | Cause::CannotWrite(_)
        ),
        _ => false,
    }
}

/// What an error is about that a script reports.
pub(crate) fn reported_cause(text: &str) -> Cause {
    let (code, details) = text.split_once(' ').unwrap_or((text, ""));
    match server_cause(code, details) {
        Cause::Server(_) => server_cause("", text), // older servers report some without a code
        cause => cause,
    }
}

/// What an error in place of an answer is about.
pub(crate) fn error_of(answer: &Value) -> Option<Cause> {
    let Value::ServerError(error) = answer else { return None };
    Some(server_cause(error.code(), error.details().unwrap_or_default()))
}

fn with_clock(reply: Reply, us: i64) -> RawReply {
    RawReply { reply, instance_us: u64::try_from(us).ok().filter(|us| *us > 0) }
}

const fn without_clock(reply: Reply) -> RawReply {
    RawReply { reply, instance_us: None }
}

/// Classifies the answer of `acquire.lua`.
pub(super) fn classify_acquires(claims: &[impl AsRef<Claim>], answer: &[u8]) -> Vec<RawReply> {
    each(claims, answer, Some(1), |[us, _], claim, answer| {
        let mut items = Items::of(answer);
        match (items.next(), items.next(), items.next()) {
            (Some(Item::Number(1)), None, None) => with_clock(Reply::Granted, us),
            (Some(Item::List(2)), Some(word), Some(stored)) if word.text() == Some(b"stale") => {
                let stored = stored.text().and_then(FencingToken::from_wire);
                without_clock(stored.map_or_else(|| odd(answer), |stored| Reply::Stale { stored }))
            }
            _ => without_clock(not_done(claim, answer, us)),
        }
    })
}

/// Classifies the answer of `extend.lua`, and of `read.lua` where it lets readers in or keeps them.
pub(super) fn classify_extends(claims: &[impl AsRef<Claim>], answer: &[u8]) -> Vec<RawReply> {
    each(claims, answer, Some(2), |[us, left_ms], claim, said| match (Items::of(said).next(), left_ms) {
        (_, ..0) => without_clock(odd(answer)),
        (Some(Item::Number(1)), 0) => with_clock(Reply::Granted, us),
        (Some(Item::Number(2)), 0) => with_clock(Reply::Repaired, us),
        (Some(Item::Number(1)), left_ms) => {
            with_clock(Reply::Kept { remaining: Duration::from_millis(left_ms.unsigned_abs()) }, us)
        }
        _ => without_clock(not_done(claim, said, us)),
    })
}

/// Classifies the answer of `read.lua` to readers that leave.
pub(super) fn classify_readers(claims: &[impl AsRef<Claim>], answer: &[u8]) -> Vec<RawReply> {
    each(claims, answer, Some(2), |_, _, answer| released(answer))
}

/// Classifies the answer of `release.lua`.
pub(super) fn classify_releases(claims: &[impl AsRef<Claim>], answer: &[u8]) -> Vec<RawReply> {
    each(claims, answer, None, |_, _, answer| released(answer))
}

fn released(answer: &[u8]) -> RawReply {
    without_clock(match Items::of(answer).next() {
        Some(Item::Number(1)) => Reply::Granted,
        Some(Item::Number(0)) => Reply::Refused(Refusal::default()),
        Some(Item::Error(text)) => server_error(text),
        _ => odd(answer),
    })
}

/// The reply to each request of a call, from what the script says of each; or of all, if there is not one for each. A script for votes says
/// that it is done, and so many `numbers` about all.
fn each(
    claims: &[impl AsRef<Claim>],
    answer: &[u8],
    numbers: Option<usize>,
    reply: impl Fn([i64; 2], &Claim, &[u8]) -> RawReply,
) -> Vec<RawReply> {
    let mut items = Items::of(answer);
    let all = match about_all(&mut items, claims.len(), numbers) {
        Ok(Some(all)) => all,
        Ok(None) => return vec![without_clock(odd(answer)); claims.len()],
        Err(reply) => return vec![without_clock(reply); claims.len()],
    };
    let one = |claim: &Claim| match items.whole() {
        Some(said) => reply(all, claim, said),
        None => without_clock(odd(answer)),
    };
    claims.iter().map(AsRef::as_ref).map(one).collect()
}

/// What a script says of all its requests before it says something of each; or why it does not; `None` if it is no answer of a script.
fn about_all(items: &mut Items<'_>, claims: usize, numbers: Option<usize>) -> Result<Option<[i64; 2]>, Reply> {
    let mut all = [0; 2];
    let count = match items.next() {
        Some(Item::List(count)) => count,
        Some(Item::Error(text)) => return Err(server_error(text)),
        _ => return Ok(None),
    };
    let Some(numbers) = numbers else { return Ok((count == claims).then_some(all)) };
    let word = items.next().and_then(Item::text);
    for number in all.iter_mut().take(numbers) {
        let Some(Item::Number(said)) = items.next() else { return Ok(None) };
        *number = said;
        if count == 2 && word == Some(b"not admitted") {
            return Err(Reply::NotAdmitted { remaining: u64::try_from(said).ok().map(Duration::from_millis) });
        }
    }
    Ok((word == Some(b"done") && count == 1 + numbers + claims).then_some(all))
}

/// Of a lock that was neither acquired nor extended, at this time of the instance.
fn not_done(claim: &Claim, answer: &[u8], us: i64) -> Reply {
    let mut items = Items::of(answer);
    let reply = match items.next() {
        Some(Item::List(4)) if items.next().and_then(Item::text) == Some(b"refused") => refused(&mut items),
        Some(Item::Error(text)) => Some(server_error(text)),
        Some(word) if word.text() == Some(b"ahead") => u64::try_from(us).ok().map(|us| {
            let (clock_s, token_s) = (us / MICROS, claim.token.clock_us() / MICROS);
            Reply::Unknown(Cause::ClockBehind { clock_s, token_s }) // P12
        }),
        _ => None,
    };
    reply.unwrap_or_else(|| odd(answer))
}

fn refused(details: &mut Items<'_>) -> Option<Reply> {
    let Item::Number(ttl_ms) = details.next()? else { return None };
    let (value, stored) = (details.next()?, details.next()?);
    Some(Reply::Refused(Refusal {
        value: value.text().map(<[u8]>::to_vec),
        expires_in: match ttl_ms {
            NEVER => Some(Duration::MAX),
            left => u64::try_from(left).ok().map(Duration::from_millis),
        },
        token: stored.text().and_then(FencingToken::from_wire),
    }))
}

/// What was answered to the commands of plain acquires so far.
#[derive(Debug, Default)]
pub(super) struct PlainAnswers {
    /// To the command that sets each key.
    sets: Vec<KeySet>,
    /// How many of the tokens are larger than the stored ones.
    larger: Option<i64>,
    us: Option<i64>,
    /// Why it is not known of any whether it is granted.
    failed: Option<Reply>,
}

#[derive(Debug)]
enum KeySet {
    Done,
    /// There was something, which may be a value.
    Refused(Option<Vec<u8>>),
    Failed(Reply),
}

impl PlainAnswers {
    /// Takes in the next answer, of so many acquires. Gives the replies behind the last: each is a grant only if its own key was set, all
    /// tokens were larger, and the record is the one that is known (P28).
    pub(super) fn take(
        &mut self,
        count: usize,
        claims: &[impl AsRef<Claim>],
        attached: Option<&AttachedRecord>,
        answer: &[u8],
    ) -> Option<Vec<RawReply>> {
        let mut items = Items::of(answer);
        let first = items.next();
        if self.sets.len() < count {
            self.sets.push(match first {
                Some(Item::Nil) => KeySet::Done,
                Some(Item::Text(there)) => KeySet::Refused(Some(there.to_vec()).filter(|there| !there.is_empty())),
                Some(Item::Error(text)) if text.starts_with(b"WRONGTYPE") => KeySet::Refused(None),
                Some(Item::Error(text)) => KeySet::Failed(failed_plainly(text)),
                _ => KeySet::Failed(odd(answer)),
            });
            return None;
        }
        if let Some(Item::Error(text)) = first {
            self.failed.get_or_insert_with(|| failed_plainly(text));
        }
        match (self.larger, self.us, first) {
            (None, _, first) => {
                self.larger = if let Some(Item::Number(larger)) = first { Some(larger) } else { Some(-1) };
                None
            }
            (Some(_), None, _) => {
                self.us = Some(clock(answer).unwrap_or(-1));
                None
            }
            _ => Some(self.replies(claims, attached, answer)),
        }
    }

    fn replies(
        &mut self,
        claims: &[impl AsRef<Claim>],
        attached: Option<&AttachedRecord>,
        last: &[u8],
    ) -> Vec<RawReply> {
        let all = |reply: Reply| vec![without_clock(reply); claims.len()];
        if let Some(failed) = self.failed.take() {
            return all(failed);
        }
        let mut items = Items::of(last);
        let (Some(larger @ 0..), Some(us @ 0..), Some(Item::List(2))) = (self.larger, self.us, items.next()) else {
            return all(odd(last));
        };
        let (record, floor) = (items.next().and_then(Item::text), items.next().and_then(Item::text));
        let clock_us = us.unsigned_abs();
        let floor = floor.and_then(FencingToken::from_wire).filter(|floor| !floor.is_ahead_of(clock_us));
        // If one is not larger any of them may be it: the answer does not say which one.
        let are_larger = usize::try_from(larger) == Ok(claims.len());
        let is_known_record = attached.is_some_and(|attached| record == Some(attached.wire().as_bytes()));
        let reply = |(claim, set): (&Claim, KeySet)| {
            let (is_set, there) = match set {
                KeySet::Done => (true, None),
                KeySet::Refused(there) => (false, there),
                KeySet::Failed(reply) => return without_clock(reply),
            };
            match (is_known_record, is_set, floor.filter(|floor| *floor >= claim.token)) {
                (false, ..) => without_clock(Reply::NotAdmitted { remaining: None }), // P14
                (_, false, _) => without_clock(Reply::Refused(Refusal { value: there, ..Refusal::default() })),
                (.., Some(floor)) => without_clock(Reply::Stale { stored: floor }), // P13
                _ if !are_larger => without_clock(Reply::Stale { stored: claim.token }), // P12
                _ => with_clock(Reply::Granted, us),
            }
        };
        claims.iter().map(AsRef::as_ref).zip(self.sets.drain(..)).map(reply).collect()
    }
}

/// What an error means: another command may have set the key all the same (P5).
fn failed_plainly(text: &[u8]) -> Reply {
    match server_error(text) {
        Reply::NotSent(cause) => Reply::Unknown(cause),
        reply => reply,
    }
}

pub(super) fn is_other_type(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// What TIME says, in microseconds.
fn clock(answer: &[u8]) -> Option<i64> {
    let mut items = Items::of(answer);
    let Item::List(2) = items.next()? else { return None };
    let mut number = || std::str::from_utf8(items.next()?.text()?).ok()?.parse::<i64>().ok();
    number()?.checked_mul(i64::try_from(MICROS).ok()?)?.checked_add(number()?)
}

/// What a look at all keys of `claims` shows of each; `None` if these are no answers to that: to the request for a push, and to the look.
pub(crate) fn classify_key_check(claims: &[Arc<Claim>], answers: &[Value]) -> Option<Vec<KeyState>> {
    let [Value::Okay, Value::Array(values)] = answers else { return None };
    if values.len() != claims.len() {
        return None;
    }
    let state = |(claim, value): (&Arc<Claim>, &Value)| match value {
        Value::Nil => Some(KeyState::NotOwn(None)), // where there is no string
        value => Some(match bytes(value)? {
            value if value == claim.value.as_bytes() => KeyState::Own,
            other => KeyState::NotOwn(Some(other.to_vec())),
        }),
    };
    claims.iter().zip(values).map(state).collect()
}
