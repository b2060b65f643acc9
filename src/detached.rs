//! A lease that is moved from one client to another.

use std::fmt;
use std::time::Duration;

use crate::names::ResourceName;
use crate::protocol::{FencingToken, Value};

/// A lease without a guard: what [`Guard::detach`](crate::Guard::detach) leaves, and
/// [`Redlock::attach`](crate::Redlock::attach) continues, in another client or process.
///
/// It is not renewed: it ends one ttl after it was last extended, and no other client gets the lock before. Attach it within that
/// time.
///
/// Keep it like a password: it is enough to share the lock, and to release it. `Debug` shows no secret.
/// With the feature `serde` it is one string.
#[derive(Clone, PartialEq, Eq)]
pub struct DetachedLease {
    /// The key, namespace included.
    pub(crate) key: Vec<u8>,
    /// `None` if the lease was over when it was detached.
    pub(crate) value: Option<Value>,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Duration,
}

impl DetachedLease {
    /// The name of the lock, with the namespace.
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

/// The text must stay readable, since programs have stored it: `1`, the ttl in ms, the token, the value, and the key, the last
/// two in hexadecimal digits, with a blank between each. `-` stands for the value of a lease that was over.
#[cfg(feature = "serde")]
mod serialized {
    use std::fmt::Write;
    use std::time::Duration;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    use super::DetachedLease;
    use crate::protocol::{FencingToken, Value};

    /// The form of the text.
    const VERSION: &str = "1";
    /// The value of a lease that was over.
    const OVER: &str = "-";

    impl Serialize for DetachedLease {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let ttl_ms = self.ttl.as_millis();
            let value = self.value.as_ref().map_or_else(|| OVER.to_owned(), |value| digits(value.as_bytes()));
            let (token, key) = (self.token.get(), digits(&self.key));
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
        let value = match words.next()? {
            OVER => None,
            value => Some(Value::from_wire(&bytes(value)?)),
        };
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
        DetachedLease { key: b"a\xff".to_vec(), value: Some(value), token, ttl: Duration::from_secs(2) }
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
        let (over, text) = (DetachedLease { value: None, ..sample() }, r#""1 2000 4097 - 61ff""#);
        assert_eq!(serde_json::to_string(&over).unwrap(), text);
        assert_eq!(serde_json::from_str::<DetachedLease>(text).unwrap(), over);
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
