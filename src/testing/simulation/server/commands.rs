//! The commands that this library sends, and what else its scripts need.

use std::borrow::Cow;
use std::time::Duration;

use super::resp::Answer;
use super::scripts::Call;
use super::session::{Session, Tracking};
use super::steps::{Said, Step, StepKind};
use super::{MachineClock, State};
use crate::clock::Clock;
use crate::instance::redis::scripts::ScriptKind;
use crate::protocol::{FencingToken, Instant};
use crate::resource::{RESERVED, TOKENS_KEY};
use crate::testing::mirror::store::WrongType;

const OK: Answer = Answer::Simple("OK");

impl State {
    /// Carries out one command of a connection, and pushes what changed by it.
    pub(super) fn carry_out(&mut self, number: u64, words: &[&[u8]], clock: &MachineClock) {
        let wall_us = clock.wall_us();
        self.commands += 1;
        let count = self.commands;
        self.awaited.retain(|(at, reached)| {
            if *at <= count {
                reached.notify_one();
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
                let names = self.store.scores(key).into_iter().take(integer(last)? as usize + 1);
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
                let other = integer(other)?;
                let was_there = self.sessions.contains_key(&other);
                self.disconnect(other);
                Answer::Number(was_there.into())
            }
            ([b"CLIENT", what], [_, _, options @ ..]) => return client(session, what, options),
            ([b"SUBSCRIBE", _], [_, channel]) => {
                session.channels.insert(channel.to_vec());
                let count = Answer::number(session.channels.len() as u64);
                Answer::Push(vec![Answer::bytes("subscribe"), Answer::bytes(channel), count])
            }
            ([b"PUBLISH", _], [_, channel, message]) => Answer::number(self.publish(channel, message)),
            _ => return self.plain(names, words, wall_us),
        })
    }

    /// GET, and an element of MGET; a connection that requested it gets pushes of changes of what it reads.
    fn read(&mut self, number: u64, key: &[u8]) -> Answer {
        let tracking = self.sessions.get(&number).and_then(|session| session.tracking);
        let is_tracked = tracking.is_some_and(|tracking| tracking.caching || !tracking.opt_in);
        if is_tracked {
            self.readers.entry(key.to_vec()).or_default().insert(number);
        }
        if self.is_watched() && !key.starts_with(RESERVED) {
            let step = Step::new(StepKind::Read, key, &[], Said::Other, self.key_state(key));
            self.note(step);
        }
        self.store.get(key).map_or(Answer::Nothing, Answer::bytes)
    }

    /// PUBLISH: to how many connections it was pushed, those that are subscribed now. It is not stored.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> u64 {
        let parts = || vec![Answer::bytes("message"), Answer::bytes(channel), Answer::bytes(message)];
        let mut reached = 0;
        for session in self.sessions.values_mut().filter(|session| session.channels.contains(channel)) {
            session.push(parts());
            reached += 1;
        }
        reached
    }

    /// Carries out a command of a plain acquire as it is sent by the library; `None` if it is none.
    fn plain(&mut self, names: &[&[u8]], words: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let answer = match (names, words) {
            ([b"SET", _], [_, key, value, b"NX", b"GET", b"PX", ttl]) => {
                self.requests.acquire += 1;
                self.set_if_absent(key, value, integer(ttl)?, wall_us)
            }
            ([b"ZADD", _], [_, key, b"GT", b"CH", tokens @ ..]) if *key == TOKENS_KEY.as_bytes() => {
                let tokens: Option<Vec<(&[u8], u64)>> = tokens.chunks(2).map(token).collect();
                self.raise(&tokens?)
            }
            // A name that is no lock's (`forget_tokens.rs`): it changes nothing here.
            ([b"ZADD", _], [_, key, b"0", _]) if *key == TOKENS_KEY.as_bytes() => Ok(Answer::Number(0)),
            ([b"GETRANGE", _], [_, key, b"0", last]) => self.beginning(key, integer(last)?),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|WrongType| wrong_type()))
    }

    /// Why it takes no writes, if so.
    pub(super) fn refuses_writes(&self) -> Option<Answer> {
        let readonly = "READONLY You can't write against a read only replica.";
        let refusal = if self.process.is_master { self.faults.refusal.clone() } else { Some(readonly.to_owned()) };
        refusal.map(Answer::Error)
    }

    /// What was there.
    fn set_if_absent(&mut self, key: &[u8], value: &[u8], ttl_ms: u64, wall_us: u64) -> Result<Answer, WrongType> {
        if let Some(refused) = self.refuses_writes() {
            return Ok(refused);
        }
        let now = Instant::from_nanos(wall_us.saturating_mul(1_000));
        let ttl = Duration::from_millis(ttl_ms);
        let before = self.key_state(key);
        let is_set = self.store.set_if_absent(key, value, Some(now.saturating_add(ttl)));
        let said = if is_set { Said::Yes } else { Said::No };
        self.note(Step { ttl, ..Step::new(StepKind::Set, key, value, said, before) });
        match self.store.get(key) {
            _ if is_set => Ok(Answer::Nothing),
            Some(there) => Ok(Answer::bytes(there)),
            None => Err(WrongType),
        }
    }

    fn beginning(&self, key: &[u8], last: u64) -> Result<Answer, WrongType> {
        match self.store.get(key) {
            Some(value) => Ok(Answer::bytes(value.iter().take(last as usize + 1).copied().collect::<Vec<u8>>())),
            None if self.store.contains(key) => Err(WrongType),
            None => Ok(Answer::bytes("")),
        }
    }

    /// How many of them are larger than what was stored.
    fn raise(&mut self, tokens: &[(&[u8], u64)]) -> Result<Answer, WrongType> {
        if let Some(refused) = self.refuses_writes() {
            return Ok(refused);
        }
        let mut raised = 0;
        for (member, token_us) in tokens {
            let token = FencingToken::from_wire(token_us.to_string().as_bytes()).map_or(0.0, FencingToken::to_score);
            let stored = self.store.score(TOKENS_KEY.as_bytes(), member)?;
            let (before, count) = (self.key_state(member), raised);
            if self.faults.claimed.is_none() && stored.is_none_or(|stored| stored < token) {
                self.store.set_score(TOKENS_KEY.as_bytes(), member, token)?;
                raised += 1;
            }
            let token = FencingToken::from_wire(token_us.to_string().as_bytes());
            let said = if raised > count { Said::Yes } else { Said::No };
            self.note(Step { token, ..Step::new(StepKind::Token, member, &[], said, before) });
        }
        Ok(Answer::Number(raised))
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
        let (keys, args) = rest.split_at_checked(integer(count)? as usize)?;
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

/// Whether another connection may be served before the next command of this one: behind what a plain acquire sets.
pub(super) fn may_be_interrupted(words: &[&[u8]]) -> bool {
    matches!(words, [b"SET", key, ..] if !key.starts_with(RESERVED))
}

/// A member of the tokens, and its score.
fn token<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], u64)> {
    let [score, member] = words else { return None };
    Some((member, integer(score)?))
}

pub(in crate::testing::simulation) fn integer(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use crate::testing::simulation::{MachineClock, Server};

    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is the true time here")]
    fn server() -> Server {
        Server::new(0, Arc::new(MachineClock::new(tokio::time::Instant::now(), 0, 0)))
    }

    fn connect(server: &Server) -> DuplexStream {
        let (ours, theirs) = duplex(4096);
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        ours
    }

    /// Sends words, and reads what comes back, which must be this.
    async fn ask(stream: &mut DuplexStream, words: &str, expected: &str) {
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let command = format!("*{}\r\n{}", words.len(), parts.collect::<String>());
        stream.write_all(command.as_bytes()).await.unwrap();
        hear(stream, expected).await;
    }

    async fn hear(stream: &mut DuplexStream, expected: &str) {
        let expected = expected.replace(' ', "\r\n");
        let mut came = vec![0; expected.len()];
        stream.read_exact(&mut came).await.unwrap();
        assert_eq!(String::from_utf8(came).unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_reaches_those_who_are_subscribed_to_its_channel_when_it_is_sent() {
        let server = server();
        let (mut hears, mut says) = (connect(&server), connect(&server));
        ask(&mut says, "PUBLISH a 1", ":0 ").await;
        ask(&mut hears, "HELLO 3", "%7 ").await;
        let mut rest = [0; 1024];
        let size = hears.read(&mut rest).await.unwrap();
        assert!(rest[..size].ends_with(b"modules\r\n*0\r\n"));
        ask(&mut hears, "SUBSCRIBE a", ">3 $9 subscribe $1 a :1 ").await;
        ask(&mut hears, "SUBSCRIBE b", ">3 $9 subscribe $1 b :2 ").await;
        ask(&mut says, "PUBLISH a 2", ":1 ").await;
        hear(&mut hears, ">3 $7 message $1 a $1 2 ").await;
        drop(hears);
        tokio::task::yield_now().await;
        ask(&mut says, "PUBLISH a 3", ":0 ").await;
        assert_eq!(server.odd_commands(), [""; 0]);
    }
}
