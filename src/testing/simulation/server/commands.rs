//! The commands that this library sends, and what else its scripts need.

use std::borrow::Cow;
use std::time::Duration;

use super::channels;
use super::resp::Answer;
use super::scripts::Call;
use super::session::{Session, Tracking};
use super::steps::{Ask, Said, StepKind};
use super::{MachineClock, State};
use crate::clock::Clock;
use crate::instance::redis::scripts::ScriptKind;
use crate::protocol::Instant;
use crate::resource::RESERVED;
use crate::testing::mirror::store::WrongType;

const OK: Answer = Answer::Simple("OK");

impl State {
    /// Carries out one command of a connection, and pushes what changed by it.
    pub(super) fn carry_out(&mut self, number: u64, words: &[&[u8]], clock: &MachineClock) {
        let wall_us = clock.wall_us();
        self.commands += 1;
        let count = self.commands;
        self.awaited.retain(|(at, told)| {
            if *at <= count {
                told.notify_one();
            }
            *at > count
        });
        self.store.expire(Instant::from_nanos(wall_us.saturating_mul(1_000)));
        self.tell_changes(None);
        let upper = [0, 1].map(|at| words.get(at).map_or(Cow::default(), |word| upper(word)));
        let names = upper.each_ref().map(Cow::as_ref);
        let names = names.get(..words.len()).unwrap_or(&names);
        let (carried_out, steps) = (self.requests, self.step_count());
        let answer = self.answer(number, names, words, wall_us).unwrap_or_else(|| {
            let what: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            self.odd_commands.push(what.join(" "));
            Answer::Error("ERR unknown command".to_owned())
        });
        if self.requests != carried_out && self.faults.loses_reply() {
            self.disconnect(number);
        }
        if let Some(session) = self.sessions.get_mut(&number) {
            session.answer(&answer);
            if let Some(tracking) = session.tracking.as_mut().filter(|_| names.first() != Some(&b"CLIENT".as_slice())) {
                tracking.caching = false;
            }
        }
        if self.step_count() > steps {
            let wall = Instant::from_nanos(wall_us.saturating_mul(1_000));
            self.place_steps(steps, number, (clock.true_time(), wall));
        }
        self.tell_changes(Some(number));
    }

    fn answer(&mut self, number: u64, names: &[&[u8]], words: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let session = self.sessions.get_mut(&number)?;
        if self.denies_tracking && matches!((names, words), ([b"CLIENT", _], [_, b"TRACKING", ..])) {
            return Some(Answer::Error(
                "NOPERM this user has no permissions to run the 'client|tracking' command".to_owned(),
            ));
        }
        Some(match (names, words) {
            ([b"EVALSHA", _], [_, hash, count, rest @ ..]) => return self.evalsha(hash, count, rest, wall_us),
            ([b"SCRIPT", b"LOAD"], [_, _, text]) => return self.load_script(text),
            ([b"GET", _], [_, key]) => self.read(number, key),
            ([b"MGET", ..], [_, keys @ ..]) => Answer::List(keys.iter().map(|key| self.read(number, key)).collect()),
            ([b"ZSCORE", ..], [_, key, member]) => match self.store.score(key, member) {
                Ok(score) => score.map_or(Answer::Nothing, |score| Answer::bytes(score.to_string())),
                Err(WrongType) => wrong_type(),
            },
            ([b"ZRANGE", ..], [_, key, ..]) if self.store.get(key).is_some() => wrong_type(),
            ([b"ZRANGE", ..], [_, key, b"0", last]) => {
                let last: usize = std::str::from_utf8(last).ok()?.parse().ok()?;
                let names = self.store.scores(key).into_iter().take(last.saturating_add(1));
                Answer::List(names.map(|(name, _)| Answer::bytes(name)).collect())
            }
            ([b"PTTL", _], [_, key]) => {
                let left = self.store.ttl(key, Instant::from_nanos(wall_us.saturating_mul(1_000)));
                let missing = if self.store.get(key).is_some() { -1 } else { -2 };
                Answer::Number(left.map_or(missing, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX)))
            }
            ([b"TIME"], _) => {
                let part = |number: u64| Answer::bytes(number.to_string());
                Answer::List(vec![part(wall_us / 1_000_000), part(wall_us % 1_000_000)])
            }
            ([b"PING"], _) => Answer::Simple("PONG"),
            ([b"HELLO", version @ ..], _) => {
                session.is_resp3 = version.first().map_or(session.is_resp3, |version| *version == b"3");
                self.process.hello(number, session.is_resp3)
            }
            ([b"INFO", _], [_, section]) => self.process.section(section),
            ([b"CLIENT", b"KILL"], [_, _, b"ID", other]) => {
                let other = std::str::from_utf8(other).ok()?.parse().ok()?;
                let was_there = self.sessions.contains_key(&other);
                self.disconnect(other);
                Answer::Number(was_there.into())
            }
            ([b"CLIENT", what], [_, _, options @ ..]) => return client(session, what, options),
            ([b"SUBSCRIBE", _], [_, channels @ ..]) => channels::change(session, true, channels),
            ([b"UNSUBSCRIBE", ..], [_, channels @ ..]) => channels::change(session, false, channels),
            ([b"PUBLISH", _], [_, channel, message]) => Answer::number(self.publish(channel, message)),
            _ => return self.plain(names, words, wall_us),
        })
    }

    /// GET, and an element of MGET; a connection that requested it gets pushes of changes of what it reads.
    fn read(&mut self, number: u64, key: &[u8]) -> Answer {
        let tracking = self.sessions.get(&number).and_then(|session| session.tracking);
        let is_told = tracking.is_some_and(|tracking| tracking.caching || !tracking.opt_in);
        if is_told {
            self.readers.entry(key.to_vec()).or_default().insert(number);
        }
        if self.is_watched() && !key.starts_with(RESERVED) {
            let (token, ttl) = (None, Duration::ZERO);
            let ask = Ask {
                kind: StepKind::Read,
                key,
                value: &[],
                token,
                ttl,
                resent: false,
                is_known: true,
                is_admitted: true,
            };
            let before = self.key_state(key);
            self.note_step(&ask, Said::Other, before);
        }
        self.store.get(key).map_or(Answer::Nothing, Answer::bytes)
    }

    fn load_script(&mut self, text: &[u8]) -> Option<Answer> {
        let (script, _) = ScriptKind::ALL.into_iter().find(|(_, known)| known.as_bytes() == text)?;
        self.scripts.insert(script.hash(), script);
        Some(Answer::bytes(script.hash()))
    }

    fn evalsha(&mut self, hash: &[u8], count: &[u8], rest: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let known = std::str::from_utf8(hash).ok().and_then(|hash| self.scripts.get(hash).copied());
        let Some(script) = known else { return Some(Answer::Error("NOSCRIPT No matching script".to_owned())) };
        if let Some(refused) = self.refuses_writes() {
            return Some(refused);
        }
        let count = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, args) = rest.split_at_checked(count)?;
        Call { keys, args, wall_us }.run(script, self)
    }
}

fn wrong_type() -> Answer {
    Answer::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
}

/// A word in capital letters: most are already, and the hash of a script is none that matters.
fn upper(word: &[u8]) -> Cow<'_, [u8]> {
    const LONGEST_NAME: usize = 16;
    let is_name = word.len() <= LONGEST_NAME && word.iter().any(u8::is_ascii_lowercase);
    if is_name { word.to_ascii_uppercase().into() } else { word.into() }
}

fn client(session: &mut Session, what: &[u8], options: &[&[u8]]) -> Option<Answer> {
    match (what, options) {
        (b"TRACKING", [b"ON", options @ ..]) => {
            let has = |name: &[u8]| options.contains(&name);
            session.tracking = Some(Tracking { opt_in: has(b"OPTIN"), no_loop: has(b"NOLOOP"), caching: false });
        }
        (b"CACHING", [b"YES"]) => session.tracking.as_mut()?.caching = true,
        (b"SETINFO", _) => {}
        _ => return None,
    }
    Some(OK)
}
