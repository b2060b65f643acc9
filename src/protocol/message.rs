//! The messages of clients to each other over the instances (P25, P26), as bytes. Every client that may publish can have
//! made one, so a message that is not exactly as this writes it is refused.

use crate::protocol::client_id::{CLIENT_ID_BYTES, ClientId};
use crate::protocol::readers::Access;
use crate::protocol::waiters::{MAX_WAITERS, Waiter};

/// The longest key in messages. Waiters for a longer one only poll.
pub const MAX_MESSAGE_KEY: usize = 1024;

/// The longest message.
pub const MAX_MESSAGE: usize = 1 + COUNT + MAX_WAITERS * (TICKET + CLIENT + ACCESS) + LENGTH + MAX_MESSAGE_KEY;

/// In hexadecimal digits: the number of waiters, a ticket, a client's id, the length of the key.
const COUNT: usize = 2;
const TICKET: usize = 16;
const CLIENT: usize = 2 * CLIENT_ID_BYTES;
/// A letter.
const ACCESS: usize = 1;
const LENGTH: usize = 4;

/// A message of one client to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender was refused a key by what the receiver has there, and waits.
    Waiting {
        /// The waiter.
        waiter: Waiter,
        /// Whether it comes from a client that has passed the key on to the receiver.
        forwarded: bool,
        /// For what.
        key: Vec<u8>,
    },
    /// The sender waits no more.
    Leaves {
        /// The waiter, as it was announced last.
        waiter: Waiter,
        /// For what.
        key: Vec<u8>,
    },
    /// The key was released, and the receiver is the first of its waiters.
    Next {
        /// What the waiters want the key for.
        access: Access,
        /// The waiters after it, in order.
        then: Vec<Waiter>,
        /// Which key.
        key: Vec<u8>,
    },
}

impl Message {
    /// The bytes that are published; `None` if there is no room for it in a message.
    pub fn to_wire(&self) -> Option<Vec<u8>> {
        let (kind, waiters, key) = match self {
            Self::Waiting { waiter, forwarded: false, key } => ('w', std::slice::from_ref(waiter), key),
            Self::Waiting { waiter, forwarded: true, key } => ('f', std::slice::from_ref(waiter), key),
            Self::Leaves { waiter, key } => ('l', std::slice::from_ref(waiter), key),
            Self::Next { access: Access::Write, then, key } => ('n', &**then, key),
            Self::Next { access: Access::Read, then, key } => ('r', &**then, key),
        };
        if key.len() > MAX_MESSAGE_KEY || waiters.len() > MAX_WAITERS {
            return None;
        }
        let mut text = format!("{kind}{:02x}", waiters.len());
        for Waiter { ticket, client, access } in waiters {
            let access = if *access == Access::Read { 'r' } else { 'w' };
            text.push_str(&format!("{ticket:016x}{client}{access}"));
        }
        text.push_str(&format!("{:04x}", key.len()));
        Some([text.as_bytes(), key].concat())
    }

    /// Reads a message; `None` if it is none.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let mut rest = wire;
        let kind = *take(&mut rest, 1)?.first()?;
        let count = usize::try_from(hex(take(&mut rest, COUNT)?)?).ok().filter(|count| *count <= MAX_WAITERS)?;
        let mut waiters = Vec::with_capacity(count);
        for _ in 0..count {
            let (ticket, client) = (hex(take(&mut rest, TICKET)?)?, ClientId::from_wire(take(&mut rest, CLIENT)?)?);
            let access = match take(&mut rest, ACCESS)? {
                b"w" => Access::Write,
                b"r" => Access::Read,
                _ => return None,
            };
            waiters.push(Waiter { ticket, client, access });
        }
        let length = usize::try_from(hex(take(&mut rest, LENGTH)?)?).ok()?;
        let is_whole = rest.len() == length && (1..=MAX_MESSAGE_KEY).contains(&length);
        if !is_whole || !waiters.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let key = rest.to_vec();
        match (kind, &*waiters) {
            (b'w', [waiter]) => Some(Self::Waiting { waiter: *waiter, forwarded: false, key }),
            (b'f', [waiter]) => Some(Self::Waiting { waiter: *waiter, forwarded: true, key }),
            (b'l', [waiter]) => Some(Self::Leaves { waiter: *waiter, key }),
            (b'n', _) => Some(Self::Next { access: Access::Write, then: waiters, key }),
            (b'r', _) => Some(Self::Next { access: Access::Read, then: waiters, key }),
            _ => None,
        }
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// A number in small hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn access() -> impl Strategy<Value = Access> {
        any::<bool>().prop_map(|reads| if reads { Access::Read } else { Access::Write })
    }

    fn waiter() -> impl Strategy<Value = Waiter> {
        (any::<u64>(), any::<[u8; 6]>(), access()).prop_map(|(ticket, id, access)| Waiter {
            ticket,
            client: ClientId::new(id),
            access,
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let key = || vec(any::<u8>(), 1..40);
        prop_oneof![
            (waiter(), any::<bool>(), key()).prop_map(|(waiter, forwarded, key)| Message::Waiting {
                waiter,
                forwarded,
                key
            }),
            (waiter(), key()).prop_map(|(waiter, key)| Message::Leaves { waiter, key }),
            (vec(waiter(), 0..MAX_WAITERS), access(), key()).prop_map(|(mut then, access, key)| {
                then.sort_unstable();
                then.dedup();
                Message::Next { access, then, key }
            }),
        ]
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let long =
            |length| Message::Next { access: Access::Write, then: Vec::new(), key: vec![b'x'; length] }.to_wire();
        assert!(long(MAX_MESSAGE_KEY).is_some_and(|wire| Message::from_wire(&wire).is_some()));
        assert_eq!(long(MAX_MESSAGE_KEY + 1), None);
        let then = vec![Waiter { ticket: 1, client: ClientId::new([0; 6]), access: Access::Read }; MAX_WAITERS + 1];
        assert_eq!(Message::Next { access: Access::Read, then, key: vec![1] }.to_wire(), None);
    }

    #[test]
    fn forged_messages_are_refused() {
        let id = "0123456789ab";
        for forged in [
            String::new(),
            "hello".to_owned(),
            "w000001a".to_owned(),                                               // no waiter
            format!("w010000000000000001{id}w0001"),                             // no key
            format!("w010000000000000001{id}w0002a"),                            // cut
            format!("w010000000000000001{id}w0001ab"),                           // more than it says
            format!("w010000000000000001{}w0001a", id.to_uppercase()),           // not as it is written
            format!("w010000000000000001{id}x0001a"),                            // for nothing that there is
            format!("x010000000000000001{id}w0001a"),                            // no such kind
            format!("n020000000000000002{id}w0000000000000001{id}w0001a"),       // out of order
            format!("nff{}0001a", format!("0000000000000001{id}w").repeat(255)), // too many
        ] {
            assert_eq!(Message::from_wire(forged.as_bytes()), None, "{forged}");
        }
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written_and_no_part_of_it_is_one(message in message()) {
            let wire = message.to_wire().unwrap();
            prop_assert_eq!(Message::from_wire(&wire), Some(message));
            for end in 0..wire.len() {
                prop_assert_eq!(Message::from_wire(&wire[..end]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(wire in vec(any::<u8>(), 0..200), message in message(), at: usize) {
            let _ = Message::from_wire(&wire);
            let mut changed = message.to_wire().unwrap();
            let at = at % changed.len();
            changed[at] ^= 0x55;
            if let Some(read) = Message::from_wire(&changed) {
                prop_assert_eq!(read.to_wire(), Some(changed), "there is one way to write it");
            }
        }
    }
}
