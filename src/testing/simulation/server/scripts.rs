//! Runs the scripts: reads the requests from `KEYS` and `ARGV`, has the mirror carry them out, and
//! answers as the script does.

use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::commands::integer;
use super::resp::Answer;
use super::steps::{KeyState, Said, Step, StepKind};
use crate::instance::redis::scripts::ScriptKind;
use crate::instance::{Claim, Request, Trace};
use crate::protocol::{
    Access, AdmissionRecord, AttachedRecord, Cause, FencingToken, Instant, ProcessIdentity, RecordOrigin, Reply, Value,
    WriterMark,
};
use crate::resource::{ADMISSION_KEY, Resource};
use crate::testing::mirror::bulk::{self, Admission};
use crate::testing::mirror::scripts::{quarantine_left, run};

/// Words of a command.
type Words<'a> = &'a [&'a [u8]];

/// One call of a script.
pub(super) struct Call<'a> {
    pub(super) keys: Words<'a>,
    pub(super) args: Words<'a>,
    /// The instance's wall clock in microseconds; while a script runs it stands still.
    pub(super) wall_us: u64,
}

/// Of a script that votes.
struct Terms {
    /// Whether it is carried out in quarantine, too.
    in_quarantine: bool,
    /// Whether the answer says how much of that is left.
    tells_left: bool,
}

impl Call<'_> {
    /// Carries it out; `None` if it is not called as the library does.
    pub(super) fn run(&self, script: ScriptKind, state: &mut State) -> Option<Answer> {
        match script {
            ScriptKind::Acquire => self.acquire(state),
            ScriptKind::Extend => self.extend(state),
            ScriptKind::Release => self.release(state),
            ScriptKind::Read => self.read(state),
            ScriptKind::WriteRecord => self.write_record(state),
            ScriptKind::ForgetTokens => self.forget_tokens(state),
            ScriptKind::Open => self.open(state),
        }
    }

    /// As `acquire.lua`.
    fn acquire(&self, state: &mut State) -> Option<Answer> {
        let claims = self.claims(self.args.get(2..)?, 4, |key, args| {
            let [value, token, ttl, mark] = args else { return None };
            let mark = (!mark.is_empty()).then(|| Arc::new(WriterMark::from_wire(mark)));
            Some(Claim { mark, ..claim(key, value, token, ttl)? })
        })?;
        self.vote(state, claims, Request::Acquire, Terms { in_quarantine: false, tells_left: false })
    }

    /// As `extend.lua`.
    fn extend(&self, state: &mut State) -> Option<Answer> {
        let request = if self.args.get(2)?.is_empty() { Request::Keep } else { Request::Extend };
        let claims = self.claims(self.args.get(3..)?, 3, |key, args| {
            let [value, token, ttl] = args else { return None };
            claim(key, value, token, ttl)
        })?;
        self.vote(state, claims, request, Terms { in_quarantine: true, tells_left: true })
    }

    /// As `release.lua`.
    fn release(&self, state: &mut State) -> Option<Answer> {
        let claims = self.claims(self.args, 3, |key, args| {
            let [value, token, resent] = args else { return None };
            Some(Claim { resent: !resent.is_empty(), ..claim(key, value, token, b"0")? })
        })?;
        let answer = |claim| self.answer(state, Request::Release(claim, None), None);
        Some(Answer::List(claims.into_iter().map(answer).collect()))
    }

    /// As `read.lua`.
    fn read(&self, state: &mut State) -> Option<Answer> {
        let claims = self.claims(self.args.get(3..)?, 2, |key, args| {
            let [value, ttl] = args else { return None };
            Some(Claim { access: Access::Read, ..claim(key, value, b"1", ttl)? })
        })?;
        let request = match *self.args.get(2)? {
            b"read" => Request::Acquire,
            b"renew" => Request::Extend,
            b"leave" => |claim| Request::Release(claim, None),
            _ => return None,
        };
        let in_quarantine = *self.args.get(2)? != b"read";
        self.vote(state, claims, request, Terms { in_quarantine, tells_left: true })
    }

    /// The request for each key, in so many words.
    fn claims(
        &self,
        args: Words<'_>,
        words: usize,
        claim: impl Fn(&[u8], Words<'_>) -> Option<Claim>,
    ) -> Option<Vec<Arc<Claim>>> {
        self.keys.iter().zip(args.chunks_exact(words)).map(|(key, args)| claim(key, args).map(Arc::new)).collect()
    }

    /// Carries all of them out. The answer is one for each, or one for all if the instance may not vote.
    fn vote(
        &self,
        state: &mut State,
        claims: Vec<Arc<Claim>>,
        request: fn(Arc<Claim>) -> Request,
        terms: Terms,
    ) -> Option<Answer> {
        let attached = self.attached()?;
        let left = quarantine_left(&state.store, attached.as_ref(), self.wall_us);
        let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)).map(Answer::number);
        let answers = claims.into_iter().map(|claim| self.answer(state, request(claim), attached.as_ref()));
        let answers: Vec<Answer> = answers.collect();
        if left.is_none_or(|left| !left.is_zero() && !terms.in_quarantine) {
            return Some(Answer::List(vec![Answer::bytes("not admitted"), left_ms.unwrap_or(Answer::Number(-1))]));
        }
        let head = [Answer::bytes("done"), Answer::number(self.wall_us)];
        Some(Answer::List(head.into_iter().chain(left_ms.filter(|_| terms.tells_left)).chain(answers).collect()))
    }

    /// As `write_record.lua`.
    fn write_record(&self, state: &mut State) -> Option<Answer> {
        let [found, process, longest_ttl, origin, vote_from, wait, order] = self.args else { return None };
        let new = Admission {
            found: found.to_vec(),
            identity: identity(process)?,
            longest_ttl_ms: integer(longest_ttl)?,
            origin: RecordOrigin::of_word(origin)?,
            vote_from_ms: integer(vote_from)?,
            wait_ms: if wait.is_empty() { None } else { Some(integer(wait)?) },
            order: integer(order)?,
        };
        let there = bulk::write_record(&mut state.store, &new, self.wall_us);
        let there = there.map_or(Answer::Nothing, Answer::Bytes);
        Some(Answer::List(vec![there, Answer::number(self.wall_us)]))
    }

    /// As `open.lua`.
    fn open(&self, state: &mut State) -> Option<Answer> {
        let [process, longest_ttl, channel, writes] = self.args else { return None };
        let State { store, sessions, process: own, .. } = state;
        let others = || {
            let mut channels = sessions.values().flat_map(|session| &session.channels);
            let listener = channels.find(|heard| heard.starts_with(b"redquorum:wake:") && heard != channel);
            let listener = listener.map(|heard| Trace::Listener(String::from_utf8_lossy(heard).into_owned()));
            listener.or_else(|| (own.flushes > 0).then_some(Trace::Flushed))
        };
        let first = (identity(process)?, integer(longest_ttl)?, *writes == b"write");
        let words = match bulk::open(store, first, others, self.wall_us) {
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
        let [retention, from] = self.args else { return None };
        let from = std::str::from_utf8(from).ok()?;
        let after: f64 = from.strip_prefix('(').unwrap_or(from).parse().ok()?;
        let next = bulk::forget_tokens(&mut state.store, millis(retention)?, |score| score > after, self.wall_us);
        Some(next.map_or(Answer::Nothing, |score| Answer::bytes(format!("({score}"))))
    }

    /// The record that the call names, if admission is on.
    fn attached(&self) -> Option<Option<AttachedRecord>> {
        let [record, _instant, ..] = self.args else { return None };
        if record.is_empty() {
            return Some(None);
        }
        Some(Some(AttachedRecord::new(AdmissionRecord::from_wire(record)?, false)))
    }

    /// What a script answers for one of its locks.
    fn answer(&self, state: &mut State, request: Request, attached: Option<&AttachedRecord>) -> Answer {
        state.requests.count(&request);
        if let (Request::Acquire(_), Some(stored)) = (&request, state.faults.claimed) {
            return answer_to(&Reply::Stale { stored });
        }
        state.store.expire(self.now());
        let (before, is_known) = (state.state_before(&request), state.knows(attached));
        let is_admitted = quarantine_left(&state.store, attached, self.wall_us) == Some(Duration::ZERO);
        let (reply, published) = run(&mut state.store, &request, attached, (self.now(), self.wall_us));
        if let Some((channel, message)) = published {
            state.publish(channel.as_bytes(), &message);
        }
        state.note_request(&request, &reply, (before, is_known, is_admitted));
        match (&request, &reply) {
            (Request::Release(..), Reply::Granted) => Answer::Number(1),
            (Request::Release(..), Reply::Refused(_)) => Answer::Number(0),
            _ => answer_to(&reply),
        }
    }

    /// The data's time is the wall clock's.
    const fn now(&self) -> Instant {
        Instant::from_nanos(self.wall_us.saturating_mul(1_000))
    }
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
            // As PTTL: a key that is not there, or one without an end.
            refusal.expires_in.as_ref().map_or(Answer::Number(if refusal.value.is_none() { -2 } else { -1 }), ms),
            some(refusal.value.as_deref()),
            some(refusal.token.map(FencingToken::to_wire).as_ref().map(String::as_bytes)),
        ]),
        Reply::Unknown(cause) | Reply::NotSent(cause) => Answer::Error(cause.to_string()),
    }
}

/// What is judged.
impl State {
    fn knows(&self, attached: Option<&AttachedRecord>) -> bool {
        let there = self.store.get(ADMISSION_KEY.as_bytes());
        attached.is_none_or(|attached| there == Some(attached.wire().as_bytes()))
    }

    /// Of its key, if a judge records it.
    fn state_before(&self, request: &Request) -> Option<KeyState> {
        self.is_watched().then(|| self.key_state(request.claim().resource.key()))
    }

    fn note_request(
        &mut self,
        request: &Request,
        reply: &Reply,
        (before, is_known, is_admitted): (Option<KeyState>, bool, bool),
    ) {
        let Some(before) = before else { return };
        let claim = request.claim();
        let reads = claim.access == Access::Read;
        let kind = match request {
            Request::Acquire(_) if reads => StepKind::ReaderComes,
            Request::Extend(_) | Request::Keep(_) if reads => StepKind::ReaderStays,
            Request::Release(..) if reads => StepKind::ReaderLeaves,
            Request::Acquire(_) => StepKind::Acquire,
            Request::Extend(_) => StepKind::Extend,
            Request::Keep(_) => StepKind::Keep,
            Request::Release(..) => StepKind::Release,
        };
        let said = match reply {
            Reply::Granted => Said::Yes,
            Reply::Repaired => Said::Repaired,
            Reply::Kept { .. } => Said::Kept,
            Reply::Refused(_) | Reply::Stale { .. } => Said::No,
            Reply::NotAdmitted { .. } => Said::NotAdmitted,
            Reply::Unknown(_) | Reply::NotSent(_) => Said::Other,
        };
        let stale = if let Reply::Stale { stored } = reply { Some(*stored) } else { None };
        let step = Step::new(kind, claim.resource.key(), claim.value.as_bytes(), said, before);
        let (token, ttl, resent) = (Some(claim.token), claim.ttl, claim.resent);
        self.note(Step { token, ttl, resent, is_known, is_admitted, stale, ..step });
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
