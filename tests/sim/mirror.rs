//! The fake instance does what the in-process instance does, which `tests/conformance` compares with
//! real servers: so what the simulator shows is true of the scripts.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redquorum::protocol::{
    AdmissionRecord, AdmissionTerms, ClientId, FencingToken, Instant, Message, ProcessIdentity, RecordOrigin, Refusal,
    Reply, Value,
};
use redquorum::testing::conformance::{Admission, Ask, Content, GRACE, Kind, Mirror, channels, former_of, id_of};

use crate::admission::RecordWrite;
use crate::client::translate;
use crate::instance::{Answer, RESOURCES, Request, Script, Store, keys};
use crate::reservation::Successors;
use crate::rng::Rng;

const NAMES: [&str; RESOURCES] = ["a", "b", "c"];
const ADMISSION_KEY: &str = "redquorum:admission";
/// Who asks, by the nonce.
const HOLDERS: [&str; 6] = ["", "", "", "me", "me", "me"];
/// Steps of a sequence.
const STEPS: usize = 60;
/// Time passes in even milliseconds and durations are odd, so that nothing ends at the very instant at
/// which it is looked at: there the in-process instance counts in nanoseconds.
const DURATIONS_MS: [u64; 4] = [5, 21, 401, 90_001];

/// Both, with what they were told.
struct Pair {
    fake: Store,
    mirror: Mirror,
    rng: Rng,
    now_ms: u64,
    record: AdmissionRecord,
}

/// Carries random sequences out on both; gives what was answered how, or the first difference.
pub(crate) fn compare(sequences: u64) -> Result<Vec<String>, String> {
    let mut answers = BTreeSet::new();
    for seed in 0..sequences {
        let mut pair = Pair::new(seed);
        for step in 0..STEPS {
            let told = pair.step().map_err(|difference| format!("sequence {seed}, step {step}: {difference}"))?;
            answers.extend(told);
        }
    }
    Ok(answers.into_iter().collect())
}

impl Pair {
    fn new(seed: u64) -> Self {
        let now_ms = 1_750_000_000_000;
        let record = AdmissionRecord {
            identity: ProcessIdentity::new("run", "replication"),
            vote_from_ms: now_ms + 100,
            terms: AdmissionTerms::of_max_ttl(1_000),
            origin: RecordOrigin::Blank,
            order: now_ms,
            cluster: None,
        };
        let mut pair = Self { fake: Store::default(), mirror: Mirror::default(), rng: Rng::new(seed), now_ms, record };
        pair.set_record();
        pair
    }

    fn set_record(&mut self) {
        self.fake.record = Some(Arc::new(self.record.clone()));
        self.mirror.set(ADMISSION_KEY, &self.record.to_wire());
    }

    /// What was answered, in a word; `None` if nothing was asked.
    fn step(&mut self) -> Result<Option<String>, String> {
        self.now_ms += 2 * self.rng.pick(&[0, 0, 0, 1, 3, 11, 210]);
        if self.rng.percent(2) {
            self.fake.flush();
            self.mirror.flush();
            if self.rng.percent(70) {
                self.set_record();
            }
            return Ok(None);
        }
        if self.rng.percent(1) {
            self.fake.poison();
            let largest = FencingToken::propose(u64::MAX, None).to_score();
            NAMES.iter().for_each(|name| self.mirror.set_token(name, largest));
            return Ok(None);
        }
        if self.rng.percent(8) {
            return self.admit().map(Some);
        }
        let (request, ask) = self.ask();
        let other = AdmissionRecord { identity: ProcessIdentity::new("another", "process"), ..self.record.clone() };
        let known = match self.rng.below(10) {
            0 => Some(Arc::new(other)),
            1..4 => None,
            _ => Some(Arc::new(self.record.clone())),
        };
        let now_us = self.now_ms * 1000;
        let answer = match &request.successors {
            Some(successors) => self.fake.pass_on(now_us, &request, first_listener(successors)),
            None => self.fake.execute(now_us, (known.as_ref(), ask.quarantine_over), &request),
        };
        let now = Instant::from_millis(self.now_ms);
        let reply = self.mirror.run(&ask, known.as_deref(), now, now_us).ok_or("no names to lock")?;
        let complete = keys(request.keys).count();
        let expected = match answer {
            Answer::Released { deleted } if deleted < complete => Reply::Refused(Refusal::default()),
            _ => translate(&answer),
        };
        if expected != reply {
            return Err(format!("{request:?} was answered {expected:?}, and {reply:?} in the process"));
        }
        self.compare_contents(now).map_err(|difference| format!("after {request:?}: {difference}"))?;
        let word = format!("{answer:?}");
        let word = word.split([' ', '(']).next().unwrap_or_default();
        Ok(Some(format!("{:?} {word}", request.script)))
    }

    /// Somebody writes the record, over what it was or over something that is there no more (P15).
    fn admit(&mut self) -> Result<String, String> {
        let there = self.fake.record.clone();
        let found = if self.rng.percent(80) {
            there
        } else {
            self.rng.pick(&[None, Some(&self.record)]).cloned().map(Arc::new)
        };
        let note = RecordWrite {
            identity: self.record.identity.clone(),
            terms: AdmissionTerms { max_ttl_ms: 1, quarantine_ms: self.rng.pick(&[1, 101, 1_000]) },
            origin: self.rng.pick(&[RecordOrigin::Blank, RecordOrigin::Waits, RecordOrigin::Opened]),
            vote_from_ms: self.rng.pick(&[None, Some(0), Some(self.now_ms + 100), Some(self.now_ms + 60_000)]),
            order: self.rng.pick(&[0, self.now_ms + 1_000]),
            found,
        };
        let admission = Admission {
            found: note.found.as_ref().map(|record| record.to_wire().into_bytes()).unwrap_or_default(),
            identity: note.identity.clone(),
            terms: note.terms,
            vote_from_ms: note.vote_from_ms,
            origin: note.origin,
            order: note.order,
            cluster: None,
        };
        let (mut request, _) = self.ask();
        let Some(asked) = Rc::get_mut(&mut request) else { return Err("a request is shared".to_owned()) };
        (asked.script, asked.note) = (Script::Admit, Some(note));
        let answer = self.fake.execute(self.now_ms * 1000, (None, false), &request);
        let expected = self.mirror.admit(&admission, self.now_ms * 1000);
        let Answer::Record { record, .. } = answer else {
            return Err(format!("{admission:?} was answered {answer:?}"));
        };
        let record = record.map(|record| record.to_wire().into_bytes());
        if record != expected {
            return Err(format!("{admission:?} leaves {record:?}, and {expected:?} in the process"));
        }
        Ok("Admit AdmissionRecord".to_owned())
    }

    fn ask(&mut self) -> (Rc<Request>, Ask) {
        let (script, kind) = self.rng.pick(&[
            (Script::Acquire, Kind::Acquire),
            (Script::Acquire, Kind::Acquire),
            (Script::Extend, Kind::Extend),
            (Script::Release, Kind::Release),
            (Script::GiveBack, Kind::GiveBack),
            (Script::PassOn, Kind::PassOn),
        ]);
        let mask = u8::try_from(1 + self.rng.below((1 << RESOURCES) - 1)).unwrap_or(1);
        let nonce = self.rng.below(6);
        let holder = HOLDERS[usize::try_from(nonce).unwrap_or(0)];
        // Whoever has no identity has taken nothing over.
        let is_release = kind == Kind::GiveBack && holder.is_empty();
        let (script, kind) = if is_release { (Script::Release, Kind::Release) } else { (script, kind) };
        // Mostly the same token for the same value, so that requests belong together.
        let number = if self.rng.percent(80) { nonce } else { self.rng.below(6) };
        // So large that doubles lose the low digits (P13); some from a clock that is ahead (P12).
        let ahead_us = if self.rng.percent(5) { 25 * 3_600_000_000 } else { 0 };
        let token = FencingToken::propose(1_750_000_000_000_000 + ahead_us + number, None);
        let ttl_ms = self.rng.pick(&DURATIONS_MS);
        let resent = self.rng.percent(50);
        let value = Rc::new(Value::new(holder, id_of(nonce.into()), ""));
        let is_alone = mask.count_ones() == 1 && holder.is_empty();
        let script = if script == Script::PassOn && !is_alone { Script::Release } else { script };
        let successors = (script == Script::PassOn).then(|| Rc::new(successors_of(nonce.into())));
        let request = Request {
            script,
            keys: mask,
            value,
            token,
            ttl_ms,
            resent,
            note: None,
            successors,
            is_first: false,
            companion: None,
        };
        let ask = Ask {
            kind,
            names: keys(mask).map(|key| NAMES[key].to_owned()).collect(),
            holder: holder.to_owned(),
            nonce: u128::from(nonce),
            token,
            ttl: Duration::from_millis(ttl_ms),
            resent,
            quarantine_over: script == Script::Acquire && self.rng.percent(30),
        };
        (Rc::new(request), ask)
    }

    fn compare_contents(&mut self, now: Instant) -> Result<(), String> {
        for (key, name) in NAMES.iter().enumerate() {
            let text = |text: &[u8], until_ms: u64| {
                Content::Text(text.to_vec(), Some(Duration::from_millis(until_ms - self.now_ms)))
            };
            let lock = self.fake.lock(self.now_ms, key);
            let lock = lock.map_or(Content::Nothing, |lock| text(lock.value.as_bytes(), lock.until_ms));
            let fence = self.fake.fences[key];
            let fence = fence.map_or(Content::Nothing, |fence| Content::Text(fence.token.to_wire().into_bytes(), None));
            let found = self.mirror.token(name);
            if found != fence {
                return Err(format!("the token of {name:?} is {fence:?}, and {found:?} in the process"));
            }
            let formers = HOLDERS.iter().zip(0..).map(|(holder, nonce)| {
                let value = Value::new(holder, id_of(nonce), "");
                let former = self.fake.formers[key].iter().find(|(before, _)| **before == value);
                let former = former.map(|(_, lock)| lock).filter(|lock| self.now_ms <= lock.until_ms);
                (
                    former_of(name, &value),
                    former.map_or(Content::Nothing, |lock| text(lock.value.as_bytes(), lock.until_ms)),
                )
            });
            let formers: Vec<_> = formers.collect();
            for (key, expected) in [((*name).to_owned(), lock)].into_iter().chain(formers) {
                let found = self.mirror.content(&key, now);
                if found != expected {
                    return Err(format!("{key:?} holds {expected:?}, and {found:?} in the process"));
                }
            }
        }
        Ok(())
    }
}

/// Those that the mirror names as the successors of the client of this value.
fn successors_of(nonce: u128) -> Successors {
    let client = |after| ClientId::of_value(Value::new("", id_of(nonce + after), "").as_bytes());
    let clients = [1, 2].into_iter().filter_map(client).collect();
    let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
    Successors { clients, message: Message::Next { then: Vec::new(), key: Vec::new() }, grace_ms }
}

fn first_listener(successors: &Successors) -> Option<ClientId> {
    successors.clients.iter().copied().find(|client| channels().contains(&client.channel()))
}
