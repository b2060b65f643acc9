//! What has happened in sequences: a comparison is worth nothing if the cases do not come up.

use std::ops::AddAssign;

use redquorum::protocol::{Cause, Reply};
use redquorum::testing::conformance::{Ask, Content, Kind, reservation_of};

/// How often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// An extend came to a key that lives for longer.
    not_shortened: usize,
    /// An extend came to a key without an end.
    ended: usize,
    /// An extend set a key that was missing.
    repaired: usize,
    /// Leases that were renewed together.
    renewed: usize,
    /// Leases that were not, beside such that were.
    not_renewed: usize,
    /// Renewals by an instance that may not vote.
    renewals_refused: usize,
    /// A release kept the key for a successor.
    passed_on: usize,
    /// That one was granted what was kept for it.
    taken_up: usize,
    /// Requests with a token that no clock can have made.
    ahead: usize,
    /// Such a token, or none at all, was stored, and a sane one took its place.
    healed: usize,
}

impl Seen {
    /// Takes in a reply; `before` is what was under the lock keys.
    pub(crate) fn note(&mut self, ask: &Ask, before: &[Content], reply: &Reply) {
        let value = ask.value();
        let own = value.as_bytes();
        let is_own = |content: &Content, fits: &dyn Fn(Option<std::time::Duration>) -> bool| match content {
            Content::Text(text, ttl) => text == own && fits(*ttl),
            _ => false,
        };
        let add = |count: &mut usize, happened: bool| *count += usize::from(happened);
        match (ask.kind, reply) {
            (Kind::Acquire, Reply::Granted) => {
                let reservation = reservation_of(ask.nonce);
                let is_reserved =
                    |content: &Content| matches!(content, Content::Text(text, _) if text == reservation.as_bytes());
                add(&mut self.taken_up, before.iter().any(is_reserved));
            }
            (Kind::PassOn, Reply::Granted) if ask.names.len() == 1 => {
                add(&mut self.passed_on, [0, 1, 5].contains(&ask.nonce));
            }
            (Kind::Extend, Reply::Granted) => {
                let lives_longer = |ttl: Option<_>| ttl.is_some_and(|ttl| ttl > ask.ttl);
                add(&mut self.not_shortened, before.iter().any(|content| is_own(content, &lives_longer)));
                add(&mut self.ended, before.iter().any(|content| is_own(content, &|ttl| ttl.is_none())));
            }
            (Kind::Extend, Reply::Repaired) => self.repaired += 1,
            _ => {}
        }
    }

    /// `odd` is whether what was stored for one of the resources was no token or that of no clock.
    pub(crate) fn note_token(&mut self, ask: &Ask, odd: bool, reply: &Reply) {
        self.ahead += usize::from(matches!(reply, Reply::Unknown(Cause::ClockBehind { .. })));
        self.healed += usize::from(odd && ask.kind == Kind::Acquire && *reply == Reply::Granted);
    }

    pub(crate) fn note_renewal(&mut self, leases: usize, reply: &Reply, others: &[usize]) {
        if *reply == Reply::Granted {
            self.renewed += leases - others.len();
            self.not_renewed += if others.len() < leases { others.len() } else { 0 };
        } else {
            self.renewals_refused += 1;
        }
    }

    /// The rarest.
    pub(crate) fn least(&self) -> usize {
        let Self { not_shortened, ended, repaired, renewed, not_renewed, renewals_refused, ahead, healed, .. } = *self;
        let Self { passed_on, taken_up, .. } = *self;
        let others = [not_shortened, ended, repaired, renewed, not_renewed, renewals_refused, ahead, healed];
        others.into_iter().chain([passed_on, taken_up]).fold(usize::MAX, usize::min)
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.not_shortened += other.not_shortened;
        self.ended += other.ended;
        self.repaired += other.repaired;
        self.renewed += other.renewed;
        self.not_renewed += other.not_renewed;
        self.renewals_refused += other.renewals_refused;
        self.passed_on += other.passed_on;
        self.taken_up += other.taken_up;
        self.ahead += other.ahead;
        self.healed += other.healed;
    }
}
