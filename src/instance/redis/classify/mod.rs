//! From a server's answers to [`Reply`]s: the only place that knows the redis crate's errors.
//!
//! Only the exact words of the request's own script count as a grant, and no other words of a server.

mod cause;
#[cfg(test)]
mod tests;

pub(crate) use cause::{clip, failed};

use std::fmt::{self, Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};

use crate::instance::{Claim, KeyState};
use crate::protocol::{AttachedRecord, Cause, FencingToken, RawReply, Refusal, Reply};
use cause::server_cause;

/// The most that is stored of a rival's value: more than any of ours has. Other
/// programs may put anything there.
const MAX_VALUE: usize = 4096;

/// What `PTTL` says of a key without an end.
const NEVER: i64 = -1;

/// In a second.
const MICROS: u64 = 1_000_000;

/// How much of an answer is formatted at most: a few times what is stored of it.
const MOST_WORDS: usize = 1024;

/// What no script of ours says.
fn odd(value: &(impl Debug + ?Sized)) -> Reply {
    Reply::Unknown(Cause::OddReply(clip(&beginning(value))))
}

/// How it reads, up to its first words: nothing behind them is formatted.
pub(crate) fn beginning(value: &(impl Debug + ?Sized)) -> String {
    let mut words = FirstWords(String::new());
    let _ = write!(words, "{value:?}"); // an error means that they are enough
    words.0
}

struct FirstWords(String);

impl Write for FirstWords {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST_WORDS.saturating_sub(self.0.len());
        self.0.extend(text.char_indices().take_while(|(at, _)| *at < room).map(|(_, letter)| letter));
        if text.len() < room { Ok(()) } else { Err(fmt::Error) }
    }
}

fn kept(value: &[u8]) -> Vec<u8> {
    value.get(..MAX_VALUE).unwrap_or(value).to_vec()
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
fn server_error(code: &str, details: &str) -> Reply {
    match code {
        "NOSCRIPT" => Reply::NotSent(Cause::ScriptMissing),
        _ => Reply::Unknown(server_cause(code, details)),
    }
}

fn redis_error(error: &RedisError) -> Reply {
    match error.code() {
        // A server's error that the client library turned into one of its own.
        Some(code) => server_error(code, error.detail().unwrap_or_default()),
        None => Reply::Unknown(Cause::Disconnected(clip(&error.to_string()))),
    }
}

/// The answers to the commands of one write, of which so many are left.
pub(crate) struct Said<'a>(Result<&'a [Value], &'a RedisError>);

/// Some of them, or what it is for each request that there are none.
pub(crate) type Part<'a> = Result<&'a [Value], Reply>;

impl<'a> Said<'a> {
    pub(crate) const fn of(result: &'a RedisResult<Value>) -> Self {
        Self(match result {
            Ok(Value::Array(answers)) => Ok(answers.as_slice()),
            Ok(other) => Ok(std::slice::from_ref(other)),
            Err(error) => Err(error),
        })
    }

    /// The next of them.
    pub(crate) fn next(&mut self, count: usize) -> Part<'a> {
        let answers = self.0.map_err(redis_error)?;
        let (next, left) = answers.split_at_checked(count).ok_or_else(|| odd(answers))?;
        self.0 = Ok(left);
        Ok(next)
    }
}

/// Whether a script failed as a whole, perhaps by the fault of one of its requests: not if the error is about the instance,
/// which any request would get.
pub(crate) fn is_a_fault_of_a_request(answer: &Part<'_>) -> bool {
    let Ok([answer]) = answer else { return false };
    match error(answer) {
        Some(Reply::Unknown(cause)) => !matches!(
            cause,
            Cause::Loading | Cause::Busy | Cause::OutOfMemory | Cause::ReadOnly | Cause::CannotWrite(_)
        ),
        _ => false,
    }
}

fn error(answer: &Value) -> Option<Reply> {
    let Value::ServerError(error) = answer else { return None };
    Some(server_error(error.code(), error.details().unwrap_or_default()))
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
pub(crate) fn classify_acquires(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let said = done(answer).and_then(|said| match said {
        [Value::Int(us), answers @ ..] => Ok((*us, answers)),
        _ => Err(odd(answer)),
    });
    each(claims, answer, said, |us, claim, answer| match answer {
        Value::Int(1) => with_clock(Reply::Granted, us),
        Value::Array(words) => match words.as_slice() {
            [word, stored] if bytes(word) == Some(b"stale") => without_clock(
                bytes(stored)
                    .and_then(FencingToken::from_wire)
                    .map_or_else(|| odd(answer), |stored| Reply::Stale { stored }),
            ),
            _ => without_clock(not_done(claim, answer, us)),
        },
        other => without_clock(not_done(claim, other, us)),
    })
}

/// Classifies the answer of `extend.lua`, and of `read.lua` where it lets readers in or keeps them.
pub(crate) fn classify_extends(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let said = done(answer).and_then(|said| match said {
        [Value::Int(us), Value::Int(left_ms @ 0..), answers @ ..] => Ok(((*us, left_ms.unsigned_abs()), answers)),
        _ => Err(odd(answer)),
    });
    each(claims, answer, said, |(us, left_ms), claim, answer| match answer {
        Value::Int(1) if left_ms == 0 => with_clock(Reply::Granted, us),
        Value::Int(1) => with_clock(Reply::Kept { remaining: Duration::from_millis(left_ms) }, us),
        Value::Int(2) if left_ms == 0 => with_clock(Reply::Repaired, us),
        other => without_clock(not_done(claim, other, us)),
    })
}

/// Classifies the answer of `read.lua` to readers that leave.
pub(crate) fn classify_readers(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let said = done(answer).and_then(|said| match said {
        [Value::Int(_), Value::Int(_), answers @ ..] => Ok(((), answers)),
        _ => Err(odd(answer)),
    });
    each(claims, answer, said, |(), _, answer| released(answer))
}

/// Classifies the answer of `release.lua`.
pub(crate) fn classify_releases(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    each(claims, answer, list(answer).map(|answers| ((), answers)), |(), _, answer| released(answer))
}

fn released(answer: &Value) -> RawReply {
    without_clock(match answer {
        Value::Int(1) => Reply::Granted,
        Value::Int(0) => Reply::Refused(Refusal::default()),
        other => error(other).unwrap_or_else(|| odd(other)),
    })
}

/// The reply to each request, from what is `said` for all of them and for each: or why nothing is, if there is not one for each.
fn each<T: Copy>(
    claims: &[impl AsRef<Claim>],
    answer: &Part<'_>,
    said: Result<(T, &[Value]), Reply>,
    reply: impl Fn(T, &Claim, &Value) -> RawReply,
) -> Vec<RawReply> {
    match said {
        Ok((for_all, answers)) if answers.len() == claims.len() => {
            claims.iter().zip(answers).map(|(claim, answer)| reply(for_all, claim.as_ref(), answer)).collect()
        }
        Ok(_) => vec![without_clock(odd(answer)); claims.len()],
        Err(reply) => vec![without_clock(reply); claims.len()],
    }
}

/// What a script returned, or what it is for each of its requests that it returned nothing.
fn list<'a>(answer: &Part<'a>) -> Part<'a> {
    match answer {
        Ok([Value::Array(answers)]) => Ok(answers),
        Ok([one]) => Err(error(one).unwrap_or_else(|| odd(one))),
        Ok(other) => Err(odd(other)),
        Err(reply) => Err(reply.clone()),
    }
}

/// What a script for votes returned behind its first word.
fn done<'a>(answer: &Part<'a>) -> Part<'a> {
    let answers = list(answer)?;
    match answers {
        [word, rest @ ..] if bytes(word) == Some(b"done") => Ok(rest),
        [word, Value::Int(left_ms)] if bytes(word) == Some(b"not admitted") => {
            Err(Reply::NotAdmitted { remaining: u64::try_from(*left_ms).ok().map(Duration::from_millis) })
        }
        _ => Err(odd(answers)),
    }
}

/// Of a lock that was neither acquired nor extended, at this time of the instance.
fn not_done(claim: &Claim, answer: &Value, us: i64) -> Reply {
    let reply = match answer {
        Value::Array(words) => match words.as_slice() {
            [word, details @ ..] if bytes(word) == Some(b"refused") => refused(details),
            _ => None,
        },
        word if bytes(word) == Some(b"ahead") => u64::try_from(us).ok().map(|us| {
            let (clock_s, token_s) = (us / MICROS, claim.token.clock_us() / MICROS);
            Reply::Unknown(Cause::ClockBehind { clock_s, token_s }) // P12
        }),
        other => error(other),
    };
    reply.unwrap_or_else(|| odd(answer))
}

fn refused(details: &[Value]) -> Option<Reply> {
    let [Value::Int(ttl_ms), value, stored] = details else { return None };
    Some(Reply::Refused(Refusal {
        value: bytes(value).map(kept),
        expires_in: match *ttl_ms {
            NEVER => Some(Duration::MAX),
            left => u64::try_from(left).ok().map(Duration::from_millis),
        },
        token: bytes(stored).and_then(FencingToken::from_wire),
    }))
}

/// Classifies the answers to plain acquires. Each is a grant only if its own key was set, all tokens were larger, and the record
/// is the one that is known (P28).
pub(crate) fn classify_plain(
    claims: &[impl AsRef<Claim>],
    attached: Option<&AttachedRecord>,
    answers: &Part<'_>,
) -> Vec<RawReply> {
    let all = |reply: Reply| vec![without_clock(reply); claims.len()];
    let answers = match answers {
        Ok(answers) => *answers,
        Err(reply) => return all(reply.clone()),
    };
    let [keys @ .., added, time, last] = answers else { return all(odd(answers)) };
    if let Some(failed) = [added, time, last].into_iter().find_map(failed_plainly) {
        return all(failed);
    }
    let (Value::Int(larger), Some(us), Value::Array(last), true) =
        (added, clock(time), last, keys.len() == claims.len())
    else {
        return all(odd(answers));
    };
    let [record, floor] = last.as_slice() else { return all(odd(answers)) };
    let clock_us = us.unsigned_abs(); // a time is not below zero
    let floor = bytes(floor).and_then(FencingToken::from_wire).filter(|floor| !floor.is_ahead_of(clock_us));
    // If one is not larger any of them may be it: the answer does not say which one.
    let are_larger = usize::try_from(*larger) == Ok(claims.len());
    let is_known_record = attached.is_some_and(|attached| bytes(record) == Some(attached.wire().as_bytes()));
    let reply = |(claim, set): (&Claim, &Value)| {
        let (is_set, there) = match set {
            Value::Nil => (true, None),
            Value::BulkString(there) => (false, Some(there).filter(|there| !there.is_empty()).map(|there| kept(there))),
            set if is_other_type(set) => (false, None),
            set => return without_clock(failed_plainly(set).unwrap_or_else(|| odd(set))),
        };
        match (is_known_record, is_set, floor.filter(|floor| *floor >= claim.token)) {
            (false, ..) => without_clock(Reply::NotAdmitted { remaining: None }), // P14
            (_, false, _) => without_clock(Reply::Refused(Refusal { value: there, ..Refusal::default() })),
            (.., Some(floor)) => without_clock(Reply::Stale { stored: floor }), // P13
            _ if !are_larger => without_clock(Reply::Stale { stored: claim.token }), // P12
            _ => with_clock(Reply::Granted, us),
        }
    };
    claims.iter().map(AsRef::as_ref).zip(keys).map(reply).collect()
}

/// What an error means: another command may have set the key all the same (P5).
fn failed_plainly(answer: &Value) -> Option<Reply> {
    error(answer).map(|reply| match reply {
        Reply::NotSent(cause) => Reply::Unknown(cause),
        reply => reply,
    })
}

pub(crate) fn is_other_type(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// What TIME says, in microseconds.
fn clock(answer: &Value) -> Option<i64> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |part: &Value| std::str::from_utf8(bytes(part)?).ok()?.parse::<i64>().ok();
    number(seconds)?.checked_mul(i64::try_from(MICROS).ok()?)?.checked_add(number(micros)?)
}

/// What a look at all keys of `claims` shows of each; `None` if these are no answers to that.
///
/// Each look begins with the request for a push. It is one at all keys, or one at the beginning of each.
pub(crate) fn classify_key_check(claims: &[Arc<Claim>], answers: &[Value]) -> Option<Vec<KeyState>> {
    let values: Vec<Option<&[u8]>> = match answers {
        [Value::Okay, Value::Array(values)] => values.iter().map(of_mget).collect::<Option<_>>()?,
        looks => looks.chunks(2).map(of_getrange).collect::<Option<_>>()?,
    };
    if values.len() != claims.len() {
        return None;
    }
    let state = |(claim, value): (&Arc<Claim>, Option<&[u8]>)| match value {
        Some(value) if value == claim.value.as_bytes() => KeyState::Own,
        other => KeyState::NotOwn(other.map(kept)),
    };
    Some(claims.iter().zip(values).map(state).collect())
}

/// An element of `MGET`: `Some(None)` where there is no string.
fn of_mget(value: &Value) -> Option<Option<&[u8]>> {
    if *value == Value::Nil { Some(None) } else { bytes(value).map(Some) }
}

/// The request for a push, and `GETRANGE`, which knows no difference between nothing and an empty value.
fn of_getrange(look: &[Value]) -> Option<Option<&[u8]>> {
    match look {
        [Value::Okay, Value::ServerError(error)] if error.code() == "WRONGTYPE" => Some(None),
        [Value::Okay, value] => bytes(value).map(|value| Some(value).filter(|value| !value.is_empty())),
        _ => None,
    }
}
