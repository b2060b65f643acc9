//! What makes every round unlike any other: values (P1) and token proposals (P12).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{CLIENT_ID_BYTES, ClientId, CurrentHolder, FencingToken, ProposingClock, Value};
use crate::random;

/// Draws values and proposes tokens for one client.
#[derive(Debug)]
pub(crate) struct TokenSource {
    label: String,
    client: [u8; CLIENT_ID_BYTES],
    last: AtomicU64,
}

impl TokenSource {
    pub(crate) fn new(label: String) -> Self {
        // Without random bytes no value is drawn either.
        Self { label, client: random::bytes().unwrap_or_default(), last: AtomicU64::new(0) }
    }

    /// What all values of this client have in common (P25).
    pub(crate) fn client(&self) -> ClientId {
        ClientId::new(self.client)
    }

    /// What others would be shown of this client as a holder.
    pub(crate) fn shown(&self) -> CurrentHolder {
        let label = Some(self.label.clone()).filter(|label| !label.is_empty());
        CurrentHolder { label, client: Some(self.client().to_string()), ..CurrentHolder::default() }
    }

    /// A value for one round (P1), with the client's label unless another is given.
    pub(crate) fn draw_value(&self, holder: &str, label: Option<&str>) -> io::Result<Value> {
        Ok(Value::new(holder, random::uuid_beginning_with(self.client)?, label.unwrap_or(&self.label)))
    }

    /// A proposal above all that this client has proposed, and above what this acquire has `seen` (P12).
    ///
    /// What was seen of one resource is not carried over to others: the one memory for all of them
    /// rises by the clock and by one for each proposal, and by nothing that an instance says.
    pub(crate) fn propose(&self, clock: ProposingClock, seen: Option<FencingToken>) -> FencingToken {
        let mut proposal = clock.propose(None);
        // The closure never declines, so this always updates.
        let _ = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            proposal = clock.propose(FencingToken::from_number(last));
            Some(proposal.get())
        });
        seen.map_or(proposal, |seen| proposal.max(seen.next_grant()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_750_000_000_000_000;
    const NOW: ProposingClock = ProposingClock { us: NOW_US, is_of_instances: true };

    #[test]
    fn proposals_rise_and_are_above_what_the_same_acquire_has_seen() {
        let source = TokenSource::new(String::new());
        let first = source.propose(NOW, None);
        let second = source.propose(NOW, None);
        assert!(second > first);
        let seen = FencingToken::propose(2 * NOW_US, None);
        assert_eq!(source.propose(NOW, Some(seen)), seen.next_grant());
        assert!(source.propose(NOW, None) < seen, "it is not carried over");
        assert!(source.propose(NOW, Some(first)) > second);
    }

    #[test]
    fn values_are_drawn_anew() {
        let source = TokenSource::new("host/1".to_owned());
        let (one, other) = (source.draw_value("", None).unwrap(), source.draw_value("me", None).unwrap());
        assert_ne!(one, source.draw_value("", None).unwrap());
        assert_eq!(ClientId::of_value(one.as_bytes()), Some(source.client()));
        assert_eq!(ClientId::of_value(other.as_bytes()), Some(source.client()));
        assert_ne!(source.client(), TokenSource::new(String::new()).client());
    }
}
