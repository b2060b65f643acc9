//! What the answers to plain acquires mean.

use std::time::Duration;

use redis::{RedisError, Value};

use super::cause::server_cause;
use super::read::{LEAST_EXPIRY_MS, bytes, kept, odd, redis_error};
use crate::instance::Claim;
use crate::protocol::{AttachedRecord, PlainAnswers, PlainOutcome, RawReply, Refusal, Reply, TokenAnswer};

/// What PEXPIRETIME says of a key that is not there.
const GONE: i64 = -2;

/// In a second.
const MICROS: u64 = 1_000_000;

/// Classifies the answers to a plain acquire of `claim` that was sent alone to an instance with this record, and whose
/// clock shows about `wall_us`. It is a grant only if each of them says so (P28).
pub(crate) fn classify_plain(
    claim: &Claim,
    attached: &AttachedRecord,
    wall_us: u64,
    result: Result<Value, RedisError>,
) -> RawReply {
    let value = match result {
        Ok(value) => value,
        Err(error) => return not_granted(redis_error(&error)),
    };
    let Value::Array(answers) = &value else { return not_granted(odd(&value)) };
    let [set, added, expires, there, record] = answers.as_slice() else { return not_granted(odd(&value)) };
    if let Some(unknown) = error_of(answers.iter().filter(|answer| *answer != there || !is_other_type(there))) {
        return not_granted(unknown);
    }
    let is_set = match set {
        Value::Okay => true,
        Value::Nil => false,
        _ => return not_granted(odd(&value)),
    };
    let token = match added {
        Value::Int(1) => TokenAnswer::Raised,
        Value::Int(0) => TokenAnswer::NotRaised(None), // the repeat is told
        _ => return not_granted(odd(&value)),
    };
    let answers = PlainAnswers {
        is_set,
        token,
        is_own: bytes(there) == Some(claim.value.as_bytes()),
        instance_us: instance_clock(claim, expires),
        is_known_record: bytes(record) == Some(attached.wire().as_bytes()),
    };
    let outcome = answers.outcome(claim.token, wall_us);
    raw_reply(outcome, 1_000, || refused(expires, there, wall_us), || odd(&value))
}

/// `unit_us` is to how much the clock of a grant is cut off.
fn raw_reply(
    outcome: PlainOutcome,
    unit_us: u64,
    refused: impl FnOnce() -> Reply,
    odd: impl FnOnce() -> Reply,
) -> RawReply {
    match outcome {
        PlainOutcome::Granted { instance_us } => {
            RawReply { reply: Reply::Granted, instance_us: Some(instance_us), unit_us }
        }
        PlainOutcome::Refused => not_granted(refused()),
        PlainOutcome::Stale { stored } => not_granted(Reply::Stale { stored }),
        PlainOutcome::NotAdmitted => not_granted(Reply::NotAdmitted { remaining: None }),
        PlainOutcome::Odd => not_granted(odd()),
    }
}

/// The instance's clock, which is the end of the key less its ttl (P17).
fn instance_clock(claim: &Claim, expires: &Value) -> Option<u64> {
    let Value::Int(expires_ms @ LEAST_EXPIRY_MS..) = expires else { return None };
    let ttl_ms = u64::try_from(claim.ttl.as_millis()).ok()?;
    u64::try_from(*expires_ms).ok()?.checked_sub(ttl_ms)?.checked_mul(1_000)
}

/// What is in the way.
fn refused(expires: &Value, there: &Value, wall_us: u64) -> Reply {
    let expires_ms = match expires {
        Value::Int(ms) => u64::try_from(*ms).ok(),
        _ => None,
    };
    let left_ms = expires_ms.map(|ms| ms.saturating_sub(wall_us / 1_000));
    Reply::Refused(Refusal {
        resource: 0,
        value: bytes(there).filter(|_| *expires != Value::Int(GONE)).map(kept),
        expires_in: left_ms.map(Duration::from_millis),
        token: None,
    })
}

/// What came of plain acquires that shared a write.
#[derive(Debug)]
pub(crate) struct SharedPlain {
    /// A refusal does not tell yet by whom.
    pub(crate) replies: Vec<RawReply>,
    /// The instance's clock behind them, in microseconds.
    pub(crate) ended_us: Option<u64>,
}

/// Classifies the answers to plain acquires that shared a write. Each is a grant only if its own key was set, all
/// tokens were larger, and the record is the one that is known (P28).
pub(crate) fn classify_shared_plain(claims: &[&Claim], attached: &AttachedRecord, answers: &[Value]) -> SharedPlain {
    let all = |reply: Reply| SharedPlain { replies: vec![not_granted(reply); claims.len()], ended_us: None };
    let [began, keys @ .., added, ended, record] = answers else { return all(odd(answers)) };
    if keys.len() != claims.len() {
        return all(odd(answers));
    }
    if let Some(unknown) = error_of([began, added, ended, record].into_iter()) {
        return all(unknown);
    }
    let (began_us, ended_us) = (time(began), time(ended));
    let larger = match added {
        Value::Int(count) => usize::try_from(*count).ok().filter(|count| *count <= claims.len()),
        _ => None,
    };
    let (Some(began_us), Some(ended_us), Some(larger)) = (began_us, ended_us, larger) else {
        return all(odd(answers));
    };
    // If one is not larger any of them may be it: which one is not told.
    let token = if larger == claims.len() { TokenAnswer::Raised } else { TokenAnswer::NotRaised(None) };
    let is_known_record = bytes(record) == Some(attached.wire().as_bytes());
    let reply_of = |(claim, set): (&&Claim, &Value)| {
        let is_set = match set {
            Value::Okay => true,
            Value::Nil => false,
            _ => return not_granted(error_of([set].into_iter()).unwrap_or_else(|| odd(set))),
        };
        // What it has set is its own: nobody else replaces it (P7), and what was forgotten shows in the record.
        let answers = PlainAnswers { is_set, token, is_own: is_set, instance_us: Some(began_us), is_known_record };
        let outcome = answers.outcome(claim.token, began_us);
        raw_reply(outcome, 1, || Reply::Refused(Refusal::default()), || odd(set))
    };
    SharedPlain { replies: claims.iter().zip(keys).map(reply_of).collect(), ended_us: Some(ended_us) }
}

/// By whom plain acquires were refused that shared a write: two answers for each.
pub(crate) fn classify_refusals(count: usize, answers: &[Value]) -> Vec<Refusal> {
    if answers.len() != 2 * count {
        return vec![Refusal::default(); count]; // refused they are all the same
    }
    let refusal = |answers: &[Value]| match answers {
        [value, Value::Int(left_ms)] => Refusal {
            value: bytes(value).filter(|_| *left_ms != GONE).map(kept),
            expires_in: u64::try_from(*left_ms).ok().map(Duration::from_millis),
            ..Refusal::default()
        },
        _ => Refusal::default(),
    };
    answers.chunks_exact(2).map(refusal).collect()
}

const fn not_granted(reply: Reply) -> RawReply {
    RawReply { reply, instance_us: None, unit_us: 1 }
}

/// What the first error makes of all: an earlier command may have set the key (P5).
fn error_of<'a>(mut answers: impl Iterator<Item = &'a Value>) -> Option<Reply> {
    answers.find_map(|answer| match answer {
        Value::ServerError(error) => {
            Some(Reply::Unknown(server_cause(error.code(), error.details().unwrap_or_default())))
        }
        _ => None,
    })
}

fn is_other_type(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// What TIME says, in microseconds.
fn time(answer: &Value) -> Option<u64> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |part: &Value| std::str::from_utf8(bytes(part)?).ok()?.parse::<u64>().ok();
    number(seconds)?.checked_mul(MICROS)?.checked_add(number(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AdmissionRecord, AdmissionTerms, ProcessIdentity, RecordOrigin};

    const NOW_MS: i64 = 1_800_000_000_000;
    const NOW_US: u64 = 1_800_000_000_000_000;

    fn text(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    fn attached() -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        AttachedRecord::new(
            AdmissionRecord { identity, vote_from_ms: 1, terms: AdmissionTerms::of_max_ttl(1_000), origin, order: 1 },
            true,
        )
    }

    /// It counts only if each of its answers is what a grant has there, whatever the others are.
    #[test]
    fn a_grant_takes_all_answers_and_nothing_else_is_one() {
        let (claim, attached) = (Claim::sample(1, &["a".to_owned()]), attached());
        let ttl_ms = i64::try_from(claim.ttl.as_millis()).unwrap();
        let grant = [
            Value::Okay,
            Value::Int(1),
            Value::Int(NOW_MS + ttl_ms),
            text(claim.value.as_bytes()),
            text(attached.wire()),
        ];
        let read = |answers: &[Value]| classify_plain(&claim, &attached, NOW_US, Ok(Value::Array(answers.to_vec())));
        let granted = RawReply { reply: Reply::Granted, instance_us: Some(NOW_US), unit_us: 1_000 };
        assert_eq!(read(&grant), granted);
        let odd =
            [Value::Nil, Value::Okay, Value::Int(0), Value::Int(-2), text(""), text("other"), text(attached.wire())];
        for (place, odd) in (0..grant.len()).flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
            let mut answers = grant.clone();
            if answers.get(place) == Some(odd) {
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
        replaced[4] = Value::Nil;
        assert_eq!(read(&replaced).reply, Reply::NotAdmitted { remaining: None });
        let mut stale = grant;
        stale[1] = Value::Int(0);
        assert_eq!(read(&stale).reply, Reply::Stale { stored: claim.token });
    }

    /// As above, for two that share a write. What is said of the tokens, the clock and the record is said of both.
    #[test]
    fn of_those_that_share_a_write_each_takes_its_own_key_and_what_is_said_of_all() {
        let attached = attached();
        let claims = [1, 2].map(|round| Claim::sample(round, &[format!("{round}")]));
        let claims: Vec<&Claim> = claims.iter().collect();
        let time = |us: u64| Value::Array(vec![text((us / MICROS).to_string()), text((us % MICROS).to_string())]);
        let grants =
            vec![time(NOW_US), Value::Okay, Value::Okay, Value::Int(2), time(NOW_US + 7), text(attached.wire())];
        let replies = |answers: &[Value]| {
            let shared = classify_shared_plain(&claims, &attached, answers);
            assert_eq!(shared.replies.len(), 2);
            shared.replies
        };
        let granted = RawReply { reply: Reply::Granted, instance_us: Some(NOW_US), unit_us: 1 };
        assert_eq!(replies(&grants), [granted.clone(), granted.clone()]);
        assert_eq!(classify_shared_plain(&claims, &attached, &grants).ended_us, Some(NOW_US + 7));
        let denied = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        let odd = [Value::Nil, Value::Int(0), Value::Int(3), text("other"), Value::Array(Vec::new()), denied];
        for (place, odd) in (0..grants.len()).flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
            let mut answers = grants.clone();
            answers[place] = odd.clone();
            let [first, second] = replies(&answers).try_into().unwrap();
            assert_eq!(first == granted, place == 2, "{place} {odd:?}: {first:?}");
            assert_eq!(second == granted, place == 1, "{place} {odd:?}: {second:?}");
        }
        for count in 0..grants.len() {
            assert!(replies(&grants[..count]).iter().all(|raw| matches!(raw.reply, Reply::Unknown(_))), "{count}");
        }
        let with = |place: usize, answer: Value| {
            let mut answers = grants.clone();
            answers[place] = answer;
            replies(&answers).into_iter().map(|raw| raw.reply).collect::<Vec<_>>()
        };
        let [stale, both] = [0, 1].map(|at| Reply::Stale { stored: claims[at].token });
        assert_eq!(with(3, Value::Int(1)), [stale, both], "which one is in doubt is not told");
        assert_eq!(with(1, Value::Nil), [Reply::Refused(Refusal::default()), Reply::Granted]);
        assert_eq!(with(5, Value::Nil), [const { Reply::NotAdmitted { remaining: None } }; 2]);
    }

    #[test]
    fn whoever_was_refused_is_told_by_whom_as_far_as_that_is_known() {
        let other = redis::parse_redis_value(b"-WRONGTYPE no\r\n").unwrap();
        let answers =
            [text("x"), Value::Int(5), text(""), Value::Int(GONE), text("y"), Value::Int(-1), other, Value::Int(7)];
        let refusals = classify_refusals(4, &answers);
        let told: Vec<_> = refusals.iter().map(|refusal| (refusal.value.as_deref(), refusal.expires_in)).collect();
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(told, [(Some(b"x".as_slice()), ms(5)), (None, None), (Some(b"y".as_slice()), None), (None, ms(7))]);
        assert_eq!(classify_refusals(2, &answers[..3]), vec![Refusal::default(); 2]);
    }
}
