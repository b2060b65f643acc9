//! The id of a client: by it the clients that want a lock find each other (P25).

use std::fmt;

/// How many bytes of a value's id are its client's.
pub const CLIENT_ID_BYTES: usize = 6;

/// The same in hexadecimal digits.
const DIGITS: usize = 2 * CLIENT_ID_BYTES;

/// Before a client's id, gives the channel that it listens to; all channels of this library begin with it.
pub const CHANNEL: &str = "redquorum:wake:";

/// With what a mark begins, and how many digits its ticket has.
pub(super) const MARK: &str = "writer ";
pub(super) const TICKET: usize = 16;

/// The id of a client: the first twelve hexadecimal digits of the id of every value that it stores. Two clients
/// that share one by chance get each other's messages, which only costs them time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u8; DIGITS]);

impl ClientId {
    /// The id of the client whose values' ids begin with these bytes.
    pub fn new(bytes: [u8; CLIENT_ID_BYTES]) -> Self {
        let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        Self(digits)
    }

    /// Reads an id; anything that is not one is `None`.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let digits: [u8; DIGITS] = wire.try_into().ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    /// The client that has stored this value, or the mark of a writer that waits (P34). A value of another library has
    /// none; one that only looks like ours names a client that does not exist.
    pub fn of_value(value: &[u8]) -> Option<Self> {
        if let Some(client) = Self::of_mark(value) {
            return Some(client);
        }
        let mut parts = value.split(|byte| *byte == b':').skip(1);
        Self::from_wire(parts.next().filter(|id| id.len() == 32)?.get(..DIGITS)?)
    }

    /// Where it begins among so many equal things, so that clients are spread over them.
    pub fn place_among(self, count: usize) -> usize {
        let sum = self.0.iter().fold(0_usize, |sum, digit| sum.wrapping_mul(31).wrapping_add(usize::from(*digit)));
        sum.checked_rem(count).unwrap_or_default()
    }

    /// The client whose writer's mark this is: `writer`, 16 digits and the id.
    pub fn of_mark(mark: &[u8]) -> Option<Self> {
        let words = mark.strip_prefix(MARK.as_bytes()).filter(|words| words.len() == TICKET + 1 + DIGITS)?;
        Self::from_wire(words.get(TICKET + 1..)?)
    }

    /// The channel that this client listens to.
    pub fn channel(self) -> String {
        format!("{CHANNEL}{self}")
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|digit| write!(f, "{}", char::from(*digit)))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Value;
    use uuid::Uuid;

    #[test]
    fn a_value_names_its_client() {
        let client = ClientId::new([0x01, 0xab, 0xff, 0x00, 0x9a, 0x10]);
        assert_eq!(client.to_string(), "01abff009a10");
        assert_eq!(client.channel(), "redquorum:wake:01abff009a10");
        let id = Uuid::from_u128(0x01ab_ff00_9a10_4000_8000_0000_0000_0001);
        for holder in ["", "me", "a:b%", "next"] {
            let value = Value::new(holder, id, "host/1");
            assert_eq!(ClientId::of_value(value.as_bytes()), Some(client), "{holder}");
        }
    }

    #[test]
    fn what_is_no_value_of_this_library_names_nobody() {
        for value in ["", "theirs", "a:b", "::::", ":01abff009a10:x"] {
            assert_eq!(ClientId::of_value(value.as_bytes()), None, "{value}");
        }
    }
}
