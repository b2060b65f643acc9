//! Runs the scripts: by an interpreter of their Lua, or else by their mirror, to which the requests are read from `KEYS` and `ARGV`, and
//! which answers as the script does. What was done with each key is noted for a judge.

use std::sync::Arc;
use std::time::Duration;

use super::commands::integer;
use super::resp::Answer;
use super::steps::{Said, Step, StepKind};
use super::{Denial, OUT_OF_MEMORY, State};
use crate::instance::redis::scripts::ScriptKind;
use crate::instance::{Claim, Request, Trace};
use crate::protocol::{
    Access, AdmissionRecord, AttachedRecord, Cause, FencingToken, Instant, ProcessIdentity, RecordOrigin, Reply, Value,
    WriterMark,
};
use crate::resource::{ADMISSION_KEY, Resource};
use crate::testing::mirror::bulk::{self, Admission};
use crate::testing::mirror::scripts::{floor, quarantine_left, run};

/// Words of a command.
type Words<'a> = &'a [&'a [u8]];

/// A script, as it is called.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// Of its text.
    pub hash: &'static str,
    /// In Lua.
    pub text: &'static str,
    /// Whether it finds out which rights are missing, and nothing else.
    pub is_about_rights: bool,
    /// `KEYS`
    pub keys: &'a [&'a [u8]],
    /// `ARGV`
    pub args: &'a [&'a [u8]],
}

/// What a script asks of its server while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Called<'a> {
    /// To carry out a command.
    Command(&'a [&'a [u8]]),
    /// To take note that it begins with the key at this index. The answer says nothing.
    Key(usize),
}

/// Runs a script. An error is an answer, too.
pub type Interpreter = fn(ScriptCall<'_>, &mut dyn FnMut(Called<'_>) -> Answer) -> Answer;

/// One call of a script.
pub(super) struct Call<'a> {
    pub(super) script: ScriptKind,
    pub(super) keys: Words<'a>,
    pub(super) args: Words<'a>,
    /// The instance's wall clock in microseconds; while a script runs it stands still.
    pub(super) wall_us: u64,
}

impl Call<'_> {
    /// Carries it out; `None` if it is not called as the library does.
    pub(super) fn run(&self, state: &mut State) -> Option<Answer> {
        let requests = self.requests()?;
        requests.iter().for_each(|request| state.requests.count(request));
        let attached = if self.votes() { self.attached()? } else { None };
        let mut noted = Noted::begin(state, &requests, attached.as_ref(), self.wall_us);
        let answer = if let Some(interpreter) = state.interpreter {
            let (hash, text, Self { keys, args, wall_us, .. }) = (self.script.hash(), self.script.text(), self);
            let mut called = |called: Called<'_>| match called {
                Called::Command(words) => state.call(words, *wall_us),
                Called::Key(index) => {
                    noted.begin_key(state, index);
                    Answer::Nothing
                }
            };
            let is_about_rights = self.script == ScriptKind::Rights;
            interpreter(ScriptCall { hash, text, is_about_rights, keys, args }, &mut called)
        } else {
            self.mirrored(state, &requests, attached.as_ref(), &mut noted)?
        };
        noted.end(state, &answer);
        Some(answer)
    }

    /// Whether it names the record that its client knows.
    fn votes(&self) -> bool {
        let leaves = self.args.get(2) == Some(&b"leave".as_slice());
        match self.script {
            ScriptKind::Acquire | ScriptKind::Extend => true,
            ScriptKind::Read => !leaves,
            _ => false,
        }
    }

    /// What is asked for each key, by a script for locks.
    fn requests(&self) -> Option<Vec<Request>> {
        match self.script {
            ScriptKind::Acquire => self.each(2, 4, Request::Acquire, |key, args| {
                let [value, token, ttl, mark] = args else { return None };
                let mark = (!mark.is_empty()).then(|| Arc::new(WriterMark::from_wire(mark)));
                Some(Claim { mark, ..claim(key, value, token, ttl)? })
            }),
            ScriptKind::Extend => {
                let request = if self.args.get(2)?.is_empty() { Request::Keep } else { Request::Extend };
                self.each(3, 3, request, |key, args| {
                    let [value, token, ttl] = args else { return None };
                    claim(key, value, token, ttl)
                })
            }
            ScriptKind::Release => self.each(
                0,
                3,
                |claim| Request::Release(claim, None),
                |key, args| {
                    let [value, token, resent] = args else { return None };
                    Some(Claim { resent: !resent.is_empty(), ..claim(key, value, token, b"0")? })
                },
            ),
            ScriptKind::Read => {
                let request = match *self.args.get(2)? {
                    b"read" => Request::Acquire,
                    b"renew" => Request::Extend,
                    b"leave" => |claim| Request::Release(claim, None),
                    _ => return None,
                };
                self.each(3, 2, request, |key, args| {
                    let [value, ttl] = args else { return None };
                    Some(Claim { access: Access::Read, ..claim(key, value, b"1", ttl)? })
                })
            }
            ScriptKind::WriteRecord | ScriptKind::ForgetTokens | ScriptKind::Rights | ScriptKind::Open => {
                Some(Vec::new())
            }
        }
    }

    /// The request for each key, in so many words behind the first.
    fn each(
        &self,
        first: usize,
        words: usize,
        request: fn(Arc<Claim>) -> Request,
        claim: impl Fn(&[u8], Words<'_>) -> Option<Claim>,
    ) -> Option<Vec<Request>> {
        let args = self.args.get(first..)?.chunks_exact(words);
        self.keys.iter().zip(args).map(|(key, args)| claim(key, args).map(Arc::new).map(request)).collect()
    }

    /// The record that the call names, if admission is on.
    fn attached(&self) -> Option<Option<AttachedRecord>> {
        let [record, _instant, ..] = self.args else { return None };
        if record.is_empty() {
            return Some(None);
        }
        Some(Some(AttachedRecord::new(AdmissionRecord::from_wire(record)?, false)))
    }
}

/// By the mirror.
impl Call<'_> {
    fn mirrored(
        &self,
        state: &mut State,
        requests: &[Request],
        attached: Option<&AttachedRecord>,
        noted: &mut Noted,
    ) -> Option<Answer> {
        match self.script {
            ScriptKind::WriteRecord => return self.write_record(state),
            ScriptKind::ForgetTokens => return self.forget_tokens(state),
            ScriptKind::Rights => return Some(rights(state.denial == Some(Denial::Memory))),
            ScriptKind::Open => return self.open(state),
            ScriptKind::Acquire | ScriptKind::Extend | ScriptKind::Release | ScriptKind::Read => {}
        }
        let left = quarantine_left(&state.store, attached, self.wall_us);
        let mut answers = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            noted.begin_key(state, index);
            answers.push(self.answer(state, request, attached));
        }
        if self.script == ScriptKind::Release {
            return Some(Answer::List(answers));
        }
        let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)).map(Answer::number);
        let in_quarantine = self.script != ScriptKind::Acquire && self.args.get(2) != Some(&b"read".as_slice());
        if left.is_none_or(|left| !left.is_zero() && !in_quarantine) {
            return Some(Answer::List(vec![Answer::bytes("not admitted"), left_ms.unwrap_or(Answer::Number(-1))]));
        }
        let head = [Answer::bytes("done"), Answer::number(self.wall_us)];
        let left_ms = left_ms.filter(|_| self.script != ScriptKind::Acquire);
        Some(Answer::List(head.into_iter().chain(left_ms).chain(answers).collect()))
    }

    /// What a script answers for one of its locks.
    fn answer(&self, state: &mut State, request: &Request, attached: Option<&AttachedRecord>) -> Answer {
        if let (Request::Acquire(_), Some(stored)) = (request, state.faults.claimed) {
            return answer_to(&Reply::Stale { stored });
        }
        let now = Instant::from_nanos(self.wall_us.saturating_mul(1_000)); // the data's time is the wall clock's
        let is_full = state.denial == Some(Denial::Memory);
        let (reply, published) = run(&mut state.store, request, (attached, is_full), (now, self.wall_us));
        if let Some((channel, message)) = published {
            state.publish(channel.as_bytes(), &message);
        }
        match (request, &reply) {
            (Request::Release(..), Reply::Granted) => Answer::Number(1),
            (Request::Release(..), Reply::Refused(_)) => Answer::Number(0),
            _ => answer_to(&reply),
        }
    }

    /// As `write_record.lua`.
    fn write_record(&self, state: &mut State) -> Option<Answer> {
        let [found, process, longest_ttl, origin, vote_from, wait, order, least, most] = self.args else { return None };
        let new = Admission {
            found: found.to_vec(),
            identity: identity(process)?,
            longest_ttl_ms: integer(longest_ttl)?,
            origin: RecordOrigin::of_word(origin)?,
            vote_from_ms: integer(vote_from)?,
            wait_ms: if wait.is_empty() { None } else { Some(integer(wait)?) },
            order: integer(order)?,
            floor_us: (integer(least)?, integer(most)?),
        };
        let there = bulk::write_record(&mut state.store, &new, self.wall_us);
        let there = there.map_or(Answer::Nothing, Answer::Bytes);
        Some(Answer::List(vec![there, Answer::number(self.wall_us)]))
    }

    /// As `open.lua`.
    fn open(&self, state: &mut State) -> Option<Answer> {
        let [process, longest_ttl, channel, writes, _] = self.args else { return None };
        let is_full = state.denial == Some(Denial::Memory);
        let State { store, sessions, process: own, .. } = state;
        let mut channels = sessions.values().flat_map(|session| &session.channels);
        let listener = channels.find(|heard| heard.starts_with(b"redquorum:wake:") && heard != channel);
        let listener = listener.map(|heard| Trace::Listener(String::from_utf8_lossy(heard).into_owned()));
        let others = (listener, (own.flushes > 0).then_some(Trace::Flushed));
        let writes = *writes == b"write";
        let first = (identity(process)?, integer(longest_ttl)?, writes && !is_full);
        let words = match bulk::open(store, first, others, self.wall_us) {
            Trace::Unused if writes && is_full => return Some(Answer::Error(OUT_OF_MEMORY.to_owned())),
            Trace::Unused => vec!["unused".to_owned()],
            Trace::Record(record) => vec!["record".to_owned(), record],
            Trace::Token(lock) => vec!["token".to_owned(), lock],
            Trace::Listener(channel) => vec!["listener".to_owned(), channel],
            Trace::Flushed => vec!["flushed".to_owned()],
        };
        Some(Answer::List(words.into_iter().map(Answer::bytes).collect()))
    }

    /// As `forget_tokens.lua`.
    fn forget_tokens(&self, state: &mut State) -> Option<Answer> {
        let [up_to, retention, _] = self.args else { return None };
        let up_to = std::str::from_utf8(up_to).ok()?.parse().ok()?;
        let (tokens, old) = bulk::forget_tokens(&mut state.store, up_to, integer(retention)?, self.wall_us);
        let floor = floor(&state.store, self.wall_us).map_or(0, |floor| floor.clock_us());
        let lag_ms = self.wall_us.saturating_sub(floor) / 1_000;
        Some(Answer::List([tokens as u64, old as u64, lag_ms].map(Answer::number).into()))
    }
}

/// As `rights.lua`: which commands fail, and why. Behind its PEXPIRE nothing is refused for memory.
fn rights(is_full: bool) -> Answer {
    let failed: &[&str] = if is_full { &["set", OUT_OF_MEMORY] } else { &[] };
    Answer::List(failed.iter().map(Answer::bytes).collect())
}

/// What is answered for a lock; for what is answered for all of them nothing.
fn answer_to(reply: &Reply) -> Answer {
    let ms = |time: &Duration| Answer::number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let some = |bytes: Option<&[u8]>| bytes.map_or(Answer::Nothing, Answer::bytes);
    match reply {
        Reply::Granted | Reply::Kept { .. } => Answer::Number(1),
        Reply::Repaired => Answer::Number(2),
        Reply::NotAdmitted { .. } => Answer::Nothing,
        Reply::Stale { stored } => Answer::List(vec![Answer::bytes("stale"), Answer::bytes(stored.to_wire())]),
        Reply::Unknown(Cause::ClockBehind { .. }) => Answer::bytes("ahead"),
        Reply::Refused(refusal) => Answer::List(vec![
            Answer::bytes("refused"),
            // As PTTL.
            match &refusal.expires_in {
                None => Answer::Number(-2),
                Some(Duration::MAX) => Answer::Number(-1),
                Some(left) => ms(left),
            },
            some(refusal.value.as_deref()),
            some(refusal.token.map(FencingToken::to_wire).as_ref().map(String::as_bytes)),
        ]),
        Reply::Unknown(Cause::OutOfMemory) => Answer::Error(OUT_OF_MEMORY.to_owned()),
        Reply::Unknown(cause) | Reply::NotSent(cause) => Answer::Error(cause.to_string()),
    }
}

/// The steps of a call, as far as they are known, if a judge records them.
struct Noted(Vec<(Step, bool)>);

impl Noted {
    fn begin(state: &State, requests: &[Request], attached: Option<&AttachedRecord>, wall_us: u64) -> Self {
        if !state.is_watched() {
            return Self(Vec::new());
        }
        let is_known = state.knows(attached);
        let is_admitted = quarantine_left(&state.store, attached, wall_us) == Some(Duration::ZERO);
        let step = |request: &Request| {
            let claim = request.claim();
            let (key, value) = (claim.resource.key(), claim.value.as_bytes());
            let step = Step::new(kind(request), key, value, Said::Other, state.key_state(key, value, wall_us));
            let (token, ttl, resent) = (Some(claim.token), claim.ttl, claim.resent);
            let wall = Duration::from_micros(wall_us);
            (Step { token, ttl, resent, is_known, is_admitted, wall, ..step }, false)
        };
        Self(requests.iter().map(step).collect())
    }

    /// Several readers of one key may be in one call: of each what is there before and after it is its own.
    fn begin_key(&mut self, state: &State, index: usize) {
        let Some((before, [(step, _), ..])) = self.0.split_at_mut_checked(index) else { return };
        let Some((last, is_over)) = before.iter_mut().rev().find(|(other, _)| other.key == step.key) else { return };
        let state = |step: &Step| state.key_state(&step.key, &step.value, micros(step.wall));
        (step.before, last.after, *is_over) = (state(step), state(last), true);
    }

    /// Notes what was answered.
    fn end(self, state: &mut State, answer: &Answer) {
        for (index, (step, is_over)) in self.0.into_iter().enumerate() {
            let (said, stale) = said(answer, &step, index);
            let after = if is_over { step.after } else { state.key_state(&step.key, &step.value, micros(step.wall)) };
            state.note(Step { said, stale, after, ..step });
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn kind(request: &Request) -> StepKind {
    match (request, request.claim().access) {
        (Request::Acquire(_), Access::Read) => StepKind::ReaderComes,
        (Request::Extend(_) | Request::Keep(_), Access::Read) => StepKind::ReaderStays,
        (Request::Release(..), Access::Read) => StepKind::ReaderLeaves,
        (Request::Acquire(_), Access::Write) => StepKind::Acquire,
        (Request::Extend(_), Access::Write) => StepKind::Extend,
        (Request::Keep(_), Access::Write) => StepKind::Keep,
        (Request::Release(..), Access::Write) => StepKind::Release,
    }
}

/// What a script has answered for its key at this index, and the stored token that it names.
fn said(answer: &Answer, step: &Step, index: usize) -> (Said, Option<FencingToken>) {
    let Answer::List(items) = answer else { return (Said::Other, None) };
    let behind = match step.kind {
        StepKind::Release => 0,
        StepKind::Acquire => 2,
        _ => 3,
    };
    let is = |item: Option<&Answer>, word: &str| matches!(item, Some(Answer::Bytes(bytes)) if bytes == word.as_bytes());
    if behind > 0 && is(items.first(), "not admitted") {
        return (Said::NotAdmitted, None);
    }
    let is_in_quarantine = behind == 3 && !matches!(items.get(2), Some(Answer::Number(0)));
    match items.get(behind + index) {
        Some(Answer::Number(1)) if is_in_quarantine => (Said::Kept, None),
        Some(Answer::Number(1)) => (Said::Yes, None),
        Some(Answer::Number(2)) => (Said::Repaired, None),
        Some(Answer::Number(_)) => (Said::No, None),
        Some(Answer::List(parts)) if is(parts.first(), "refused") => (Said::No, None),
        Some(Answer::List(parts)) if is(parts.first(), "stale") => match parts.get(1) {
            Some(Answer::Bytes(stored)) => (Said::No, FencingToken::from_wire(stored)),
            _ => (Said::No, None),
        },
        _ => (Said::Other, None),
    }
}

impl State {
    fn knows(&self, attached: Option<&AttachedRecord>) -> bool {
        let there = self.store.get(ADMISSION_KEY.as_bytes());
        attached.is_none_or(|attached| there == Some(attached.wire().as_bytes()))
    }
}

fn claim(key: &[u8], value: &[u8], token: &[u8], ttl: &[u8]) -> Option<Claim> {
    let (resource, token) = (Resource::new(b"", key).ok()?, FencingToken::from_wire(token)?);
    Some(Claim::new(resource, Value::from_wire(value), token, millis(ttl)?))
}

fn identity(process: &[u8]) -> Option<ProcessIdentity> {
    let (run_id, replication_id) = std::str::from_utf8(process).ok()?.split_once('/')?;
    Some(ProcessIdentity::new(run_id, replication_id))
}

fn millis(word: &[u8]) -> Option<Duration> {
    integer(word).map(Duration::from_millis)
}
