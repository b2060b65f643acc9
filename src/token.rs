//! What makes every round unlike any other: nonces (P1) and token proposals (P12).

use std::sync::atomic::{AtomicU64, Ordering};

use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::clock::Clock;
use crate::protocol::{FencingToken, Value};

/// Draws values and proposes tokens for one client.
#[derive(Debug)]
pub(crate) struct TokenSource {
    label: String,
    last: AtomicU64,
}

impl TokenSource {
    pub(crate) fn new(label: String) -> Self {
        Self { label, last: AtomicU64::new(0) }
    }

    /// A value for one round: 128 random bits of the operating system (P1).
    pub(crate) fn draw_value(&self, holder: &str) -> Result<Value, rand::rand_core::OsError> {
        let mut nonce = [0; 16];
        OsRng.try_fill_bytes(&mut nonce)?;
        Ok(Value::new(holder, u128::from_ne_bytes(nonce), &self.label))
    }

    /// A proposal above everything that this client has proposed or seen (P12).
    ///
    /// One memory for all resources: a client whose wall clock is behind learns it once instead of
    /// paying a second round for every resource.
    pub(crate) fn propose(&self, clock: &dyn Clock) -> FencingToken {
        let wall_us = clock.wall_us();
        let mut proposal = FencingToken::propose(wall_us, None);
        // The closure never declines, so this always updates.
        let _ = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            proposal = FencingToken::propose(wall_us, FencingToken::from_number(last));
            Some(proposal.get())
        });
        proposal
    }

    /// Remembers a token that an instance had stored.
    pub(crate) fn note_seen(&self, token: FencingToken) {
        self.last.fetch_max(token.get(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn proposals_rise_and_stay_above_what_was_seen() {
        let source = TokenSource::new(String::new());
        let first = source.propose(&SystemClock);
        let second = source.propose(&SystemClock);
        assert!(second > first);
        let seen = FencingToken::propose(u64::MAX / 8192, None);
        source.note_seen(seen);
        assert!(source.propose(&SystemClock) > seen);
    }

    #[test]
    fn values_are_drawn_anew() {
        let source = TokenSource::new("host/1".to_owned());
        assert_ne!(source.draw_value("").unwrap(), source.draw_value("").unwrap());
    }
}
