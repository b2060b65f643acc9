//! A sequence as the in-process instance carries it out.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis::Value as Wire;
use redquorum::testing::conformance::{Ask, Content, Mirror};
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
    mirror: Mirror,
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
        let mut mirror = Mirror::default();
        if let Some(record) = record {
            write_record(&mut mirror, record);
        }
        let (started, now) = (Instant::now(), protocol::Instant::ZERO);
        Self {
            mirror,
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
        let part = std::mem::take(&mut self.part);
        self.history.extend(part.iter().map(|(step, told)| format!("{step:?}\n    -> {told:?}")));
        self.history.push(format!("-- at {:?}", now - self.started));
    }

    pub(crate) fn flush(&mut self) {
        self.mirror.flush();
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

    pub(crate) fn contents(&mut self) -> Vec<Content> {
        let now = self.now;
        let mut content = |key: Key| match key {
            Key::Fence(name) => self.mirror.token(name),
            _ => self.mirror.content(&key.within(""), now),
        };
        Key::all().map(&mut content).collect()
    }

    pub(crate) fn carry_out(&mut self, step: Step) {
        let told = self.answer(&step);
        self.part.push((step, told));
    }

    fn answer(&mut self, step: &Step) -> Told {
        let (mirror, now) = (&mut self.mirror, self.now);
        let answer = match step {
            Step::Asks(asks, record) => {
                let run = |ask: &Ask| {
                    let before = mirror.content(&ask.name, now);
                    let odd = is_odd(&mirror.token(&ask.name));
                    let reply = mirror.run(ask, record.as_ref(), now, wall_us()).unwrap();
                    self.seen.note(ask, &before, &reply);
                    self.seen.note_token(ask, odd, &reply);
                    reply
                };
                return Told::Replies(asks.iter().map(run).collect());
            }
            Step::SetIfAbsent(key, value, ttl) => {
                if mirror.set_if_absent(&key.within(""), value, *ttl, now) {
                    Wire::Okay
                } else {
                    Wire::Nil
                }
            }
            Step::Set(key, value) => {
                mirror.set(&key.within(""), value);
                Wire::Okay
            }
            Step::SetToken(name, score) => {
                let is_new = mirror.token(name) == Content::Nothing;
                mirror.set_token(name, score.parse().unwrap());
                Wire::Int(is_new.into())
            }
            Step::RemoveToken(name) => Wire::Int(mirror.remove_token(name).into()),
            Step::OtherType(key) => {
                let was_there = mirror.remove(&key.within(""), now);
                mirror.set_other_type(&key.within(""));
                return Told::Answers(vec![Wire::Int(was_there.into()), Wire::Int(1)]);
            }
            Step::OtherSet(key, member) => {
                let was_there = mirror.remove(&key.within(""), now);
                mirror.set_scores(&key.within(""), member, 7.0);
                return Told::Answers(vec![Wire::Int(was_there.into()), Wire::Int(1)]);
            }
            Step::Delete(key) => Wire::Int(mirror.remove(&key.within(""), now).into()),
            Step::Persist(key) => Wire::Int(mirror.persist(&key.within(""), now).into()),
            Step::Expire(key, ttl) => {
                let is_there = mirror.content(&key.within(""), now) != Content::Nothing;
                mirror.expire_in(&key.within(""), *ttl, now);
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
