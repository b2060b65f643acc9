//! What the answers of the scripts mean.

use std::time::Duration;

use redis::Value;

use super::read::{MICROS, Part, bytes, error, kept, odd, with_clock, without_clock};
use crate::instance::Claim;
use crate::protocol::{Cause, FencingToken, RawReply, Refusal, Reply};

/// Classifies the answer of `acquire.lua`.
pub(crate) fn classify_acquires(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let (us, answers) = match done(answer) {
        Ok([Value::Int(us), answers @ ..]) if answers.len() == claims.len() => (*us, answers),
        Ok(_) => return vec![without_clock(odd(answer)); claims.len()],
        Err(reply) => return vec![without_clock(reply); claims.len()],
    };
    let reply = |(claim, answer): (&Claim, &Value)| match answer {
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
    };
    claims.iter().map(AsRef::as_ref).zip(answers).map(reply).collect()
}

/// Classifies the answer of `extend.lua`, and of `read.lua` where it lets readers in or keeps them.
pub(crate) fn classify_extends(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let (us, left_ms, answers) = match done(answer) {
        Ok([Value::Int(us), Value::Int(left_ms @ 0..), answers @ ..]) if answers.len() == claims.len() => {
            (*us, left_ms.unsigned_abs(), answers)
        }
        Ok(_) => return vec![without_clock(odd(answer)); claims.len()],
        Err(reply) => return vec![without_clock(reply); claims.len()],
    };
    let reply = |(claim, answer): (&Claim, &Value)| match answer {
        Value::Int(1) if left_ms == 0 => with_clock(Reply::Granted, us),
        Value::Int(1) => with_clock(Reply::Kept { remaining: Duration::from_millis(left_ms) }, us),
        Value::Int(2) if left_ms == 0 => with_clock(Reply::Repaired, us),
        other => without_clock(not_done(claim, other, us)),
    };
    claims.iter().map(AsRef::as_ref).zip(answers).map(reply).collect()
}

/// Classifies the answer of `read.lua` to readers that leave.
pub(crate) fn classify_readers(claims: &[impl AsRef<Claim>], answer: &Part<'_>) -> Vec<RawReply> {
    let reply = |answer: &Value| match answer {
        Value::Int(1) => Reply::Granted,
        Value::Int(0) => Reply::Refused(Refusal::default()),
        other => error(other).unwrap_or_else(|| odd(other)),
    };
    match done(answer) {
        Ok([Value::Int(_), Value::Int(_), answers @ ..]) if answers.len() == claims.len() => {
            answers.iter().map(|answer| without_clock(reply(answer))).collect()
        }
        Ok(_) => vec![without_clock(odd(answer)); claims.len()],
        Err(reply) => vec![without_clock(reply); claims.len()],
    }
}

/// Classifies the answer of `release.lua` for so many locks.
pub(crate) fn classify_releases(count: usize, answer: &Part<'_>) -> Vec<RawReply> {
    let answers = match list(answer) {
        Ok(answers) if answers.len() == count => answers,
        Ok(_) => return vec![without_clock(odd(answer)); count],
        Err(reply) => return vec![without_clock(reply); count],
    };
    let reply = |answer: &Value| match answer {
        Value::Int(1) => Reply::Granted,
        Value::Int(0) => Reply::Refused(Refusal::default()),
        other => error(other).unwrap_or_else(|| odd(other)),
    };
    answers.iter().map(|answer| without_clock(reply(answer))).collect()
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

/// What a script that asks for votes returned behind its first word.
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
        expires_in: u64::try_from(*ttl_ms).ok().map(Duration::from_millis),
        token: bytes(stored).and_then(FencingToken::from_wire),
    }))
}
