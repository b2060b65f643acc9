//! A lease that is moved from one client to another.

use std::fmt;
use std::time::Duration;

use crate::names::ResourceName;
use crate::protocol::{FencingToken, Value};

/// A lease without a guard: what [`Guard::detach`](crate::Guard::detach) leaves, and
/// [`Redlock::attach`](crate::Redlock::attach) goes on with, in another client or process.
///
/// Nobody renews it: it ends one ttl after it was last extended, and nobody else gets the lock before. It may be attached
/// for as long, any number of times.
///
/// Keep it like a password: whoever has it can take part in the lock, and release it. `Debug` shows nothing that is secret.
/// With the feature `serde` it is written and read as one text.
#[derive(Clone, PartialEq, Eq)]
pub struct DetachedLease {
    /// The key, namespace included.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Value,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Duration,
}

impl DetachedLease {
    /// What is locked: the key, namespace included.
    #[must_use]
    pub fn resource(&self) -> ResourceName {
        self.key.as_slice().into()
    }

    /// The fencing token. It stays the same when the lease is attached.
    #[must_use]
    pub const fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// With which ttl it is extended when it is attached.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl fmt::Debug for DetachedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedLease")
            .field("resource", &self.resource())
            .field("fencing_token", &self.token.get())
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// The text is a promise to whoever has stored one: `1`, the ttl in ms, the token, the value, and the key, the last
/// two in hexadecimal digits, with a blank between each.
#[cfg(feature = "serde")]
mod serialized {
    use std::fmt::Write;
    use std::time::Duration;

    use serde_core::de::{Deserialize, Deserializer, Error};
    use serde_core::ser::{Serialize, Serializer};

    use super::DetachedLease;
    use crate::protocol::{FencingToken, Value};

    /// The form of the text.
    const VERSION: &str = "1";

    impl Serialize for DetachedLease {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let ttl_ms = self.ttl.as_millis();
            let (token, value, key) = (self.token.get(), digits(self.value.as_bytes()), digits(&self.key));
            serializer.serialize_str(&format!("{VERSION} {ttl_ms} {token} {value} {key}"))
        }
    }

    impl<'de> Deserialize<'de> for DetachedLease {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            read(&text).ok_or_else(|| D::Error::custom("this is no detached lease"))
        }
    }

    fn read(text: &str) -> Option<DetachedLease> {
        let mut words = text.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let ttl = Duration::from_millis(words.next()?.parse().ok()?);
        let token = FencingToken::from_number(words.next()?.parse().ok()?)?;
        let value = Value::from_wire(&bytes(words.next()?)?);
        let key = bytes(words.next()?)?;
        (!key.is_empty() && words.next().is_none()).then_some(DetachedLease { key, value, token, ttl })
    }

    fn digits(bytes: &[u8]) -> String {
        bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // into a text, which takes it
            text
        })
    }

    fn bytes(digits: &str) -> Option<Vec<u8>> {
        let pairs = digits.as_bytes().chunks(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok();
        pairs.map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DetachedLease {
        let (value, token) = (Value::from_wire(b"me:secret:host/1"), FencingToken::from_number(4097).unwrap());
        DetachedLease { key: b"a\xff".to_vec(), value, token, ttl: Duration::from_secs(2) }
    }

    #[test]
    fn it_shows_nothing_that_is_secret() {
        let shown = format!("{:?}", sample());
        assert!(!shown.contains("secret") && shown.contains("4097"), "{shown}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn it_is_written_and_read_as_a_text_that_stays_as_it_is() {
        let text = r#""1 2000 4097 6d653a7365637265743a686f73742f31 61ff""#;
        assert_eq!(serde_json::to_string(&sample()).unwrap(), text);
        assert_eq!(serde_json::from_str::<DetachedLease>(text).unwrap(), sample());
        for broken in [
            "",
            "1",
            "2 2000 4097 6d 62",
            "1 2000 4097 6d 62 63",
            "1 2000 4097 6d ",
            "1 2000 4097 6d",
            "1 2000 0 6d 62",
            "1 2000 4097 6 62",
            "1 x 4097 6d 62",
        ] {
            assert!(serde_json::from_str::<DetachedLease>(&format!("{broken:?}")).is_err(), "{broken}");
        }
    }
}
