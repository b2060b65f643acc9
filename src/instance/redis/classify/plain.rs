//! What the answers to plain acquires mean.

use redis::Value;

use super::read::{MICROS, Part, bytes, error, kept, odd, with_clock, without_clock};
use crate::instance::Claim;
use crate::protocol::{AttachedRecord, PlainAnswers, PlainOutcome, RawReply, Refusal, Reply};

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
    let [keys @ .., added, time, record] = answers else { return all(odd(answers)) };
    if let Some(failed) = [added, time, record].into_iter().find_map(failed) {
        return all(failed);
    }
    let (Value::Int(larger), Some(us), true) = (added, clock(time), keys.len() == claims.len()) else {
        return all(odd(answers));
    };
    // If one is not larger any of them may be it: which one is not told.
    let is_larger = usize::try_from(*larger) == Ok(claims.len());
    let is_known_record = attached.is_some_and(|attached| bytes(record) == Some(attached.wire().as_bytes()));
    let reply = |(claim, set): (&Claim, &Value)| {
        let (is_set, there) = match set {
            Value::Nil => (true, None),
            Value::BulkString(there) => (false, Some(there).filter(|there| !there.is_empty()).map(|there| kept(there))),
            set if is_other_type(set) => (false, None),
            set => return without_clock(failed(set).unwrap_or_else(|| odd(set))),
        };
        match (PlainAnswers { is_set, is_larger, is_known_record }).outcome() {
            PlainOutcome::Granted => with_clock(Reply::Granted, us),
            PlainOutcome::Refused => without_clock(Reply::Refused(Refusal { value: there, ..Refusal::default() })),
            PlainOutcome::Stale => without_clock(Reply::Stale { stored: claim.token }),
            PlainOutcome::NotAdmitted => without_clock(Reply::NotAdmitted { remaining: None }),
        }
    };
    claims.iter().map(AsRef::as_ref).zip(keys).map(reply).collect()
}

/// What an error means: another command may have set the key all the same (P5).
fn failed(answer: &Value) -> Option<Reply> {
    error(answer).map(|reply| match reply {
        Reply::NotSent(cause) => Reply::Unknown(cause),
        reply => reply,
    })
}

fn is_other_type(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// What TIME says, in microseconds.
fn clock(answer: &Value) -> Option<i64> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |part: &Value| std::str::from_utf8(bytes(part)?).ok()?.parse::<i64>().ok();
    number(seconds)?.checked_mul(i64::try_from(MICROS).ok()?)?.checked_add(number(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin};

    const NOW_US: u64 = 1_800_000_000_000_000;

    fn text(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    fn attached() -> AttachedRecord {
        let (identity, origin) = (ProcessIdentity::new("run", "replication"), RecordOrigin::Waits);
        AttachedRecord::new(
            AdmissionRecord { identity, vote_from_ms: 1, longest_ttl_ms: 1_000, origin, order: 1 },
            true,
        )
    }

    /// What is said of the tokens, the clock and the record is said of both.
    #[test]
    fn a_grant_takes_its_own_key_and_all_that_is_said_of_all_and_nothing_else_is_one() {
        let attached = attached();
        let claims = [1, 2].map(|round| Claim::sample(round, &round.to_string()));
        let claims: Vec<&Claim> = claims.iter().collect();
        let time = |us: u64| Value::Array(vec![text((us / MICROS).to_string()), text((us % MICROS).to_string())]);
        let grants = vec![Value::Nil, Value::Nil, Value::Int(2), time(NOW_US), text(attached.wire())];
        let replies = |answers: &[Value]| {
            let replies = classify_plain(&claims, Some(&attached), &Ok(answers));
            assert_eq!(replies.len(), 2);
            replies
        };
        let granted = RawReply { reply: Reply::Granted, instance_us: Some(NOW_US) };
        assert_eq!(replies(&grants), [granted.clone(), granted.clone()]);
        let unattached = classify_plain(&claims, None, &Ok(&grants));
        assert!(unattached.iter().all(|raw| raw.reply == Reply::NotAdmitted { remaining: None }));
        let denied = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        let missing = redis::parse_redis_value(b"-NOSCRIPT no\r\n").unwrap();
        let odd = [Value::Okay, Value::Int(0), Value::Int(3), text("other"), Value::Array(Vec::new()), denied, missing];
        for (place, odd) in (0..grants.len()).flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
            let mut answers = grants.clone();
            answers[place] = odd.clone();
            let [first, second] = replies(&answers).try_into().unwrap();
            assert_eq!(first == granted, place == 1, "{place} {odd:?}: {first:?}");
            assert_eq!(second == granted, place == 0, "{place} {odd:?}: {second:?}");
            assert!([first, second].iter().all(|raw| !matches!(raw.reply, Reply::NotSent(_))), "a key may be set");
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
        assert_eq!(with(2, Value::Int(1)), [stale, both], "which one is in doubt is not told");
        assert_eq!(with(4, Value::Nil), [const { Reply::NotAdmitted { remaining: None } }; 2]);
        let by =
            |value: Option<&[u8]>| Reply::Refused(Refusal { value: value.map(<[u8]>::to_vec), ..Refusal::default() });
        assert_eq!(with(0, text("x")), [by(Some(b"x")), Reply::Granted]);
        assert_eq!(with(0, text("")), [by(None), Reply::Granted], "what was too long to be read");
        let list = redis::parse_redis_value(b"-WRONGTYPE no\r\n").unwrap();
        assert_eq!(with(0, list), [by(None), Reply::Granted]);
    }
}
