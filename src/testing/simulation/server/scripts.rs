//! Runs the scripts: reads the requests from `KEYS` and `ARGV`, has the mirror carry them out, and
//! answers as the script does.

use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::resp::Answer;
use super::steps::{Ask, KeyState, Said, StepKind};
use crate::instance::redis::scripts::ScriptKind;
use crate::instance::{Claim, Request, Trace};
use crate::protocol::{
    Access, AdmissionRecord, AttachedRecord, Cause, FencingToken, Instant, ProcessIdentity, RecordOrigin, Reply, Value,
    WriterMark,
};
use crate::resource::{ADMISSION_KEY, Resource};
use crate::testing::mirror::bulk::{self, NewRecord};
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
        let attached = self.attached()?;
        let of_key = |(key, args): (&&[u8], &[&[u8]])| {
            let [value, token, ttl, mark] = args else { return None };
            let mut claim = Claim::clone(&*claim(key, value, token, ttl)?);
            claim.mark = (!mark.is_empty()).then(|| Arc::new(WriterMark::from_wire(mark)));
            Some(Arc::new(claim))
        };
        let claims = self.keys.iter().zip(self.args.get(2..)?.chunks_exact(4)).map(of_key);
        let claims: Vec<Arc<Claim>> = claims.collect::<Option<_>>()?;
        if let Some(left) = self.not_admitted(state, attached.as_ref(), &claims, Request::Acquire) {
            return Some(left);
        }
        let answers = claims.into_iter().map(|claim| self.answer(state, Request::Acquire(claim), attached.as_ref()));
        let answers: Vec<Answer> = answers.collect();
        Some(Answer::List([Answer::bytes("done"), Answer::number(self.wall_us)].into_iter().chain(answers).collect()))
    }

    /// As `extend.lua`.
    fn extend(&self, state: &mut State) -> Option<Answer> {
        let attached = self.attached()?;
        let (repairs, claims) = (!self.args.get(2)?.is_empty(), self.claims(self.args.get(3..)?)?);
        let request = if repairs { Request::Extend } else { Request::Keep };
        let left = quarantine_left(&state.store, attached.as_ref(), self.wall_us);
        let Some(left) = left else {
            return self.not_admitted(state, attached.as_ref(), &claims, request);
        };
        let left_ms = u64::try_from(left.as_millis()).ok()?;
        let answers = claims.into_iter().map(|claim| self.answer(state, request(claim), attached.as_ref()));
        let answers: Vec<Answer> = answers.collect();
        let head = [Answer::bytes("done"), Answer::number(self.wall_us), Answer::number(left_ms)];
        Some(Answer::List(head.into_iter().chain(answers).collect()))
    }

    /// As `release.lua`.
    fn release(&self, state: &mut State) -> Option<Answer> {
        let args = self.args.chunks_exact(3);
        let claims = self.keys.iter().zip(args).map(|(key, args)| {
            let [value, token, resent] = args else { return None };
            let mut claim = Claim::clone(&*claim(key, value, token, b"0")?);
            claim.resent = !resent.is_empty();
            Some(Arc::new(claim))
        });
        let claims: Vec<Arc<Claim>> = claims.collect::<Option<_>>()?;
        let answer = |claim| self.answer(state, Request::Release(claim, None), None);
        Some(Answer::List(claims.into_iter().map(answer).collect()))
    }

    /// As `read.lua`.
    fn read(&self, state: &mut State) -> Option<Answer> {
        let attached = self.attached()?;
        let of_key = |(key, args): (&&[u8], &[&[u8]])| {
            let [value, ttl] = args else { return None };
            let mut claim = Claim::clone(&*claim(key, value, b"1", ttl)?);
            claim.access = Access::Read;
            Some(Arc::new(claim))
        };
        let claims = self.keys.iter().zip(self.args.get(3..)?.chunks_exact(2)).map(of_key);
        let claims: Vec<Arc<Claim>> = claims.collect::<Option<_>>()?;
        let left = quarantine_left(&state.store, attached.as_ref(), self.wall_us);
        let request = match *self.args.get(2)? {
            b"read" => Request::Acquire,
            b"renew" => Request::Extend,
            b"leave" => |claim| Request::Release(claim, None),
            _ => return None,
        };
        let is_asked = *self.args.get(2)? == b"read";
        let Some(left) = left.filter(|left| !is_asked || left.is_zero()) else {
            return self.not_admitted(state, attached.as_ref(), &claims, request);
        };
        let left_ms = u64::try_from(left.as_millis()).ok()?;
        let answers = claims.into_iter().map(|claim| self.answer(state, request(claim), attached.as_ref()));
        let answers: Vec<Answer> = answers.collect();
        let head = [Answer::bytes("done"), Answer::number(self.wall_us), Answer::number(left_ms)];
        Some(Answer::List(head.into_iter().chain(answers).collect()))
    }

    /// The request for each key, in three words.
    fn claims(&self, args: Words<'_>) -> Option<Vec<Arc<Claim>>> {
        let of_key = |(key, args): (&&[u8], &[&[u8]])| match args {
            [value, token, ttl] => claim(key, value, token, ttl),
            _ => None,
        };
        self.keys.iter().zip(args.chunks_exact(3)).map(of_key).collect()
    }

    /// The answer to all of them if the instance may not vote.
    fn not_admitted(
        &self,
        state: &mut State,
        attached: Option<&AttachedRecord>,
        claims: &[Arc<Claim>],
        request: fn(Arc<Claim>) -> Request,
    ) -> Option<Answer> {
        let left = quarantine_left(&state.store, attached, self.wall_us);
        if left == Some(Duration::ZERO) {
            return None;
        }
        for claim in claims {
            drop(self.answer(state, request(Arc::clone(claim)), attached));
        }
        let left =
            left.map_or(Answer::Number(-1), |left| Answer::number(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        Some(Answer::List(vec![Answer::bytes("not admitted"), left]))
    }

    /// As `write_record.lua`.
    fn write_record(&self, state: &mut State) -> Option<Answer> {
        let [found, process, longest_ttl, origin, vote_from, wait, order] = self.args else { return None };
        let new = NewRecord {
            found: found.to_vec(),
            identity: identity(process)?,
            longest_ttl_ms: number(longest_ttl)?,
            origin: RecordOrigin::of_word(origin)?,
            vote_from_ms: number(vote_from)?,
            wait_ms: if wait.is_empty() { None } else { Some(number(wait)?) },
            order: number(order)?,
        };
        let there = bulk::write_record(&mut state.store, new, self.wall_us);
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
        let first = (identity(process)?, number(longest_ttl)?, *writes == b"write");
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
            return told(&Reply::Stale { stored });
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
            _ => told(&reply),
        }
    }

    /// The data's time is the wall clock's.
    const fn now(&self) -> Instant {
        Instant::from_nanos(self.wall_us.saturating_mul(1_000))
    }
}

/// What is answered for a lock; for what is answered for all of them nothing.
fn told(reply: &Reply) -> Answer {
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
        let (key, ttl, resent) = (claim.resource.key(), claim.ttl, claim.resent);
        let (value, token) = (claim.value.as_bytes(), Some(claim.token));
        self.note_answer(&Ask { kind, key, value, token, ttl, resent, is_known, is_admitted }, (said, stale), before);
    }
}

fn claim(key: &[u8], value: &[u8], token: &[u8], ttl: &[u8]) -> Option<Arc<Claim>> {
    let (resource, token) = (Resource::new(b"", key).ok()?, FencingToken::from_wire(token)?);
    Some(Arc::new(Claim::new(resource, Value::from_wire(value), token, millis(ttl)?)))
}

fn identity(process: &[u8]) -> Option<ProcessIdentity> {
    let (run_id, replication_id) = std::str::from_utf8(process).ok()?.split_once('/')?;
    Some(ProcessIdentity::new(run_id, replication_id))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn millis(word: &[u8]) -> Option<Duration> {
    number(word).map(Duration::from_millis)
}
