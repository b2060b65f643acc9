//! Replies as they come in.
//!
//! The crate's parser takes a tenth of a busy client's time, for forms that no reply to a lock has. The usual forms are decoded
//! here, as the crate does; it decodes the rest.

use redis::{RedisResult, Value, parse_redis_value};

/// The deepest list in a list.
const MOST_DEPTH: usize = 4;

/// So long is what needs no look at how long it may be, nor at how many elements it has.
const MOST_SHORT: usize = 192;

/// Decodes one whole reply.
pub(super) fn decode(reply: &[u8]) -> RedisResult<Value> {
    match usual(reply, MOST_DEPTH) {
        Some((value, [])) => Ok(value),
        _ => parse_redis_value(reply),
    }
}

/// A reply that is whole, if it is as short as nearly all are, with its length: shorter than what any command may be answered with.
pub(super) fn decode_short(bytes: &[u8]) -> Option<(Value, usize)> {
    let short = bytes.get(..MOST_SHORT).unwrap_or(bytes);
    let (value, behind) = usual(short, MOST_DEPTH)?;
    Some((value, short.len() - behind.len()))
}

/// A number, a text or a list of those, and what is behind it.
fn usual(bytes: &[u8], depth: usize) -> Option<(Value, &[u8])> {
    let (kind, line) = bytes.split_first()?;
    let (line, behind) = line.split_at_checked(line.iter().position(|byte| *byte == b'\r')?)?;
    let behind = behind.strip_prefix(b"\r\n")?;
    match (kind, line) {
        (b':', number) => Some((Value::Int(whole(number)?), behind)),
        (b'$' | b'*', b"-1") | (b'_', b"") => Some((Value::Nil, behind)),
        (b'$', length) => {
            let (text, behind) = behind.split_at_checked(usize::try_from(whole(length)?).ok()?)?;
            Some((Value::BulkString(text.to_vec()), behind.strip_prefix(b"\r\n")?))
        }
        (b'*', length) => {
            let length = usize::try_from(whole(length)?).ok()?;
            let depth = depth.checked_sub(1)?;
            let mut elements = Vec::with_capacity(length.min(behind.len() / 3)); // the shortest has three bytes
            let mut left = behind;
            for _ in 0..length {
                let (element, behind) = usual(left, depth)?;
                elements.push(element);
                left = behind;
            }
            Some((Value::Array(elements), left))
        }
        _ => None,
    }
}

/// A number in the only form in which servers write it.
fn whole(digits: &[u8]) -> Option<i64> {
    let (sign, digits) = digits.strip_prefix(b"-").map_or((1, digits), |digits| (-1, digits));
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')));
    number.map(|number: i64| sign * number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reply_limit::ReplyBound;
    use super::*;

    fn said() -> impl Strategy<Value = Vec<u8>> {
        let text = proptest::collection::vec(any::<u8>(), 0..9)
            .prop_map(|text| [format!("${}\r\n", text.len()).into_bytes(), text, b"\r\n".to_vec()].concat());
        let number = any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes());
        let other = proptest::sample::select(vec![
            &b"$-1\r\n"[..],
            b"*-1\r\n",
            b"_\r\n",
            b"+OK\r\n",
            b"+a b\r\n",
            b"-ERR no\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"*0\r\n",
            b"$2\r\nab",
            b":\r\n",
            b":+1\r\n",
            b":1-\r\n",
            b"$-2\r\n",
            b":1\n",
            b"%1\r\n:1\r\n:2\r\n",
            b":0007\r\n",
            b"_x\r\n",
        ]);
        let leaf = prop_oneof![text, number, other.prop_map(<[u8]>::to_vec)];
        leaf.prop_recursive(6, 24, 4, |element| {
            proptest::collection::vec(element, 0..4)
                .prop_map(|list| [format!("*{}\r\n", list.len()).into_bytes(), list.concat()].concat())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn each_reply_means_what_the_crate_takes_it_for(said in said(), cut in 0..40_usize) {
            let outcome = |decoded: RedisResult<Value>| decoded.map_err(|error| error.to_string());
            prop_assert_eq!(outcome(decode(&said)), outcome(parse_redis_value(&said)));
            let cut = said.get(..cut).unwrap_or(&said);
            prop_assert_eq!(outcome(decode(cut)), outcome(parse_redis_value(cut)));
            let more = [&said, cut].concat();
            if let Some((value, count)) = decode_short(&more) {
                prop_assert_eq!(outcome(Ok(value)), outcome(parse_redis_value(&more[..count])));
            }
        }
    }

    #[test]
    fn what_is_short_is_within_all_bounds() {
        let (least, short) = (ReplyBound::named("", 0, 0), MOST_SHORT as u64);
        assert!(short <= least.bytes && short / 3 <= least.elements); // the shortest element has three bytes
        let text =
            |length: usize| [format!("${length}\r\n").into_bytes(), vec![b'x'; length], b"\r\n".to_vec()].concat();
        assert!(decode_short(&text(MOST_SHORT - 8)).is_some() && decode_short(&text(MOST_SHORT)).is_none());
    }

    #[test]
    fn what_servers_say_of_locks_is_decoded_here() {
        for said in [
            &b"$-1\r\n"[..],
            b"_\r\n",
            b":1\r\n",
            b"*2\r\n$2\r\n12\r\n$1\r\n3\r\n",
            b"*3\r\n$4\r\ndone\r\n:1\r\n*1\r\n:7\r\n",
        ] {
            assert!(usual(said, MOST_DEPTH).is_some_and(|(_, behind)| behind.is_empty()), "{said:?}");
            assert_eq!(decode_short(said).map(|(_, count)| count), Some(said.len()));
        }
    }
}
