//! The commands of a connection, and what those of scripts need besides data.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use super::data::{self, is_write, upper};
use super::resp::Answer;
use super::scripts::Call;
use super::session::{Session, Tracking};
use super::steps::{Said, Step, StepKind};
use super::{Denial, MachineClock, OUT_OF_MEMORY, State};
use crate::clock::Clock;
use crate::instance::redis::scripts::ScriptKind;
use crate::protocol::{FencingToken, Instant};
use crate::resource::{RESERVED, TOKENS_KEY};

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
        let answer = self.answer(number, names, words, wall_us).unwrap_or_else(|| self.not_understood(words));
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
        if let Some(denied) = names.first().and_then(|name| self.denies(name)) {
            return Some(denied);
        }
        let session = self.sessions.get_mut(&number)?;
        if self.denies_tracking && matches!((names, words), ([b"CLIENT", _], [_, b"TRACKING", ..])) {
            return Some(Answer::Error(
                "NOPERM this user has no permissions to run the 'client|tracking' command".to_owned(),
            ));
        }
        Some(match (names, words) {
            ([b"EVALSHA", _], [_, hash, count, rest @ ..]) => return self.evalsha(hash, count, rest, wall_us),
            ([b"SCRIPT", b"LOAD"], [_, _, text]) => return self.load_script(text),
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
            ([b"PUBSUB", b"NUMSUB"], [_, _, channels @ ..]) => self.subscribers(channels),
            ([b"PUBLISH", _], [_, channel, message]) => Answer::number(self.publish(channel, message)),
            _ => return self.on_data(number, words, wall_us),
        })
    }

    /// A command on data. What of it belongs to a plain acquire is noted.
    fn on_data(&mut self, number: u64, words: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let mut steps = Vec::new();
        match words {
            [b"GET" | b"MGET", keys @ ..] => keys.iter().for_each(|key| self.note_read(number, key, wall_us)),
            [b"SET", key, value, b"NX", b"GET", b"PX", ttl] => {
                self.requests.acquire += 1;
                let step = Step::new(StepKind::Set, key, value, Said::No, self.key_state(key, value, wall_us));
                steps.push(Step { ttl: Duration::from_millis(integer(ttl)?), ..step });
            }
            [b"ZADD", key, b"GT", b"CH", tokens @ ..] if *key == TOKENS_KEY.as_bytes() => {
                if self.faults.claimed.is_some() {
                    return Some(Answer::Number(0));
                }
                for pair in tokens.chunks_exact(2) {
                    let [score, lock] = pair else { continue };
                    let step = Step::new(StepKind::Token, lock, &[], Said::No, self.key_state(lock, &[], wall_us));
                    steps.push(Step { token: FencingToken::from_wire(score), ..step });
                }
            }
            _ => {}
        }
        let refusal = words.first().filter(|name| is_write(name)).and_then(|_| self.refuses_writes());
        if refusal.is_some() {
            return refusal;
        }
        let answer = data::carry_out(&mut self.store, words, wall_us)?;
        for step in steps {
            let after = self.key_state(&step.key, &step.value, wall_us);
            let is_done = match step.kind {
                StepKind::Token => step.before.token < step.token && after.token == step.token,
                _ => answer == Answer::Nothing,
            };
            let said = if is_done { Said::Yes } else { Said::No };
            self.note(Step { said, after, ..step });
        }
        Some(answer)
    }

    /// A connection that requested it gets pushes of changes of what it reads.
    fn note_read(&mut self, number: u64, key: &[u8], wall_us: u64) {
        let tracking = self.sessions.get(&number).and_then(|session| session.tracking);
        let is_tracked = tracking.is_some_and(|tracking| tracking.caching || !tracking.opt_in);
        if is_tracked {
            self.readers.entry(key.to_vec()).or_default().insert(number);
        }
        if self.is_watched() && !key.starts_with(RESERVED) {
            let there = self.key_state(key, &[], wall_us);
            self.note(Step { after: there.clone(), ..Step::new(StepKind::Read, key, &[], Said::Other, there) });
        }
    }

    /// A command that a script calls.
    pub(super) fn call(&mut self, words: &[&[u8]], wall_us: u64) -> Answer {
        let name = words.first().map(|name| upper(name)).unwrap_or_default();
        if let Some(denied) = self.denies(&name) {
            return denied;
        }
        if is_write(&name) {
            if let Some(refused) = self.refuses_writes() {
                return refused;
            }
            self.has_written = true;
        }
        let answer = match (&*name, words) {
            (b"PUBLISH", [_, channel, message]) => Some(Answer::number(self.publish(channel, message))),
            (b"PUBSUB", [_, b"CHANNELS", pattern]) => pattern.strip_suffix(b"*").map(|start| self.channels(start)),
            (b"INFO", [_, section]) => Some(self.process.section(section)),
            _ => data::carry_out(&mut self.store, words, wall_us),
        };
        answer.unwrap_or_else(|| self.not_understood(words))
    }

    /// Names the command for the test that looks.
    fn not_understood(&mut self, words: &[&[u8]]) -> Answer {
        let what: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        self.odd_commands.push(what.join(" "));
        Answer::Error("ERR unknown command".to_owned())
    }

    /// Those with this beginning that some connection is subscribed to.
    fn channels(&self, start: &[u8]) -> Answer {
        let channels = self.sessions.values().flat_map(|session| &session.channels);
        let channels: BTreeSet<_> = channels.filter(|channel| channel.starts_with(start)).collect();
        Answer::List(channels.into_iter().map(Answer::bytes).collect())
    }

    /// How many connections are subscribed to each.
    fn subscribers(&self, channels: &[&[u8]]) -> Answer {
        let count =
            |channel: &[u8]| self.sessions.values().filter(|session| session.channels.contains(channel)).count();
        Answer::List(channels.iter().flat_map(|it| [Answer::bytes(it), Answer::number(count(it) as u64)]).collect())
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

    /// Why it takes no writes, if so.
    pub(super) fn refuses_writes(&self) -> Option<Answer> {
        let readonly = "READONLY You can't write against a read only replica.";
        let refusal = if self.process.is_master { self.faults.refusal.clone() } else { Some(readonly.to_owned()) };
        refusal.map(Answer::Error)
    }

    /// Why it does not carry out a command with this name, if it is denied.
    fn denies(&self, name: &[u8]) -> Option<Answer> {
        let words = match self.denial? {
            Denial::Memory if !self.has_written && matches!(name, b"SET" | b"ZADD") => OUT_OF_MEMORY.to_owned(),
            Denial::Right(denied) if denied.as_bytes() == name => {
                format!("NOPERM this user has no permissions to run the '{}' command", denied.to_ascii_lowercase())
            }
            _ => return None,
        };
        Some(Answer::Error(words))
    }

    fn load_script(&mut self, text: &[u8]) -> Option<Answer> {
        let script = ScriptKind::ALL.into_iter().find(|known| known.text().as_bytes() == text)?;
        self.scripts.insert(script.hash(), script);
        Some(Answer::bytes(script.hash()))
    }

    fn evalsha(&mut self, hash: &[u8], count: &[u8], rest: &[&[u8]], wall_us: u64) -> Option<Answer> {
        let known = std::str::from_utf8(hash).ok().and_then(|hash| self.scripts.get(hash).copied());
        let Some(script) = known else { return Some(Answer::Error("NOSCRIPT No matching script".to_owned())) };
        if self.interpreter.is_none()
            && let Some(refused) = self.refuses_writes()
        {
            return Some(refused);
        }
        let (keys, args) = rest.split_at_checked(integer(count)? as usize)?;
        let answer = Call { script, keys, args, wall_us }.run(self);
        self.has_written = false;
        answer
    }
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
