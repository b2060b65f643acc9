//! Runs the scripts: reads back from `KEYS` and `ARGV` what is asked, has the mirror carry it out, and
//! answers as the script does.

use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::resp::Answer;
use super::steps::{Ask, KeyState, Said, StepKind};
use crate::instance::redis::scripts::kinds::ScriptKind;
use crate::instance::{Claim, Request, Successors};
use crate::protocol::{
    AdmissionRecord, AdmissionTerms, AttachedRecord, Cause, ClientId, FencingToken, Instant, ProcessIdentity,
    RecordOrigin, Reply, Value,
};
use crate::resource::{ADMISSION_KEY, Resources, TOKENS_KEY};
use crate::testing::mirror::bulk::{self, NewRecord};
use crate::testing::mirror::scripts::{give_up, run};
use crate::testing::mirror::store::Store;

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
            ScriptKind::PassOn => self.pass_on(state),
            ScriptKind::Keep => self.keep(state),
            ScriptKind::Batch => self.batch(state),
            ScriptKind::ExtendMany => self.extend_many(state),
            ScriptKind::WriteRecord => self.write_record(state),
            ScriptKind::ForgetTokens => self.forget_tokens(state),
        }
    }

    fn acquire(&self, state: &mut State) -> Option<Answer> {
        let [_, instant, value, ttl, token] = self.args else { return None };
        let claim = claim(self.keys, value, token, ttl)?;
        let is_short = instant.is_empty() && self.keys.len() == 1;
        Some(self.answer_to(state, Request::Acquire(claim), self.attached()?.as_ref(), is_short))
    }

    fn extend(&self, state: &mut State) -> Option<Answer> {
        let [_, _, value, ttl, token] = self.args else { return None };
        let claim = claim(self.keys, value, token, ttl)?;
        Some(self.answer_to(state, Request::Extend(claim), self.attached()?.as_ref(), false))
    }

    /// What comes last says, by being there, that the acquire was sent more than once.
    fn release(&self, state: &mut State) -> Option<Answer> {
        let [value, token, ..] = self.args else { return None };
        let mut claim = Claim::clone(&*claim(self.keys, value, token, b"0")?);
        claim.resent = self.args.len() > 2;
        Some(self.answer_to(state, Request::Release(Arc::new(claim)), None, false))
    }

    fn pass_on(&self, state: &mut State) -> Option<Answer> {
        let [value, token, next, grace, message, ..] = self.args else { return None };
        let mut claim = Claim::clone(&*claim(self.keys, value, token, b"0")?);
        claim.resent = self.args.len() > 5;
        let request = Request::PassOn(Arc::new(claim), successors(next, grace, message)?);
        Some(self.answer_to(state, request, None, false))
    }

    fn keep(&self, state: &mut State) -> Option<Answer> {
        let ([key], [value, next, grace, message]) = (self.keys, self.args) else { return None };
        state.store.expire(self.now());
        let value = (!value.is_empty()).then_some(*value);
        let was_there = give_up(&mut state.store, key, value, &*successors(next, grace, message)?, self.now());
        Some(Answer::Number(was_there.into()))
    }

    /// As `batch.lua`.
    fn batch(&self, state: &mut State) -> Option<Answer> {
        let [_, _, first, usual_ttl, letters, rest @ ..] = self.args else { return None };
        let attached = self.attached()?;
        let (mut keys, mut rest, mut answers) = (self.keys, rest, Vec::new());
        for _ in 0..number(first)? {
            let [value, token, ..] = rest else { return None };
            let (now, later) = keys.split_at_checked(1)?;
            let claim = claim(now, value, token, b"0")?;
            answers.push(self.answer_to(state, Request::Release(claim), None, false));
            (keys, rest) = (later, rest.get(2..)?);
        }
        for letter in letters.iter() {
            let [value, token, ..] = rest else { return None };
            let (count, ttl, words) = match letter {
                b'a' => (1, *usual_ttl, 2),
                b'P' | b'Q' => (1, *rest.get(3)?, 7),
                _ => (number(rest.get(2)?)?, *rest.get(3)?, 4),
            };
            let (now, later) = keys.split_at_checked(usize::try_from(count).ok()?)?;
            let mut claim = Claim::clone(&*claim(now, value, token, ttl)?);
            claim.resent = matches!(letter, b'S' | b'Q');
            let request = match rest.get(4..7) {
                Some([next, grace, message]) if words == 7 => {
                    Request::PassOn(Arc::new(claim), successors(next, grace, message)?)
                }
                _ => request(*letter, Arc::new(claim))?,
            };
            answers.push(self.answer_to(state, request, attached.as_ref(), *letter == b'a'));
            (keys, rest) = (later, rest.get(words..)?);
        }
        Some(Answer::List(answers))
    }

    /// As `extend_many.lua`.
    fn extend_many(&self, state: &mut State) -> Option<Answer> {
        let [_, _, ttl, values @ ..] = self.args else { return None };
        let ttl = millis(ttl)?;
        state.requests.extend += self.keys.len();
        let attached = self.attached()?;
        let is_known = state.knows(attached.as_ref());
        let mut others = Vec::new();
        let mut refused = None;
        // One by one, or what is done for one lease would count for another that has ended and had the same key.
        for (at, (key, value)) in self.keys.iter().zip(values).enumerate() {
            let before = state.key_state(key);
            let lease = std::iter::once((*key, *value, ttl));
            let said = match bulk::extend_many(&mut state.store, lease, attached.as_ref(), (self.now(), self.wall_us)) {
                Ok(other) if other.is_empty() => Said::Yes,
                Ok(_) => {
                    others.push(Answer::number(at as u64 + 1));
                    Said::No
                }
                Err(reply) => {
                    refused = Some(reply);
                    Said::NotAdmitted
                }
            };
            let kind = StepKind::ExtendMany;
            let ask = Ask { kind, keys: (1, 0), key, value, token: None, ttl, resent: true, is_known };
            state.note_step(&ask, said, before);
        }
        Some(match refused {
            None => {
                let head = [Answer::bytes("renewed"), Answer::number(self.wall_us)];
                Answer::List(head.into_iter().chain(others).collect())
            }
            Some(refused) => self.told(&refused),
        })
    }

    /// As `write_record.lua`.
    fn write_record(&self, state: &mut State) -> Option<Answer> {
        let [found, identity, max_ttl, origin, vote_from, order, quarantine] = self.args else { return None };
        let (run_id, replication_id) = std::str::from_utf8(identity).ok()?.split_once('/')?;
        let new = NewRecord {
            found: found.to_vec(),
            identity: ProcessIdentity::new(run_id, replication_id),
            terms: AdmissionTerms { max_ttl_ms: number(max_ttl)?, quarantine_ms: number(quarantine)? },
            vote_from_ms: if vote_from.is_empty() { None } else { Some(number(vote_from)?) },
            origin: [RecordOrigin::Blank, RecordOrigin::Waits, RecordOrigin::Flushed, RecordOrigin::Opened]
                .into_iter()
                .find(|known| known.word().as_bytes() == *origin)?,
            order: number(order)?,
        };
        let there = bulk::write_record(&mut state.store, new, self.wall_us);
        let there = there.map_or(Answer::Nothing, Answer::Bytes);
        Some(Answer::List(vec![there, Answer::number(self.wall_us)]))
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
        let [record, instant, ..] = self.args else { return None };
        if record.is_empty() {
            return Some(None);
        }
        Some(Some(AttachedRecord::new(AdmissionRecord::from_wire(record)?, instant.is_empty())))
    }

    /// `is_short` where a usual grant is answered with the end of the lock alone.
    fn answer_to(
        &self,
        state: &mut State,
        request: Request,
        attached: Option<&AttachedRecord>,
        is_short: bool,
    ) -> Answer {
        state.requests.count(&request);
        if let (Request::Acquire(_), Some(stored)) = (&request, state.faults.claimed) {
            return self.told(&Reply::Stale { stored });
        }
        state.store.expire(self.now());
        let (before, is_known) = (state.states_before(&request), state.knows(attached));
        let store = &mut state.store;
        let is_usual = is_short && is_usual(store, request.claim());
        let claim = request.claim();
        let own =
            claim.resources.lock_keys().filter(|key| store.get(key) == Some(claim.value.as_bytes())).count() as u64;
        let reply = run(store, &request, attached, (self.now(), self.wall_us));
        state.note_steps(&request, &reply, (before, is_known));
        match (&request, &reply) {
            (request, Reply::Granted | Reply::Refused(_)) if request.is_release() => Answer::number(own),
            (_, Reply::Granted) if is_usual => {
                let ttl_ms = u64::try_from(request.claim().ttl.as_millis()).unwrap_or(u64::MAX);
                Answer::number(self.wall_us / 1_000 + ttl_ms)
            }
            _ => self.told(&reply),
        }
    }

    fn told(&self, reply: &Reply) -> Answer {
        let clock = Answer::number(self.wall_us);
        let ms = |time: &Duration| Answer::number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let some = |bytes: Option<&[u8]>| bytes.map_or(Answer::Nothing, Answer::bytes);
        Answer::List(match reply {
            Reply::Granted => vec![Answer::bytes("granted"), clock],
            Reply::Repaired => vec![Answer::bytes("repaired"), clock],
            Reply::NotAdmitted { remaining } => {
                vec![Answer::bytes("not admitted"), remaining.as_ref().map_or(Answer::Number(-1), ms)]
            }
            Reply::Stale { stored } => vec![Answer::bytes("stale"), Answer::bytes(stored.to_wire())],
            Reply::Unknown(Cause::ClockBehind { .. }) => vec![Answer::bytes("ahead"), clock],
            Reply::Refused(refusal) => vec![
                Answer::bytes("refused"),
                Answer::number(refusal.resource as u64),
                // As PTTL: a key that is not there, or one without an end.
                refusal.expires_in.as_ref().map_or(Answer::Number(if refusal.value.is_none() { -2 } else { -1 }), ms),
                some(refusal.value.as_deref()),
                some(refusal.token.map(FencingToken::to_wire).as_ref().map(String::as_bytes)),
            ],
            Reply::Unknown(cause) | Reply::NotSent(cause) => return Answer::Error(cause.to_string()),
        })
    }

    /// The data's time is the wall clock's.
    const fn now(&self) -> Instant {
        Instant::from_nanos(self.wall_us.saturating_mul(1_000))
    }
}

/// What is judged.
impl State {
    fn knows(&self, attached: Option<&AttachedRecord>) -> bool {
        let there = self.store.get(ADMISSION_KEY.as_bytes());
        attached.is_none_or(|attached| there == Some(attached.wire().as_bytes()))
    }

    fn states_before(&self, request: &Request) -> Vec<KeyState> {
        if !self.is_watched() {
            return Vec::new();
        }
        request.claim().resources.lock_keys().map(|key| self.key_state(key)).collect()
    }

    fn note_steps(&mut self, request: &Request, reply: &Reply, (before, is_known): (Vec<KeyState>, bool)) {
        let claim = request.claim();
        let kind = match request {
            Request::Acquire(_) => StepKind::Acquire,
            Request::Extend(_) => StepKind::Extend,
            Request::Release(_) => StepKind::Release,
            Request::PassOn(..) => StepKind::PassOn,
        };
        let said = match reply {
            Reply::Granted => Said::Yes,
            Reply::Repaired => Said::Repaired,
            Reply::Refused(_) | Reply::Stale { .. } => Said::No,
            Reply::NotAdmitted { .. } => Said::NotAdmitted,
            Reply::Unknown(_) | Reply::NotSent(_) => Said::Other,
        };
        let stale = if let Reply::Stale { stored } = reply { Some(*stored) } else { None };
        let (count, ttl, resent) = (claim.resources.len(), claim.ttl, claim.resent);
        let (value, token) = (claim.value.as_bytes(), Some(claim.token));
        for (index, (key, before)) in claim.resources.lock_keys().zip(before).enumerate() {
            let ask = Ask { kind, keys: (count, index), key, value, token, ttl, resent, is_known };
            self.note_answer(&ask, (said, stale), before);
        }
    }
}

/// As `acquire_one.lua`: a free key, and a token that is larger than whatever is stored.
fn is_usual(store: &Store, claim: &Claim) -> bool {
    let free = claim.resources.lock_keys().all(|key| !store.contains(key));
    let token = claim.token.to_score();
    let stored = |key| store.score(TOKENS_KEY.as_bytes(), key).unwrap_or_default();
    free && claim.resources.lock_keys().all(|key| stored(key).is_none_or(|stored| stored < token))
}

fn request(letter: u8, claim: Arc<Claim>) -> Option<Request> {
    Some(match letter {
        b'a' | b'A' => Request::Acquire(claim),
        b'E' => Request::Extend(claim),
        b'R' | b'S' => Request::Release(claim),
        _ => return None,
    })
}

fn successors(names: &[u8], grace: &[u8], message: &[u8]) -> Option<Arc<Successors>> {
    let clients: Option<Vec<ClientId>> = names.split(|byte| *byte == b' ').map(ClientId::from_wire).collect();
    let clients = if names.is_empty() { Vec::new() } else { clients? };
    Some(Arc::new(Successors { clients, message: message.to_vec(), grace: millis(grace)? }))
}

/// `keys` are the lock keys.
fn claim(keys: Words<'_>, value: &[u8], token: &[u8], ttl: &[u8]) -> Option<Arc<Claim>> {
    let resources = Resources::new(b"", keys.to_vec().into()).ok()?;
    resources.lock_keys().eq(keys.iter().copied()).then_some(())?;
    Some(Arc::new(Claim {
        resources,
        value: Value::from_wire(value),
        token: FencingToken::from_wire(token)?,
        ttl: millis(ttl)?,
        resent: false,
        is_first: false,
    }))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn millis(word: &[u8]) -> Option<Duration> {
    number(word).map(Duration::from_millis)
}
