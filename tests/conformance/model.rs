//! A sequence as the in-process instance carries it out.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis::Value as Wire;
use redquorum::testing::conformance::{Ask, Content, Store, TOKENS, run};
use redquorum::testing::protocol::{self, AdmissionRecord, Cause, FencingToken, Reply};

use crate::generate::{Key, Step};
use crate::seen::Seen;
use crate::server::write_record;

/// What a step is answered.
#[derive(Debug)]
pub(crate) enum Told {
    Replies(Vec<Reply>),
    Answers(Vec<Wire>),
}

impl Told {
    /// Whether no request ended with an error of the server.
    pub(crate) fn all_end(&self) -> bool {
        match self {
            Self::Replies(replies) => !replies.iter().any(|reply| matches!(reply, Reply::Unknown(Cause::Server(_)))),
            Self::Answers(_) => true,
        }
    }
}

/// A sequence, its data and its history.
pub(crate) struct Model {
    store: Store,
    started: Instant,
    now: protocol::Instant,
    record: Option<AdmissionRecord>,
    history: Vec<String>,
    part: Vec<(Step, Told)>,
    seen: Seen,
}

/// The machine's wall clock.
pub(crate) fn wall_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// Whether it is something that no clock can have made.
fn is_odd(fence: &Content) -> bool {
    let Content::Text(text, _) = fence else { return false };
    FencingToken::from_wire(text).is_none_or(|token| token.is_ahead_of(wall_us()))
}

impl Model {
    pub(crate) fn new(record: Option<&AdmissionRecord>) -> Self {
        let mut store = Store::default();
        if let Some(record) = record {
            write_record(&mut store, record);
        }
        let (started, now) = (Instant::now(), protocol::Instant::ZERO);
        Self {
            store,
            started,
            now,
            record: record.cloned(),
            history: Vec::new(),
            part: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Begins another part.
    pub(crate) fn now_is(&mut self, now: Instant) {
        self.now = protocol::Instant::ZERO.saturating_add(now - self.started);
        self.store.expire(self.now);
        let part = std::mem::take(&mut self.part);
        self.history.extend(part.iter().map(|(step, told)| format!("{step:?}\n    -> {told:?}")));
        self.history.push(format!("-- at {:?}", now - self.started));
    }

    pub(crate) fn flush(&mut self) {
        self.store.flush();
        self.history.push("-- FLUSHALL (before the next part)".to_owned());
    }

    /// The steps of this part, with their answers.
    pub(crate) fn part(&self) -> &[(Step, Told)] {
        &self.part
    }

    /// What has happened in it.
    pub(crate) const fn seen(&self) -> Seen {
        self.seen
    }

    pub(crate) fn contents(&self) -> Vec<Content> {
        let content = |key: Key| match key {
            Key::Fence(name) => Content::of_token(&self.store, name),
            _ => Content::of(&self.store, &key.within(""), self.now),
        };
        Key::all().map(content).collect()
    }

    /// How many releases have left one (P6).
    pub(crate) fn tombstones(&self) -> usize {
        match Content::of(&self.store, TOKENS, self.now) {
            Content::Scores(members, _) => members.iter().filter(|(member, _)| member.contains(&b' ')).count(),
            _ => 0,
        }
    }

    pub(crate) fn has_floor(&self) -> bool {
        Content::of(&self.store, &Key::Floor.within(""), self.now) != Content::Nothing
    }

    pub(crate) fn carry_out(&mut self, step: Step) {
        let told = self.answer(&step);
        self.part.push((step, told));
    }

    fn answer(&mut self, step: &Step) -> Told {
        let (store, now) = (&mut self.store, self.now);
        let bytes = |key: &Key| key.within("").into_bytes();
        let answer = match step {
            Step::Asks(asks, record) => {
                let run = |ask: &Ask| {
                    let before = Content::of(store, &ask.name, now);
                    let odd = is_odd(&Content::of_token(store, &ask.name));
                    let reply = run(store, ask, record.as_ref(), (now, wall_us())).unwrap();
                    self.seen.note(ask, &before, &reply);
                    self.seen.note_token(ask, odd, &reply);
                    reply
                };
                return Told::Replies(asks.iter().map(run).collect());
            }
            Step::SetIfAbsent(key, value, ttl) => {
                if store.set_if_absent(&bytes(key), value.as_bytes(), Some(now.saturating_add(*ttl))) {
                    Wire::Okay
                } else {
                    Wire::Nil
                }
            }
            Step::Set(key, value) => {
                store.set(&bytes(key), value.as_bytes(), None);
                Wire::Okay
            }
            Step::SetToken(name, score) => {
                let is_new = Content::of_token(store, name) == Content::Nothing;
                let _ = store.set_score(TOKENS.as_bytes(), name.as_bytes(), score.parse().unwrap());
                Wire::Int(is_new.into())
            }
            Step::RemoveToken(name) => Wire::Int(store.remove_score(TOKENS.as_bytes(), name.as_bytes()).into()),
            Step::OtherType(key) => {
                let was_there = store.remove(&bytes(key));
                store.set_other_type(&bytes(key));
                return Told::Answers(vec![Wire::Int(was_there.into()), Wire::Int(1)]);
            }
            Step::OtherSet(key, member) => {
                let was_there = store.remove(&bytes(key));
                let _ = store.set_score(&bytes(key), member.as_bytes(), 7.0); // it is empty now
                return Told::Answers(vec![Wire::Int(was_there.into()), Wire::Int(1)]);
            }
            Step::Delete(key) => Wire::Int(store.remove(&bytes(key)).into()),
            Step::Persist(key) => {
                let had_end = store.ttl(&bytes(key), now).is_some();
                store.persist(&bytes(key));
                Wire::Int(had_end.into())
            }
            Step::Expire(key, ttl) => {
                let is_there = store.contains(&bytes(key));
                store.expire_at(&bytes(key), now.saturating_add(*ttl));
                Wire::Int(is_there.into())
            }
        };
        Told::Answers(vec![answer])
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the record: {:?}", self.record)?;
        for line in &self.history {
            writeln!(f, "{line}")?;
        }
        for (step, told) in &self.part {
            writeln!(f, "{step:?}\n    -> {told:?}")?;
        }
        Ok(())
    }
}
