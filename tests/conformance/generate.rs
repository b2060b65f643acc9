//! Random sequences of requests, and of what others do to the same keys.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use redquorum::FencingToken;
use redquorum::testing::conformance::{Ask, Kind, Write, writes};
use redquorum::testing::protocol::{AdmissionRecord, ProcessIdentity, RecordOrigin, Value};

use crate::model::wall_us;

/// A ttl that some steps wait for; the others together take less.
pub(crate) const SHORT: Duration = Duration::from_millis(1_500);
const LONG: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Who asks with this nonce, as a rule. One is a prefix of another, also of what that stores before it
/// is escaped.
const HOLDERS: [&str; 6] = ["", "", "a", "a", "a:b%", "a:b%"];
pub(crate) const HOUR_MS: u64 = 3_600_000;
/// Of clocks that are ahead: as far as may be, or further.
const AHEAD_HOURS: [u64; 2] = [23, 25];

/// A key of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Lock(&'static str),
    /// The token of the lock with this name, which has no key of its own.
    Fence(&'static str),
    /// The largest token that was forgotten, of all locks: sequences that run beside each other do not touch it.
    Floor,
}

impl Key {
    /// All that a sequence uses.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().flat_map(|name| [Self::Lock(name), Self::Fence(name)])
    }

    pub(crate) fn within(self, namespace: &str) -> String {
        match self {
            Self::Lock(name) | Self::Fence(name) => format!("{namespace}{name}"),
            Self::Floor => "redquorum:floor".to_owned(),
        }
    }
}

/// What happens to an instance.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Requests that may be sent together, and the admission record that they name.
    Asks(Vec<Ask>, Option<AdmissionRecord>),
    /// SET NX PX
    SetIfAbsent(Key, String, Duration),
    /// SET
    Set(Key, String),
    /// ZADD of a lock's token, as a score
    SetToken(&'static str, String),
    /// ZREM of it
    RemoveToken(&'static str),
    /// DEL, RPUSH
    OtherType(Key),
    /// DEL, ZADD
    OtherSet(Key, &'static str),
    /// DEL
    Delete(Key),
    /// PEXPIRE
    Expire(Key, Duration),
    /// PERSIST
    Persist(Key),
}

/// What happens to all sequences between two of their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    Nothing,
    Wait,
    Flush,
}

/// Draws steps.
pub(crate) struct Generator<'a> {
    pub(crate) rng: &'a mut StdRng,
    /// The record that the server has.
    pub(crate) recorded: AdmissionRecord,
}

/// A record that lets an instance vote since long, or only in an hour.
pub(crate) fn record(rng: &mut StdRng, now_ms: u64) -> AdmissionRecord {
    let vote_from_ms = if rng.random_bool(0.7) { 1_000 } else { now_ms + HOUR_MS };
    AdmissionRecord {
        identity: ProcessIdentity::new("run", "replication"),
        vote_from_ms,
        longest_ttl_ms: 10_000,
        origin: RecordOrigin::Waits,
        order: 1,
    }
}

pub(crate) fn value(holder: &str, nonce: u128) -> String {
    String::from_utf8_lossy(Value::new(holder, uuid::Uuid::from_u128(nonce), "").as_bytes()).into_owned()
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::from_number(number).unwrap()
}

/// As they are carried out where they are sent together.
fn in_write_order(asks: &[Ask]) -> Vec<Ask> {
    let ordered: Vec<Ask> = writes("", asks, false).unwrap().iter().flat_map(Write::asks).cloned().collect();
    // In that order more of them may share a write.
    if ordered == asks { ordered } else { in_write_order(&ordered) }
}

impl Generator<'_> {
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        let count = self.rng.random_range(2..7);
        let mut steps: Vec<Step> = (0..count).map(|_| self.step()).collect();
        if self.rng.random_bool(0.1) {
            steps.extend(self.a_writer_behind_a_reader());
        }
        steps
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.rng.random_range(0..all.len())].clone()
    }

    fn step(&mut self) -> Step {
        match self.rng.random_range(0..35) {
            0 => {
                let value = self.text();
                Step::SetIfAbsent(self.key(), value, self.ttl())
            }
            1 => {
                let value = self.text();
                Step::Set(self.key(), value)
            }
            2 => Step::OtherType(self.key()),
            3 => Step::Delete(self.key()),
            4 | 29 => Step::RemoveToken(self.one_of(&NAMES)),
            33 => Step::OtherSet(self.key(), self.one_of(&["redquorum", "somebody"])),
            34 => Step::Asks(in_write_order(&[self.reader(), self.reader()]), self.named()),
            30..33 => Step::SetToken(self.one_of(&NAMES), self.score()),
            5 => Step::Expire(self.key(), self.ttl()),
            6 | 7 => Step::Persist(Key::Lock(self.one_of(&NAMES))),
            8..=10 => Step::Asks(self.leases(), self.named()),
            _ => {
                let count = self.rng.random_range(1..5);
                Step::Asks(in_write_order(&(0..count).map(|_| self.ask()).collect::<Vec<_>>()), self.named())
            }
        }
    }

    fn key(&mut self) -> Key {
        Key::Lock(self.one_of(&NAMES))
    }

    /// What is stored as a token, usual or odd.
    fn score(&mut self) -> String {
        match self.rng.random_range(0..6) {
            0 => "inf".to_owned(),
            1 => "-3".to_owned(),
            2 => self.token_of_a_clock_ahead().to_wire(),
            _ => self.token().to_wire(),
        }
    }

    /// For a key: a lock's value, own or foreign.
    fn text(&mut self) -> String {
        match self.rng.random_range(0..9) {
            0 => "foreign".to_owned(),
            1 => String::new(),
            2 => i64::MAX.to_string(),
            6 => "a:not as this library stores it".to_owned(),
            7 => "a:longer than any that this library stores".repeat(100),
            _ => {
                let (holder, nonce) = self.asker();
                value(holder, nonce)
            }
        }
    }

    fn ttl(&mut self) -> Duration {
        if self.rng.random_bool(0.3) { SHORT } else { self.one_of(&LONG) }
    }

    fn token_of_a_clock_ahead(&mut self) -> FencingToken {
        let ahead_us = self.one_of(&AHEAD_HOURS) * HOUR_MS * 1000;
        FencingToken::propose(wall_us() + ahead_us, None)
    }

    /// One of a few.
    fn token(&mut self) -> FencingToken {
        token((100 + self.rng.random_range(1..5)) * 4096)
    }

    fn ask(&mut self) -> Ask {
        let (holder, nonce) = self.asker();
        // Mostly the same token for the same value, so that requests belong together.
        let token = match self.rng.random_range(0..20) {
            0..14 => token((100 + nonce as u64) * 4096),
            14 => self.token_of_a_clock_ahead(),
            _ => self.token(),
        };
        let name = self.one_of(&NAMES).to_owned();
        let kind = match self.rng.random_range(0..12) {
            0..6 => Kind::Acquire,
            6..8 => Kind::Extend,
            _ => Kind::Release,
        };
        let resent = self.rng.random_bool(0.5);
        let holder = holder.to_owned();
        let waits_since = self.rng.random_bool(0.5).then(|| self.rng.random_range(1..4));
        let ask = Ask { kind, name, holder, nonce, token, ttl: self.ttl(), waits_since, resent };
        if self.rng.random_bool(0.4) { self.as_reader(ask) } else { ask }
    }

    /// The usual course of a reader and a writer, where nothing else is in the way.
    fn a_writer_behind_a_reader(&mut self) -> Vec<Step> {
        let reader = Ask { kind: Kind::Read, waits_since: None, ttl: self.one_of(&LONG), ..self.ask() };
        let writer = Ask { kind: Kind::Acquire, name: reader.name.clone(), waits_since: Some(1), ..self.ask() };
        let leaves = Ask { kind: Kind::Leave, ..reader.clone() };
        [reader, writer.clone(), leaves, writer].map(|ask| Step::Asks(vec![ask], None)).into()
    }

    fn reader(&mut self) -> Ask {
        let ask = self.ask();
        self.as_reader(ask)
    }

    fn as_reader(&mut self, ask: Ask) -> Ask {
        Ask { kind: self.one_of(&[Kind::Read, Kind::Read, Kind::Renew, Kind::Leave]), waits_since: None, ..ask }
    }

    /// A holder and a nonce that mostly belong together.
    fn asker(&mut self) -> (&'static str, u128) {
        let nonce = self.rng.random_range(0..HOLDERS.len());
        let holder = if self.rng.random_bool(0.9) { HOLDERS[nonce] } else { self.one_of(&HOLDERS) };
        (holder, nonce as u128)
    }

    /// Leases with the same ttl.
    fn leases(&mut self) -> Vec<Ask> {
        let (count, ttl) = (self.rng.random_range(1..7), self.ttl());
        let lease = |_| Ask { kind: Kind::Keep, waits_since: None, ttl, ..self.ask() };
        in_write_order(&(0..count).map(lease).collect::<Vec<_>>())
    }

    fn named(&mut self) -> Option<AdmissionRecord> {
        match self.rng.random_range(0..10) {
            0..6 => None,
            6 => {
                Some(AdmissionRecord { identity: ProcessIdentity::new("another", "process"), ..self.recorded.clone() })
            }
            _ => Some(self.recorded.clone()),
        }
    }
}
