//! What the answers of the scripts mean.

use std::time::Duration;

use redis::Value;

use super::read::{MICROS, Part, bytes, error, kept, odd, with_clock, without_clock};
use crate::instance::Claim;
use crate::protocol::{Cause, FencingToken, RawReply, Refusal, Reply};

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
