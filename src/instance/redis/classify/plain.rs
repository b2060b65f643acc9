//! What the answers to a plain acquire mean.

use std::time::Duration;

use redis::{RedisError, Value};

use super::cause::server_cause;
use super::read::{LEAST_EXPIRY_MS, bytes, kept, odd, redis_error};
use crate::instance::Claim;
use crate::protocol::{AttachedRecord, FencingToken, RawReply, Refusal, Reply};

/// What PEXPIRETIME says of a key that is not there.
const GONE: i64 = -2;

/// Classifies the answers to a plain acquire of `claim` that was sent to an instance with this record, and whose clock
/// shows about `wall_us`. It is a grant only if each of them says so (P28).
pub(crate) fn classify_plain(
    claim: &Claim,
    attached: &AttachedRecord,
    wall_us: u64,
    result: Result<Value, RedisError>,
) -> RawReply {
    let not_granted = |reply| RawReply { reply, instance_us: None, unit_us: 1 };
    let value = match result {
        Ok(value) => value,
        Err(error) => return not_granted(redis_error(&error)),
    };
    let Value::Array(answers) = &value else { return not_granted(odd(&value)) };
    let [set, added, stored, expires, there, record] = answers.as_slice() else { return not_granted(odd(&value)) };
    let is_other_type = matches!(there, Value::ServerError(error) if error.code() == "WRONGTYPE");
    let is_error = |answer: &&Value| matches!(answer, Value::ServerError(_)) && !(is_other_type && *answer == there);
    if let Some(Value::ServerError(error)) = answers.iter().find(is_error) {
        let cause = server_cause(error.code(), error.details().unwrap_or_default());
        return not_granted(Reply::Unknown(cause)); // P5: an earlier one may have set the key
    }
    if bytes(record) != Some(attached.wire().as_bytes()) {
        return not_granted(Reply::NotAdmitted { remaining: None }); // P14
    }
    let expires_ms = match expires {
        Value::Int(ms) => u64::try_from(*ms).ok(),
        _ => None,
    };
    let is_own = bytes(there) == Some(claim.value.as_bytes());
    match (set, added) {
        (Value::Okay, Value::Int(1)) if is_own => granted(claim, expires).unwrap_or_else(|| not_granted(odd(&value))),
        (Value::Okay, Value::Int(0)) if is_own => not_granted(stale(claim, stored, wall_us)),
        (Value::Nil, Value::Int(0 | 1)) => {
            let left_ms = expires_ms.map(|ms| ms.saturating_sub(wall_us / 1_000));
            not_granted(Reply::Refused(Refusal {
                resource: 0,
                value: bytes(there).filter(|_| *expires != Value::Int(GONE)).map(kept),
                expires_in: left_ms.map(Duration::from_millis),
                token: None,
            }))
        }
        // The key was set, and is another one by now: somebody deletes keys by hand.
        _ => not_granted(odd(&value)),
    }
}

/// With the instance's clock, which is the end of the key less its ttl (P17).
fn granted(claim: &Claim, expires: &Value) -> Option<RawReply> {
    let Value::Int(expires_ms @ LEAST_EXPIRY_MS..) = expires else { return None };
    let ttl_ms = u64::try_from(claim.ttl.as_millis()).ok()?;
    let instance_us = u64::try_from(*expires_ms).ok()?.checked_sub(ttl_ms)?.checked_mul(1_000)?;
    Some(RawReply { reply: Reply::Granted, instance_us: Some(instance_us), unit_us: 1_000 })
}

/// A repeat above what is stored helps, and does so where that counts for nothing: a script overwrites it (P12).
fn stale(claim: &Claim, stored: &Value, wall_us: u64) -> Reply {
    let larger = bytes(stored).and_then(FencingToken::from_wire).filter(|stored| !stored.is_ahead_of(wall_us));
    Reply::Stale { stored: larger.map_or(claim.token, |stored| stored.max(claim.token)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin};

    const NOW_MS: i64 = 1_800_000_000_000;

    fn text(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    /// It counts only if each of its answers is what a grant has there, whatever the others are.
    #[test]
    fn a_grant_takes_all_answers_and_nothing_else_is_one() {
        let claim = Claim::sample(1, &["a".to_owned()]);
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        let record = AdmissionRecord { identity, vote_from_ms: 1, max_ttl_ms: 1_000, origin, order: 1 };
        let attached = AttachedRecord::new(record, true);
        let ttl_ms = i64::try_from(claim.ttl.as_millis()).unwrap();
        let grant = [
            Value::Okay,
            Value::Int(1),
            text("1"),
            Value::Int(NOW_MS + ttl_ms),
            text(claim.value.as_bytes()),
            text(attached.wire()),
        ];
        let read = |answers: &[Value]| {
            classify_plain(&claim, &attached, NOW_MS as u64 * 1_000, Ok(Value::Array(answers.to_vec())))
        };
        let granted = RawReply { reply: Reply::Granted, instance_us: Some(NOW_MS as u64 * 1_000), unit_us: 1_000 };
        assert_eq!(read(&grant), granted);
        let odd =
            [Value::Nil, Value::Okay, Value::Int(0), Value::Int(-2), text(""), text("other"), text(attached.wire())];
        for (place, odd) in (0..grant.len()).flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
            let mut answers = grant.clone();
            // The stored token is only for a repeat.
            if answers.get(place) == Some(odd) || place == 2 {
                continue;
            }
            answers[place] = odd.clone();
            let raw = read(&answers);
            assert!(raw.reply != Reply::Granted && raw.instance_us.is_none(), "{place} {odd:?}: {raw:?}");
        }
        for count in 0..grant.len() {
            assert!(matches!(read(&grant[..count]).reply, Reply::Unknown(_)), "{count} answers");
        }
        let mut replaced = grant.clone();
        replaced[5] = Value::Nil;
        assert_eq!(read(&replaced).reply, Reply::NotAdmitted { remaining: None });
        let mut stale = grant;
        (stale[1], stale[2]) = (Value::Int(0), text("7.5"));
        let stored = FencingToken::from_wire(b"7.5").unwrap();
        assert_eq!(read(&stale).reply, Reply::Stale { stored });
    }
}
