//! What is stored under a lock's key (P1).

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;

use crate::protocol::client_id::ClientId;
use crate::protocol::readers::READERS;

/// The value of one round: `holder:id:label`.
///
/// The id is what makes it unique: a UUID from the operating system's random source, in 32 hexadecimal
/// digits. It is never used again, so that a late release of an old try cannot delete a new lock. Its first digits
/// are the [`ClientId`], the same in all values of a client (P25). The holder is
/// the caller's identity, empty if none was given; the label (`host/pid`) is for people.
/// A client that knows a value can delete the lock: it is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value(Box<[u8]>);

impl Value {
    /// Puts a value together. `holder` and `label` are escaped so that they hold no `:`.
    pub fn new(holder: &str, id: Uuid, label: &str) -> Self {
        let (holder, label) = (escape(holder), escape(label));
        let mut digits = [0; 32];
        let id: &str = id.simple().encode_lower(&mut digits);
        Self([&*holder, ":", id, ":", &*label].concat().into_bytes().into())
    }

    /// A value as it is stored.
    pub fn from_wire(wire: &[u8]) -> Self {
        Self(wire.into())
    }

    /// The whole label of a stored value; `None` for that of another library.
    pub fn label(wire: &[u8]) -> Option<String> {
        Some(parts(wire)?.1)
    }

    /// How many bytes a text takes in a value.
    pub fn length_of(text: &str) -> usize {
        escape(text).len()
    }

    /// The bytes that instances compare.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value(..)")
    }
}

/// The most characters that are shown of a holder or a label. Ours are not longer; another program that may
/// write the key may have put anything there.
const MAX_SHOWN: usize = 200;

/// Who holds a lock, as far as the stored value shows: the parts of a value of this library that
/// are not secret.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CurrentHolder {
    /// What it has of the lock.
    pub kind: HolderKind,
    /// The holder's identity; `None` if it gave none, or is a client of another library.
    pub holder: Option<String>,
    /// The label for people, usually `host/pid`; `None` for a client of another library.
    pub label: Option<String>,
    /// The id of the client, [`Redlock::client_id`](crate::Redlock::client_id); `None` for a client of another library.
    pub client: Option<String>,
}

/// What a client has of a lock.
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderKind {
    /// The lock for itself.
    #[default]
    Lock,
    /// The lock, together with others that read ([`RwLock`](crate::RwLock)).
    Reader,
    /// Readers, which a refusal does not name.
    Readers,
    /// Nothing yet: it waits to write, and new readers wait behind it.
    WaitingWriter,
}

impl HolderKind {
    /// One word for logs: `lock`, `reader`, `readers` or `waiting_writer`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Reader => "reader",
            Self::Readers => "readers",
            Self::WaitingWriter => "waiting_writer",
        }
    }
}

impl CurrentHolder {
    /// Reads a member of a set of readers: a reader's value, or the mark of a writer that waits (P34).
    pub(crate) fn of_member(member: &[u8]) -> Self {
        let holder = Self::from_value(member);
        let kind = if holder.kind == HolderKind::Lock { HolderKind::Reader } else { holder.kind };
        Self { kind, ..holder }
    }

    /// Reads the parts of a value; a value of another library has none.
    #[doc(hidden)]
    pub fn from_value(value: &[u8]) -> Self {
        let (holder, label) = parts(value).unwrap_or_default();
        let given = |text: String| (!text.is_empty()).then(|| text.chars().take(MAX_SHOWN).collect());
        let client = ClientId::of_value(value).map(|client| client.to_string());
        let kind = if value == READERS {
            HolderKind::Readers
        } else if ClientId::of_mark(value).is_some() {
            HolderKind::WaitingWriter
        } else {
            HolderKind::Lock
        };
        Self { kind, holder: given(holder), label: given(label), client }
    }
}

impl fmt::Display for CurrentHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            HolderKind::Lock => {}
            HolderKind::Readers => return write!(f, "readers"),
            HolderKind::Reader => write!(f, "a reader, ")?,
            HolderKind::WaitingWriter => write!(f, "a writer that waits, ")?,
        }
        match (&self.holder, &self.label) {
            (Some(holder), Some(label)) => write!(f, "holder {holder:?} on {}", label.escape_debug()),
            (Some(holder), None) => write!(f, "holder {holder:?}"),
            (None, Some(label)) => write!(f, "a client on {}", label.escape_debug()),
            (None, None) => match &self.client {
                Some(client) => write!(f, "client {client}"),
                None => write!(f, "a client of another kind"),
            },
        }
    }
}

/// The holder and the label of a value of this library.
fn parts(value: &[u8]) -> Option<(String, String)> {
    let (holder, rest) = std::str::from_utf8(value).ok()?.split_once(':')?;
    let (id, label) = rest.split_once(':')?;
    let ours = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    (ours && !label.contains(':')).then(|| (unescape(holder), unescape(label)))
}

/// `%` and `:` as `%25` and `%3A`.
fn escape(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| matches!(byte, b'%' | b':')) {
        text.replace('%', "%25").replace(':', "%3A").into()
    } else {
        text.into() // as nearly always
    }
}

fn unescape(text: &str) -> String {
    text.replace("%3A", ":").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_that_are_not_secret_come_back(holder in ".*", label in ".*", id: u128) {
            let current = CurrentHolder::from_value(Value::new(&holder, Uuid::from_u128(id), &label).as_bytes());
            prop_assert_eq!(current.holder.unwrap_or_default(), holder);
            prop_assert_eq!(current.label.unwrap_or_default(), label);
        }

        #[test]
        fn two_rounds_never_share_a_value(a: u128, b: u128) {
            let value = |id| Value::new("h", Uuid::from_u128(id), "l");
            prop_assert_eq!(value(a) == value(b), a == b);
        }

        #[test]
        fn any_bytes_are_an_incumbent(bytes: Vec<u8>) {
            let _ = CurrentHolder::from_value(&bytes).to_string();
        }
    }

    #[test]
    fn what_others_have_written_is_shown_cut_and_escaped() {
        let label = format!("\u{1b}[2J\nbank {}", "x".repeat(100_000));
        let shown = CurrentHolder::from_value(Value::new("", Uuid::nil(), &label).as_bytes()).to_string();
        assert!(shown.starts_with("a client on \\u{1b}[2J\\nbank xx") && shown.len() < 300, "{shown}");
    }

    #[test]
    fn a_value_is_never_printed() {
        let value = Value::new("me", Uuid::from_u128(0xabcdef), "host/1");
        assert!(!format!("{value:?}").contains("abcdef"));
        assert!(!CurrentHolder::from_value(value.as_bytes()).to_string().contains("abcdef"));
        assert!(!CurrentHolder::from_value(b"secret").to_string().contains("secret"));
    }
}
