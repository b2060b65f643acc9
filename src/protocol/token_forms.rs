//! A fencing token as a number, as text, and with the feature `serde` in what is stored or sent.

use std::fmt;
use std::str::FromStr;

use crate::protocol::fencing::FencingToken;

/// No fencing token: tokens are positive and fit a signed 64-bit column.
///
/// ```
/// use redquorum::FencingToken;
///
/// assert_eq!("0".parse::<FencingToken>().unwrap_err().to_string(), "no fencing token: it must be from 1 to 2^63 - 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotAToken;

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no fencing token: it must be from 1 to 2^63 - 1")
    }
}

impl std::error::Error for NotAToken {}

impl TryFrom<u64> for FencingToken {
    type Error = NotAToken;

    fn try_from(number: u64) -> Result<Self, NotAToken> {
        Self::from_number(number).ok_or(NotAToken)
    }
}

/// As databases give it back.
impl TryFrom<i64> for FencingToken {
    type Error = NotAToken;

    fn try_from(number: i64) -> Result<Self, NotAToken> {
        u64::try_from(number).map_err(|_| NotAToken)?.try_into()
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.as_i64()
    }
}

/// Decimal digits, as it is shown.
impl FromStr for FencingToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        text.parse::<u64>().map_err(|_| NotAToken)?.try_into()
    }
}

/// A text of digits where people can read it, as in JSON, for tokens are larger than the numbers that JavaScript keeps exact;
/// else the number. Both are read from JSON.
#[cfg(feature = "serde")]
mod serialized {
    use std::fmt;

    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use crate::protocol::fencing::FencingToken;

    impl Serialize for FencingToken {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if serializer.is_human_readable() {
                serializer.collect_str(self)
            } else {
                serializer.serialize_u64(self.get())
            }
        }
    }

    impl<'de> Deserialize<'de> for FencingToken {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            if deserializer.is_human_readable() {
                deserializer.deserialize_any(Digits)
            } else {
                deserializer.deserialize_u64(Digits)
            }
        }
    }

    struct Digits;

    impl Visitor<'_> for Digits {
        type Value = FencingToken;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a fencing token")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<FencingToken, E> {
            number.try_into().map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<FencingToken, E> {
            number.try_into().map_err(E::custom)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<FencingToken, E> {
            text.parse().map_err(E::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_token_is_one_in_each_form() {
        for number in [1, 244_395_247_974_068_224, i64::MAX.cast_unsigned()] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!(u64::from(token), number);
            assert_eq!(FencingToken::try_from(i64::from(token)), Ok(token));
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for number in [0, 1 << 63, u64::MAX] {
            assert_eq!(FencingToken::try_from(number), Err(NotAToken));
            assert_eq!(number.to_string().parse::<FencingToken>(), Err(NotAToken));
        }
        assert_eq!(FencingToken::try_from(-1_i64), Err(NotAToken));
        for text in ["", " 1", "1 ", "0x1", "1.0", "-1"] {
            assert_eq!(text.parse::<FencingToken>(), Err(NotAToken), "{text:?}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn json_has_digits_that_stay_exact() {
        let token = FencingToken::try_from(244_395_247_974_068_225_u64).unwrap();
        assert_eq!(serde_json::to_string(&token).unwrap(), r#""244395247974068225""#);
        for text in [r#""244395247974068225""#, "244395247974068225"] {
            assert_eq!(serde_json::from_str::<FencingToken>(text).unwrap(), token);
        }
        for text in ["0", "-1", r#""x""#, "1.5", "null", "[]"] {
            assert!(serde_json::from_str::<FencingToken>(text).is_err(), "{text}");
        }
    }
}
