//! What a look at the keys of leases shows.

use std::sync::Arc;

use redis::Value;

use super::read::{bytes, kept};
use crate::instance::{Claim, KeyState};

/// What a look at all keys of `claims` shows of each; `None` if these are no answers to that.
///
/// Each look begins with the request to be told of changes. It is one at all keys, or one at the beginning of each.
pub(crate) fn classify_key_check(claims: &[Arc<Claim>], answers: &[Value]) -> Option<Vec<KeyState>> {
    let values: Vec<Option<&[u8]>> = match answers {
        [Value::Okay, Value::Array(values)] => values.iter().map(whole).collect::<Option<_>>()?,
        looks => looks.chunks(2).map(beginning).collect::<Option<_>>()?,
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
fn whole(value: &Value) -> Option<Option<&[u8]>> {
    if *value == Value::Nil { Some(None) } else { bytes(value).map(Some) }
}

/// The request to be told, and `GETRANGE`, which knows no difference between nothing and an empty value.
fn beginning(look: &[Value]) -> Option<Option<&[u8]>> {
    match look {
        [Value::Okay, Value::ServerError(error)] if error.code() == "WRONGTYPE" => Some(None),
        [Value::Okay, value] => bytes(value).map(|value| Some(value).filter(|value| !value.is_empty())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Parser;

    use super::super::tests::{claim, is_text, value, word};
    use super::*;

    fn look() -> impl Strategy<Value = Value> {
        let own = claim().value.as_bytes().to_vec();
        let one = prop_oneof![
            6 => Just(Value::BulkString(own)),
            2 => Just(Value::Nil),
            2 => word().prop_map(Value::BulkString),
            1 => value(),
        ];
        prop_oneof![5 => prop::collection::vec(one, 0..7).prop_map(Value::Array), 1 => value()]
    }

    proptest! {
        #[test]
        fn only_an_exact_answer_to_a_look_says_that_something_is_gone(value in look(), keys in 0usize..5) {
            let claims = vec![claim(); keys];
            let text = |value: &Value| matches!(value, Value::Nil | Value::BulkString(_) | Value::SimpleString(_));
            // Of one key it may also be the beginning, where nothing and an empty value are the same.
            let beginning = vec![if bytes(&value) == Some(b"") { Value::Nil } else { value.clone() }];
            let answer = match &value {
                Value::Array(values) if values.len() == keys && values.iter().all(text) => Some(values),
                Value::BulkString(_) | Value::SimpleString(_) if keys == 1 => Some(&beginning),
                _ => None,
            };
            let states = classify_key_check(&claims, &[Value::Okay, value.clone()]);
            prop_assert_eq!(states.is_some(), answer.is_some(), "{:?}", value);
            for ((claim, state), value) in claims.iter().zip(states.into_iter().flatten()).zip(answer.into_iter().flatten()) {
                let is_own = is_text(value, claim.value.as_bytes());
                let other = || KeyState::NotOwn(bytes(value).map(<[u8]>::to_vec));
                prop_assert_eq!(state, if is_own { KeyState::Own } else { other() });
            }
        }
    }

    #[test]
    fn of_the_beginnings_of_keys_each_is_looked_at_with_its_own_request_to_be_told() {
        let claim = Arc::new(Claim::sample(7, "a"));
        let own = Value::BulkString(claim.value.as_bytes().to_vec());
        let other = Value::BulkString(b"other".to_vec());
        let error = |code: &str| Parser::new().parse_value(format!("-{code} no\r\n").as_bytes()).unwrap();
        let [no_string, denied] = ["WRONGTYPE", "NOPERM"].map(error);
        let none = || Value::BulkString(Vec::new());
        let of_three =
            |looks: [[Value; 2]; 3]| classify_key_check(&[0; 3].map(|_| Arc::clone(&claim)), &looks.concat());
        let look = |value: Value| [Value::Okay, value];
        assert_eq!(
            of_three([look(own.clone()), look(none()), look(other)]),
            Some(vec![KeyState::Own, KeyState::NotOwn(None), KeyState::NotOwn(Some(b"other".to_vec()))])
        );
        assert_eq!(
            of_three([look(own.clone()), look(no_string), look(own.clone())]),
            Some(vec![KeyState::Own, KeyState::NotOwn(None), KeyState::Own])
        );
        assert_eq!(of_three([look(own.clone()), look(denied.clone()), look(own.clone())]), None);
        assert_eq!(of_three([look(own.clone()), [denied, own.clone()], look(own)]), None, "no push would come");
    }
}
