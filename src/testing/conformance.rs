//! What it takes to compare the scripts on a real server with their mirror in the process. For the
//! tests of this library; no part of its interface.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Parser, Pipeline, Value as Wire};
use uuid::Uuid;

use crate::instance::redis::batch::{self, Parts, take_batch};
use crate::instance::redis::link::Batch;
use crate::instance::redis::scripts::{self, RecordWrite};
use crate::instance::{Claim, Request};
use crate::protocol::{
    Access, AdmissionRecord, AttachedRecord, ClientId, FencingToken, Instant, ProcessIdentity, RawReply, Reply, Value,
    WriterMark,
};
use crate::resource::{Resource, TOKENS_KEY};
use crate::testing::mirror;

pub use crate::testing::mirror::bulk::{Admission, forget_tokens as forget_tokens_in, write_record};
pub use crate::testing::mirror::store::Store;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To set the key.
    Acquire,
    /// To keep it, and to set it where it is missing.
    Extend,
    /// To keep it where it is there.
    Keep,
    /// To delete it.
    Release,
    /// To read.
    Read,
    /// To continue reading.
    Renew,
    /// To read no more.
    Leave,
}

/// A request, before its names have keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// A request.
    pub kind: Kind,
    /// The resource.
    pub name: String,
    /// Who sends it; empty without a holder.
    pub holder: String,
    /// Makes values differ.
    pub nonce: u128,
    /// The proposed token.
    pub token: FencingToken,
    /// How long the keys live.
    pub ttl: Duration,
    /// When its writer began to wait, if it is marked as such where readers refuse it.
    pub waits_since: Option<u64>,
    /// Whether an extend was ever sent.
    pub resent: bool,
}

impl Ask {
    /// What it stores under its keys.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::new(&self.holder, Uuid::from_u128(self.nonce), "")
    }

    const fn access(&self) -> Access {
        match self.kind {
            Kind::Read | Kind::Renew | Kind::Leave => Access::Read,
            Kind::Acquire | Kind::Extend | Kind::Keep | Kind::Release => Access::Write,
        }
    }

    /// As a request for keys that begin with `namespace`; `None` for names that cannot be locked.
    fn request(&self, namespace: &str) -> Option<Request> {
        let resource = Resource::new(namespace.as_bytes(), self.name.as_bytes()).ok()?;
        let claim = Claim::new(resource, self.value(), self.token, self.ttl);
        let mark = self.waits_since.map(|since| Arc::new(WriterMark::new(since, ClientId::new([since as u8; 6]))));
        let claim = Arc::new(Claim { access: self.access(), mark, resent: self.resent, ..claim });
        Some(match self.kind {
            Kind::Acquire | Kind::Read => Request::Acquire(claim),
            Kind::Extend | Kind::Renew => Request::Extend(claim),
            Kind::Keep => Request::Keep(claim),
            Kind::Release | Kind::Leave => Request::Release(claim, None),
        })
    }
}

/// Loads the scripts.
#[must_use]
pub fn load() -> Pipeline {
    scripts::load().clone()
}

/// What is sent in one write.
#[derive(Debug)]
pub struct Write {
    asks: Vec<Ask>,
    requests: Vec<Request>,
    parts: Parts,
}

/// The writes in which a client sends the requests, in its order; acquires as plain commands if they may be so (P28). `None` for
/// names that cannot be locked.
#[must_use]
pub fn writes(namespace: &str, asks: &[Ask], is_plain: bool) -> Option<Vec<Write>> {
    let with_request = |ask: &Ask| Some((ask.clone(), ask.request(namespace)?));
    let mut waiting: VecDeque<(Ask, Request)> = asks.iter().map(with_request).collect::<Option<_>>()?;
    let mut writes = Vec::new();
    while !waiting.is_empty() {
        let (taken, parts) = take_batch(&mut waiting, usize::MAX, |(_, request)| request, |_| is_plain);
        let (asks, requests) = taken.into_iter().unzip();
        writes.push(Write { asks, requests, parts });
    }
    Some(writes)
}

impl Write {
    /// The requests, in the order in which they are carried out.
    #[must_use]
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// The commands, for an instance with this record.
    #[must_use]
    pub fn commands(&self, record: Option<&AdmissionRecord>) -> Pipeline {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
        let mut bytes = Vec::new();
        batch::write(&mut bytes, self.parts, &self.requests, attached.as_ref());
        read_commands(&bytes)
    }

    /// What the answers mean, one for each of [`asks`](Self::asks).
    #[must_use]
    pub fn replies(&self, record: Option<&AdmissionRecord>, answers: Vec<Wire>) -> Vec<RawReply> {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
        Batch::read_all(self.parts, self.requests.iter().collect(), attached, answers.iter().map(written))
    }
}

/// Commands as a server reads them.
fn read_commands(mut bytes: &[u8]) -> Pipeline {
    let (mut commands, mut parser) = (Pipeline::new(), Parser::new());
    while let Ok(Wire::Array(words)) = parser.parse_value(&mut bytes) {
        let mut command = Cmd::new();
        for word in words {
            if let Wire::BulkString(word) = word {
                command.arg(word);
            }
        }
        commands.add_command(command);
    }
    commands
}

/// The command that writes an admission record.
#[must_use]
pub fn admit(admission: &Admission) -> Cmd {
    let Admission { found, identity, longest_ttl_ms, origin, vote_from_ms, wait_ms, order, floor_us } =
        admission.clone();
    let write = RecordWrite { longest_ttl_ms, origin, vote_from_ms, wait_ms, order, floor_us };
    scripts::write_record(&found, &identity, write)
}

/// The command that forgets tokens that are older than `retention` by a clock that shows `wall_us`.
#[must_use]
pub fn forget_tokens(wall_us: u64, retention: Duration) -> Cmd {
    scripts::forget_tokens(wall_us, retention)
}

/// The commands that write the first record of an instance without any trace of use, or only look.
#[must_use]
pub fn open(identity: &ProcessIdentity, longest_ttl_ms: u64, writes: bool) -> Pipeline {
    scripts::open(identity, longest_ttl_ms, "redquorum:wake:me", writes)
}

/// The command that finds out which rights are missing.
#[must_use]
pub fn rights() -> Cmd {
    scripts::call_rights()
}

/// What is under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// A string, and how long it still lives; `None` for ever.
    Text(Vec<u8>, Option<Duration>),
    /// A sorted set: each member with its score, and how long it still lives; `None` for ever.
    Scores(Vec<(Vec<u8>, f64)>, Option<Duration>),
    /// Neither.
    OtherType,
}

impl Content {
    /// Of this key.
    #[must_use]
    pub fn of(store: &Store, key: &str, now: Instant) -> Self {
        let key = key.as_bytes();
        match store.get(key) {
            Some(text) => Self::Text(text.to_vec(), store.ttl(key, now)),
            None if !store.contains(key) => Self::Nothing,
            None if store.score(key, b"").is_ok() => Self::Scores(store.scores(key), store.ttl(key, now)),
            None => Self::OtherType,
        }
    }

    /// Of what is stored as the token of this lock.
    #[must_use]
    pub fn of_token(store: &Store, lock: &str) -> Self {
        match store.score(TOKENS_KEY.as_bytes(), lock.as_bytes()) {
            Ok(score) => score.map_or(Self::Nothing, |score| Self::Text(score.to_string().into_bytes(), None)),
            Err(_) => Self::OtherType,
        }
    }
}

/// What a server with this data answers when its wall clock reads `wall_us`; `None` for a name that cannot be locked.
pub fn run(store: &mut Store, ask: &Ask, record: Option<&AdmissionRecord>, now: (Instant, u64)) -> Option<Reply> {
    let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
    Some(mirror::scripts::run(store, &ask.request("")?, (attached.as_ref(), false), now).0)
}

/// Where servers keep the tokens of all locks.
pub const TOKENS: &str = TOKENS_KEY;

/// What the crate has read, as servers write it.
pub(crate) fn written(value: &Wire) -> Vec<u8> {
    let list = |kind: char, items: &[Wire]| {
        let items = items.iter().flat_map(written);
        format!("{kind}{}\r\n", items_len(kind, value)).into_bytes().into_iter().chain(items).collect()
    };
    match value {
        Wire::Nil => b"_\r\n".to_vec(),
        Wire::Okay => b"+OK\r\n".to_vec(),
        Wire::SimpleString(word) => format!("+{}\r\n", word.replace(['\r', '\n'], " ")).into_bytes(),
        Wire::Int(number) => format!(":{number}\r\n").into_bytes(),
        Wire::Double(number) => format!(",{number}\r\n").into_bytes(),
        Wire::Boolean(truth) => format!("#{}\r\n", if *truth { 't' } else { 'f' }).into_bytes(),
        Wire::BulkString(text) => [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat(),
        Wire::Array(items) => list('*', items),
        Wire::Set(items) => list('~', items),
        Wire::Map(pairs) => {
            let items: Vec<Wire> = pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            list('%', &items)
        }
        Wire::ServerError(error) => {
            format!("-{} {}\r\n", error.code(), error.details().unwrap_or_default()).into_bytes()
        }
        other => format!("+{other:?}\r\n").into_bytes(),
    }
}

fn items_len(kind: char, value: &Wire) -> usize {
    match value {
        Wire::Array(items) | Wire::Set(items) => items.len(),
        Wire::Map(pairs) if kind == '%' => pairs.len(),
        _ => 0,
    }
}
