//! What a server did, request by request, for a judge of the clients.

use std::time::Duration;

use super::State;
use crate::protocol::{FencingToken, Instant, READERS};
use crate::resource::TOKENS_KEY;
use crate::testing::mirror::scripts::{floor, has_tombstone};

/// The request for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// `SET` of a plain acquire.
    Set,
    /// A token of a plain acquire.
    Token,
    /// An acquire by script.
    Acquire,
    /// An extend.
    Extend,
    /// An extend that sets nothing.
    Keep,
    /// A release, in any form.
    Release,
    /// The key was read.
    Read,
    /// A reader wants to be added.
    ReaderComes,
    /// A reader renews.
    ReaderStays,
    /// A reader leaves, or the mark of a writer.
    ReaderLeaves,
}

/// What the server said to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Set, extended, raised, released, or there.
    Yes,
    /// The key was missing, and is set again.
    Repaired,
    /// It was there and is extended, in quarantine.
    Kept,
    /// Another value, none, or a token that is not larger.
    No,
    /// It may not vote.
    NotAdmitted,
    /// It is no answer to that.
    Other,
}

/// A key and what is stored for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyState {
    /// What is under it.
    pub value: Option<Vec<u8>>,
    /// When that expires, by the server's wall clock.
    pub end: Option<Duration>,
    /// The token of the lock.
    pub token: Option<FencingToken>,
    /// The largest token that the server has forgotten, if it counts (P13).
    pub floor: Option<FencingToken>,
    /// Whether a tombstone says that what is asked for was released (P6).
    pub is_released: bool,
    /// Who reads, and until when by the server's wall clock in ms; of writers that wait less than zero.
    pub readers: Vec<(Vec<u8>, f64)>,
    /// The longest ttl that the server's admission record allows (P29).
    pub longest_ttl: Option<Duration>,
}

/// What one request did to one key.
#[derive(Clone, Debug)]
pub struct Step {
    /// The connection, as it was called when it was served.
    pub connection: u64,
    /// Which command of the server it belongs to.
    pub command: u64,
    /// Where the command begins in all that was read from the connection, in bytes.
    pub begins: u64,
    /// Where the answer ends in all that was sent over it.
    pub ends: u64,
    /// When it was carried out, in true time, and by the server's wall clock.
    pub at: Duration,
    /// As `at`.
    pub wall: Duration,
    /// The request.
    pub kind: StepKind,
    /// The key.
    pub key: Vec<u8>,
    /// The value of the round; empty for a token and a read.
    pub value: Vec<u8>,
    /// What it carries.
    pub token: Option<FencingToken>,
    /// For how long the key is to be kept.
    pub ttl: Duration,
    /// Whether it names the record that is there, or none.
    pub is_known: bool,
    /// Whether more than one copy of the request may be there.
    pub resent: bool,
    /// Whether the server is out of its quarantine.
    pub is_admitted: bool,
    /// The answer.
    pub said: Said,
    /// The stored token that the answer names.
    pub stale: Option<FencingToken>,
    /// Before it, and after it.
    pub before: KeyState,
    /// As `before`.
    pub after: KeyState,
}

impl Step {
    /// What was asked for a key with this value, and said. The rest is as usual, or known later.
    pub(super) fn new(kind: StepKind, key: &[u8], value: &[u8], said: Said, before: KeyState) -> Self {
        Self {
            connection: 0,
            command: 0,
            begins: 0,
            ends: 0,
            at: Duration::ZERO,
            wall: Duration::ZERO,
            kind,
            key: key.to_vec(),
            value: value.to_vec(),
            token: None,
            ttl: Duration::ZERO,
            is_known: true,
            resent: false,
            is_admitted: true,
            said,
            stale: None,
            before,
            after: KeyState::default(),
        }
    }
}

impl State {
    pub(super) const fn is_watched(&self) -> bool {
        self.steps.is_some()
    }

    /// What is stored for a key; nothing without a judge.
    pub(super) fn key_state(&self, key: &[u8], value: &[u8], wall_us: u64) -> KeyState {
        if !self.is_watched() {
            return KeyState::default();
        }
        let end = self.store.end(key).flatten().map(|end| Duration::from_nanos(end.as_nanos()));
        let stored = self.store.score(TOKENS_KEY.as_bytes(), key).ok().flatten();
        let token = stored.and_then(FencingToken::from_score);
        let readers = self.store.scores(key).into_iter().filter(|(member, _)| member != READERS).collect();
        let floor = floor(&self.store, wall_us);
        let is_released = has_tombstone(&self.store, key, value).is_ok_and(|is_there| is_there);
        let (value, longest_ttl) = (self.store.get(key).map(<[u8]>::to_vec), self.longest_ttl());
        KeyState { value, end, token, floor, is_released, readers, longest_ttl }
    }

    /// Notes what has been carried out for a key.
    pub(super) fn note(&mut self, step: Step) {
        if self.is_watched() {
            self.steps.get_or_insert_default().push(Step { command: self.commands, ..step });
        }
    }

    /// Says of the steps of a command over which connection it came, and where in it.
    pub(super) fn place_steps(&mut self, from: usize, number: u64, (at, wall): (Duration, Instant)) {
        let Some(session) = self.sessions.get(&number) else { return };
        let (connection, begins, ends) = (session.tag, session.read, session.sent + session.pending() as u64);
        for step in self.steps.iter_mut().flatten().skip(from) {
            (step.connection, step.begins, step.ends) = (connection, begins, ends);
            (step.at, step.wall) = (at, Duration::from_nanos(wall.as_nanos()));
        }
    }

    pub(super) fn step_count(&self) -> usize {
        self.steps.as_ref().map_or(0, Vec::len)
    }
}
