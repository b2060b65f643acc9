//! The content of the key of a lock that is read (P33, P34): a sorted set with the values of its readers, each with its end as the
//! score, and marks of writers that wait. `read.lua` has the whole.

use crate::protocol::client_id::{ClientId, MARK, TICKET};

/// The member that marks the set as one of this library, and what a refused writer learns of the holder.
pub const READERS: &[u8] = b"redquorum";

/// What a lock is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// For itself, as any lock.
    #[default]
    Write,
    /// Together with others that read.
    Read,
}

/// Of a writer that waits until the readers have gone: its member in the set. Marks compare as their writers came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterMark(String);

impl WriterMark {
    /// Of the client that waits since `ticket`, in microseconds.
    pub fn new(ticket: u64, client: ClientId) -> Self {
        Self(format!("{MARK}{ticket:0TICKET$x} {client}"))
    }

    /// A mark as it is stored.
    pub fn from_wire(wire: &[u8]) -> Self {
        Self(String::from_utf8_lossy(wire).into_owned())
    }

    /// As it is stored. No value has this form, for it has no colon.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_their_client_and_compare_by_when_it_came() {
        let client = ClientId::new([0x01, 0xab, 0xff, 0x00, 0x9a, 0x10]);
        let mark = WriterMark::new(0x0006_52b0_c8a1_f000, client);
        assert_eq!(mark.as_bytes(), b"writer 000652b0c8a1f000 01abff009a10");
        assert_eq!(ClientId::of_mark(mark.as_bytes()), Some(client));
        assert_eq!(
            ClientId::of_value(mark.as_bytes()),
            Some(client),
            "readers that it refuses announce themselves there"
        );
        assert!(mark < WriterMark::new(0x0006_52b0_c8a1_f001, ClientId::new([0; 6])));
        for other in [READERS, b"writer", b"writer 0 01abff009a10", b":01abff009a1040008000000000000001:host/1"] {
            assert_eq!(ClientId::of_mark(other), None);
        }
    }
}
