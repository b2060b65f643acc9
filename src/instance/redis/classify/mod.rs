//! From a server's answer to a [`Reply`]: the only place that knows the redis crate's errors.

use std::time::Duration;

use redis::{RedisError, ServerError, Value};

use crate::instance::Request;
use crate::protocol::{Cause, FencingToken, RawReply, Refusal, Reply};

mod cause;
mod key_check;
mod plain;
mod read;

pub(crate) use cause::{clip, failed, server_cause};
pub(crate) use key_check::classify_key_check;
pub(crate) use plain::{classify_plain, classify_refusals, classify_shared_plain};
pub(crate) use read::beginning;
use read::{LEAST_EXPIRY_MS, bytes, kept, odd, redis_error, server_error};

/// In a second.
const MICROS: u64 = 1_000_000;

/// Classifies the end of a request. Whatever a server says, only the exact words of the request's
/// own script count as a grant.
pub(crate) fn classify(request: &Request, result: Result<Value, RedisError>) -> RawReply {
    let clock = result.as_ref().ok().and_then(|value| clock_of_grant(request, value));
    let (instance_us, unit_us) = (clock.map(|(us, _)| us), clock.map_or(1, |(_, unit_us)| unit_us));
    let reply = match result {
        Ok(Value::ServerError(error)) => server_error(error.code(), error.details().unwrap_or_default()),
        Ok(value) => parse(request, &value).unwrap_or_else(|| odd(&value)),
        Err(error) => redis_error(&error),
    };
    RawReply { reply, instance_us, unit_us }
}

/// Classifies the end of a batch: one reply for each request.
pub(crate) fn classify_batch(requests: &[&Request], result: Result<Value, RedisError>) -> Vec<RawReply> {
    match result {
        Ok(Value::Array(values)) if values.len() == requests.len() => {
            requests.iter().zip(values).map(|(request, value)| classify(request, Ok(value))).collect()
        }
        failed @ (Ok(Value::ServerError(_)) | Err(_)) => {
            requests.iter().map(|request| classify(request, failed.clone())).collect()
        }
        // Not the reply of a batch: it stands for every request in it.
        Ok(value) => vec![odd_answer(&value); requests.len()],
    }
}

/// An answer that nothing of ours gives.
pub(crate) fn odd_answer(value: &Value) -> RawReply {
    RawReply { reply: odd(value), instance_us: None, unit_us: 1 }
}

/// Classifies the end of a renewal of `count` leases: what it means for those that hold their value,
/// and the places, from 0, of those that do not.
pub(crate) fn classify_extend_many(count: usize, result: Result<Value, RedisError>) -> (RawReply, Vec<usize>) {
    let (reply, instance_us, others) = match result {
        Ok(Value::ServerError(error)) => {
            (server_error(error.code(), error.details().unwrap_or_default()), None, Vec::new())
        }
        Err(error) => (redis_error(&error), None, Vec::new()),
        Ok(value) => match extended_many(count, &value) {
            Some(extended) => extended,
            None => (odd(&value), None, Vec::new()),
        },
    };
    (RawReply { reply, instance_us, unit_us: 1 }, others)
}

fn extended_many(count: usize, value: &Value) -> Option<(Reply, Option<u64>, Vec<usize>)> {
    let Value::Array(items) = value else { return None };
    match (bytes(items.first()?)?, items.get(1..)?) {
        (b"renewed", [Value::Int(us), places @ ..]) => {
            let place = |place: &Value| match place {
                Value::Int(place) => usize::try_from(*place).ok()?.checked_sub(1).filter(|place| *place < count),
                _ => None,
            };
            let others: Option<Vec<usize>> = places.iter().map(place).collect();
            Some((Reply::Granted, u64::try_from(*us).ok().filter(|us| *us > 0), others?))
        }
        (b"not admitted", [Value::Int(left_ms)]) => {
            let remaining = u64::try_from(*left_ms).ok().map(Duration::from_millis);
            Some((Reply::NotAdmitted { remaining }, None, Vec::new()))
        }
        _ => None,
    }
}

fn parse(request: &Request, value: &Value) -> Option<Reply> {
    let keys = request.claim().resources.len();
    match (request, value) {
        (request, Value::Int(deleted)) if request.is_release() => released(*deleted, keys),
        (request, _) if request.is_release() => None,
        // The way for one resource (acquire_alone.lua, batch.lua).
        (Request::Acquire(_), Value::Int(LEAST_EXPIRY_MS..)) if keys == 1 => Some(Reply::Granted),
        (Request::Acquire(_), value) if keys == 1 && bytes(value) == Some(b"granted") => Some(Reply::Granted),
        (_, Value::Array(items)) => match (request, bytes(items.first()?)?, items.get(1..)?) {
            (_, b"granted", [Value::Int(_)]) => Some(Reply::Granted),
            (Request::Extend(_), b"repaired", [Value::Int(_)]) => Some(Reply::Repaired),
            (_, b"not admitted", [Value::Int(left_ms)]) => {
                Some(Reply::NotAdmitted { remaining: u64::try_from(*left_ms).ok().map(Duration::from_millis) })
            }
            (_, b"ahead", [Value::Int(us)]) => {
                let (clock_s, token_s) = (u64::try_from(*us).ok()? / MICROS, request.claim().token.clock_us() / MICROS);
                Some(Reply::Unknown(Cause::ClockBehind { clock_s, token_s }))
            }
            (_, b"refused", details) => refused(details, keys),
            (Request::Acquire(_), b"stale", [stored]) => {
                Some(Reply::Stale { stored: FencingToken::from_wire(bytes(stored)?)? })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The instance's clock that a grant carries, and to how much it was cut off, in microseconds; none
/// where admission is off.
fn clock_of_grant(request: &Request, value: &Value) -> Option<(u64, u64)> {
    let told = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    match (request, value) {
        (Request::Acquire(claim), Value::Int(expires_ms @ LEAST_EXPIRY_MS..)) if claim.resources.len() == 1 => {
            let ttl_ms = u64::try_from(claim.ttl.as_millis()).ok()?;
            Some((told(*expires_ms)?.checked_sub(ttl_ms)?.checked_mul(1_000)?, 1_000))
        }
        (Request::Acquire(_) | Request::Extend(_), Value::Array(items)) => match items.as_slice() {
            [word, Value::Int(us)] if matches!(bytes(word)?, b"granted" | b"repaired") => told(*us).map(|us| (us, 1)),
            _ => None,
        },
        _ => None,
    }
}

fn refused(details: &[Value], keys: usize) -> Option<Reply> {
    let [Value::Int(index), Value::Int(ttl_ms), value, stored] = details else { return None };
    let resource = usize::try_from(*index).ok().filter(|index| *index < keys)?;
    Some(Reply::Refused(Refusal {
        resource,
        value: bytes(value).map(kept),
        expires_in: u64::try_from(*ttl_ms).ok().map(Duration::from_millis),
        token: bytes(stored).and_then(FencingToken::from_wire),
    }))
}

fn released(deleted: i64, keys: usize) -> Option<Reply> {
    match usize::try_from(deleted).ok()? {
        deleted if deleted == keys => Some(Reply::Granted),
        deleted if deleted < keys => Some(Reply::Refused(Refusal::default())),
        _ => None,
    }
}

/// Whether an error is about the instance, whatever the request was. Any other may be the fault of one of
/// several requests.
pub(crate) fn is_of_the_instance(error: &ServerError) -> bool {
    let cause = || server_cause(error.code(), error.details().unwrap_or_default());
    error.code() == "NOSCRIPT"
        || matches!(
            cause(),
            Cause::Loading | Cause::Busy | Cause::OutOfMemory | Cause::ReadOnly | Cause::CannotWrite(_)
        )
}

#[cfg(test)]
mod tests;
