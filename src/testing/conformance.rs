//! What it takes to compare the scripts on a real server with their mirror in the process. For the
//! tests of this library; no part of its interface.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value as Wire};
use uuid::Uuid;

use crate::instance::redis::classify::{classify, classify_batch, classify_extend_many, classify_plain};
use crate::instance::redis::scripts::Scripts;
use crate::instance::redis::scripts::batch::{Leading, put_leading_first};
use crate::instance::redis::scripts::command::RecordWrite;
use crate::instance::redis::{classify_shared, plain_commands, shared_commands};
use crate::instance::{Claim, Request, Successors};
use crate::protocol::{
    AdmissionRecord, AdmissionTerms, AttachedRecord, ClientId, FencingToken, ProcessIdentity, RawReply, RecordOrigin,
    Value,
};
use crate::resource::{Resources, TOKENS_KEY};

mod mirror;

pub use mirror::{Content, Mirror};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To set the keys.
    Acquire,
    /// To keep them, and to set those that are missing.
    Extend,
    /// To delete them.
    Release,
    /// To keep them for one of the next two clients, where it can be asked so: for one resource.
    PassOn,
}

/// How many clients there are.
const CLIENTS: u128 = 6;

/// Those that listen, if the test has them do so.
const LISTENERS: [u128; 2] = [1, 2];

/// For how long a key is kept for a successor.
pub const GRACE: Duration = Duration::from_secs(40);

/// The id of the value with this nonce: one of a few clients.
#[must_use]
pub const fn id_of(nonce: u128) -> Uuid {
    Uuid::from_u128((nonce % CLIENTS) << 80 | nonce)
}

fn client_of(nonce: u128) -> Option<ClientId> {
    ClientId::of_value(Value::new("", id_of(nonce % CLIENTS), "").as_bytes())
}

/// The channels that somebody must listen to, for servers to do as the mirror.
#[must_use]
pub fn channels() -> Vec<String> {
    LISTENERS.into_iter().filter_map(client_of).map(ClientId::channel).collect()
}

/// What keeps a key for the client of the value with this nonce.
#[must_use]
pub fn reservation_of(nonce: u128) -> String {
    client_of(nonce).map(|client| String::from_utf8_lossy(&client.reservation()).into_owned()).unwrap_or_default()
}

/// A request, before its names have keys.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What is asked.
    pub kind: Kind,
    /// The resources.
    pub names: Vec<String>,
    /// Who asks; empty if nobody in particular.
    pub holder: String,
    /// Tells values apart.
    pub nonce: u128,
    /// The proposed token.
    pub token: FencingToken,
    /// How long the keys live.
    pub ttl: Duration,
    /// Whether an extend was ever sent.
    pub resent: bool,
    /// Whether the instance is known to be past its quarantine.
    pub quarantine_over: bool,
}

impl Ask {
    /// What it stores under its keys.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::new(&self.holder, id_of(self.nonce), "")
    }

    /// The resources in the order in which scripts see to them.
    #[must_use]
    pub fn sorted_names(&self) -> Vec<String> {
        let mut names = self.names.clone();
        names.sort_unstable();
        names
    }

    /// As a request for keys that begin with `namespace`; `None` for names that cannot be locked.
    fn request(&self, namespace: &str) -> Option<Request> {
        let claim = Arc::new(Claim {
            resources: Resources::new(namespace.as_bytes(), self.names.clone().into()).ok()?,
            value: self.value(),
            token: self.token,
            ttl: self.ttl,
            resent: self.resent,
            is_first: false,
        });
        Some(match self.kind {
            Kind::Acquire => Request::Acquire(claim),
            Kind::Extend => Request::Extend(claim),
            Kind::Release => Request::Release(claim),
            Kind::PassOn if self.names.len() == 1 => Request::PassOn(claim, self.successors()?),
            Kind::PassOn => Request::Release(claim),
        })
    }

    /// The clients after its own.
    fn successors(&self) -> Option<Arc<Successors>> {
        let clients: Option<Vec<ClientId>> = [1, 2].into_iter().map(|after| client_of(self.nonce + after)).collect();
        Some(Arc::new(Successors { clients: clients?, message: b"next".to_vec(), grace: GRACE }))
    }
}

/// An admission record that is to be written.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What must be there for it, empty for nothing.
    pub found: Vec<u8>,
    /// The process that it is for.
    pub identity: ProcessIdentity,
    /// What the process must sit out, and what is asked of it.
    pub terms: AdmissionTerms,
    /// From when on it may vote, if it follows what was found; `None` for a quarantine from now.
    pub vote_from_ms: Option<u64>,
    /// Why it is written.
    pub origin: RecordOrigin,
    /// Its order, or the least of it where a quarantine begins.
    pub order: u64,
}

/// One set of scripts.
#[derive(Clone, Copy)]
pub struct Dialect(&'static Scripts);

impl std::fmt::Debug for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dialect")
    }
}

impl Dialect {
    /// Those that are sent.
    #[must_use]
    pub fn shipped() -> Self {
        Self(Scripts::shipped())
    }

    /// Those without shortcuts for the usual cases.
    #[must_use]
    pub fn without_shortcuts() -> Self {
        Self(Scripts::without_shortcuts())
    }

    /// Loads the scripts.
    #[must_use]
    pub fn load(self) -> Pipeline {
        self.0.load().clone()
    }

    /// The command for one request.
    #[must_use]
    pub fn command(self, namespace: &str, ask: &Ask, record: Option<&AdmissionRecord>) -> Option<Cmd> {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), ask.quarantine_over));
        Some(self.0.command(&ask.request(namespace)?, attached.as_ref()))
    }

    /// The command for several requests, which are [in the order](in_batch_order) that it has for them.
    #[must_use]
    pub fn batch(self, namespace: &str, asks: &[Ask], record: Option<&AdmissionRecord>) -> Option<Cmd> {
        let requests: Option<Vec<Request>> = asks.iter().map(|ask| ask.request(namespace)).collect();
        let attached =
            record.map(|record| AttachedRecord::new(record.clone(), asks.iter().all(|ask| ask.quarantine_over)));
        let mut requests = requests?;
        let leading = put_leading_first(&mut requests, |request| request, |_| false);
        Some(self.0.batch(&requests.iter().collect::<Vec<_>>(), leading.releases, attached.as_ref()))
    }

    /// The command that writes an admission record.
    #[must_use]
    pub fn admit(self, admission: &Admission) -> Cmd {
        let Admission { found, identity, terms, vote_from_ms, origin, order } = admission.clone();
        let write = RecordWrite { vote_from_ms, terms, origin, order };
        self.0.write_record(&found, &identity, write)
    }

    /// The command that removes old tokens, after this score.
    #[must_use]
    pub fn forget_tokens(self, retention: Duration, after: Option<f64>) -> Cmd {
        let from = after.map_or_else(|| "-inf".to_owned(), |score| format!("({score}"));
        self.0.forget_tokens(retention, &from)
    }

    /// The command that renews leases with one resource each, for the longest of their ttls.
    #[must_use]
    pub fn extend_many(self, namespace: &str, leases: &[Ask], record: Option<&AdmissionRecord>) -> Option<Cmd> {
        let claims: Option<Vec<Arc<Claim>>> =
            leases.iter().map(|lease| Some(Arc::clone(lease.request(namespace)?.claim()))).collect();
        let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
        Some(self.0.extend_many(&claims?, attached.as_ref()))
    }
}

/// The order in which a batch carries out what is asked.
#[must_use]
pub fn in_batch_order(asks: Vec<Ask>) -> Option<Vec<Ask>> {
    let with_request = |ask: Ask| ask.request("").map(|request| (ask, request));
    let mut asks: Vec<(Ask, Request)> = asks.into_iter().map(with_request).collect::<Option<_>>()?;
    put_leading_first(&mut asks, |(_, request)| request, |_| false);
    Some(asks.into_iter().map(|(ask, _)| ask).collect())
}

/// What the answer to one request means.
#[must_use]
pub fn reply(ask: &Ask, answer: Result<Wire, RedisError>) -> Option<RawReply> {
    Some(classify(&ask.request("")?, answer))
}

/// The commands of a plain acquire (P28).
#[must_use]
pub fn plain_acquire(namespace: &str, ask: &Ask) -> Option<Pipeline> {
    Some(plain_commands(ask.request(namespace)?.claim()))
}

/// What the answers to a plain acquire mean, of an instance with this record whose clock shows about `wall_us`.
#[must_use]
pub fn plain_reply(
    ask: &Ask,
    record: &AdmissionRecord,
    wall_us: u64,
    answers: Result<Wire, RedisError>,
) -> Option<RawReply> {
    let attached = AttachedRecord::new(record.clone(), true);
    Some(classify_plain(ask.request("")?.claim(), &attached, wall_us, answers))
}

/// The commands of one write for asks that come [in this order](in_batch_order): so many releases and plain acquires
/// first (P28).
#[must_use]
pub fn shared_write(asks: &[Ask], first: [usize; 2], record: &AdmissionRecord) -> Option<Pipeline> {
    let requests: Vec<Request> = asks.iter().map(|ask| ask.request("")).collect::<Option<_>>()?;
    let attached = AttachedRecord::new(record.clone(), true);
    let requests: Vec<&Request> = requests.iter().collect();
    Some(shared_commands(Scripts::shipped(), leading(first), &requests, &attached))
}

/// What the answers to that mean.
#[must_use]
pub fn shared_replies(
    asks: &[Ask],
    first: [usize; 2],
    record: &AdmissionRecord,
    answers: Result<Wire, RedisError>,
) -> Option<Vec<RawReply>> {
    let requests: Vec<Request> = asks.iter().map(|ask| ask.request("")).collect::<Option<_>>()?;
    let attached = AttachedRecord::new(record.clone(), true);
    let requests: Vec<&Request> = requests.iter().collect();
    Some(classify_shared(leading(first), &requests, &attached, answers).replies)
}

const fn leading([releases, acquires]: [usize; 2]) -> Leading {
    Leading { releases, acquires }
}

/// What the answer to a batch means.
#[must_use]
pub fn replies(asks: &[Ask], answer: Result<Wire, RedisError>) -> Option<Vec<RawReply>> {
    let requests: Option<Vec<Request>> = asks.iter().map(|ask| ask.request("")).collect();
    Some(classify_batch(&requests?.iter().collect::<Vec<_>>(), answer))
}

/// What the answer to a renewal of `count` leases means: the reply to those that hold their value, and
/// the places, from 0, of the others.
#[must_use]
pub fn renewal(count: usize, answer: Result<Wire, RedisError>) -> (RawReply, Vec<usize>) {
    classify_extend_many(count, answer)
}

/// Where servers keep the tokens of all locks.
pub const TOKENS: &str = TOKENS_KEY;
