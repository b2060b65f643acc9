//! What it takes to compare the scripts on a real server with their mirror in the process. For the
//! tests of this library; no part of its interface.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value as Wire};
use uuid::Uuid;

use crate::instance::redis::classify::{classify, classify_batch, classify_extend_many};
use crate::instance::redis::scripts::Scripts;
use crate::instance::redis::scripts::batch::releases_first;
use crate::instance::redis::scripts::command::RecordWrite;
use crate::instance::{Claim, Request, Successors};
use crate::protocol::{
    AdmissionRecord, AttachedRecord, ClientId, FencingToken, Instant, ProcessIdentity, RawReply, RecordOrigin, Reply,
    Value,
};
use crate::resource::{Resources, fence_key, former_key};
use crate::testing::mirror::bulk::{self, NewRecord};
use crate::testing::mirror::scripts::run;
use crate::testing::mirror::store::Store;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To set the keys.
    Acquire,
    /// To keep them, and to set those that are missing.
    Extend,
    /// To keep them under a larger token.
    Reenter,
    /// To delete them.
    Release,
    /// To undo a try: to delete them, or to put back what it took over.
    GiveBack,
    /// To keep them for one of the next two clients, where it can be asked so: for one resource without a holder.
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
    /// How long the fence keys live.
    pub retention: Duration,
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
            fence_retention: self.retention,
            resent: self.resent,
        });
        Some(match self.kind {
            Kind::Acquire => Request::Acquire(claim),
            Kind::Extend => Request::Extend(claim),
            Kind::Reenter => Request::Reenter(claim),
            Kind::Release => Request::Release(claim),
            Kind::GiveBack => Request::give_back(claim),
            Kind::PassOn if self.holder.is_empty() && self.names.len() == 1 => {
                Request::PassOn(claim, self.successors()?)
            }
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
    /// What the process must sit out.
    pub max_ttl: Duration,
    /// From when on it may vote, as far as that is known.
    pub vote_from_ms: Option<u64>,
    /// Why it is written.
    pub origin: RecordOrigin,
    /// The least order of it.
    pub least_order: u64,
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
    /// For servers that are compatible with this version of Redis.
    #[must_use]
    pub fn for_version(major: u32) -> Self {
        Self(Scripts::for_version(major))
    }

    /// As for the newest servers, but without shortcuts for the usual cases.
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
        let releases = releases_first(&mut requests, |request| request);
        Some(self.0.batch(&requests.iter().collect::<Vec<_>>(), releases, attached.as_ref()))
    }

    /// The command that writes an admission record.
    #[must_use]
    pub fn admit(self, admission: &Admission) -> Cmd {
        let Admission { found, identity, max_ttl, vote_from_ms, origin, least_order } = admission;
        self.0.write_record(
            found,
            identity,
            *max_ttl,
            RecordWrite { vote_from_ms: *vote_from_ms, origin: *origin, least_order: *least_order },
        )
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
    releases_first(&mut asks, |(_, request)| request);
    Some(asks.into_iter().map(|(ask, _)| ask).collect())
}

/// What the answer to one request means.
#[must_use]
pub fn reply(ask: &Ask, answer: Result<Wire, RedisError>) -> Option<RawReply> {
    Some(classify(&ask.request("")?, answer))
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

/// The data of an in-process instance, and the scripts as they are mirrored there. Every operation
/// takes the instant at which it is carried out.
#[derive(Debug)]
pub struct Mirror(Store);

impl Default for Mirror {
    fn default() -> Self {
        let mut store = Store::default();
        store.set_channels(channels().into_iter().map(String::into_bytes).collect());
        Self(store)
    }
}

/// What is under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// A string, and how long it still lives; `None` for ever.
    Text(Vec<u8>, Option<Duration>),
    /// No string.
    OtherType,
}

impl Mirror {
    /// Carries a request out when the instance's wall clock reads `wall_us`.
    pub fn run(&mut self, ask: &Ask, record: Option<&AdmissionRecord>, now: Instant, wall_us: u64) -> Option<Reply> {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), ask.quarantine_over));
        let reply = run(&mut self.0, &ask.request("")?, attached.as_ref(), (now, wall_us));
        let _ = self.0.take_published(); // to nobody in particular
        Some(reply)
    }

    /// What a renewal must be: the keys of each lease that holds its value live on, and nothing to the
    /// others, whose places are told.
    pub fn extend_many(
        &mut self,
        leases: &[Ask],
        record: Option<&AdmissionRecord>,
        now: Instant,
        wall_us: u64,
    ) -> Option<(Reply, Vec<usize>)> {
        let attached = record.map(|record| AttachedRecord::new(record.clone(), false));
        let requests: Option<Vec<Request>> = leases.iter().map(|lease| lease.request("")).collect();
        let requests = requests?;
        let leases = requests.iter().filter_map(|request| {
            let claim = request.claim();
            Some((claim.resources.lock_keys().next()?, claim.value.as_bytes(), claim.ttl))
        });
        Some(match bulk::extend_many(&mut self.0, leases, attached.as_ref(), (now, wall_us)) {
            Ok(others) => (Reply::Granted, others),
            Err(refused) => (refused, Vec::new()),
        })
    }

    /// As `write_record.lua`: what is under the record's key afterwards, or `no string`.
    pub fn admit(&mut self, admission: &Admission, wall_us: u64) -> Option<Vec<u8>> {
        let Admission { found, identity, max_ttl, vote_from_ms, origin, least_order } = admission.clone();
        let new = NewRecord { found, identity, max_ttl, vote_from_ms, origin, least_order };
        bulk::write_record(&mut self.0, new, wall_us)
    }

    /// SET NX PX.
    pub fn set_if_absent(&mut self, key: &str, value: &str, ttl: Duration, now: Instant) -> bool {
        self.0.expire(now);
        self.0.set_if_absent(key.as_bytes(), value.as_bytes(), Some(now.saturating_add(ttl)))
    }

    /// SET.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.set(key.as_bytes(), value.as_bytes(), None);
    }

    /// DEL and RPUSH.
    pub fn set_other_type(&mut self, key: &str) {
        self.0.set_other_type(key.as_bytes());
    }

    /// PEXPIRE.
    pub fn expire_in(&mut self, key: &str, ttl: Duration, now: Instant) {
        self.0.expire(now);
        self.0.expire_at(key.as_bytes(), now.saturating_add(ttl));
    }

    /// PERSIST: whether it had an end.
    pub fn persist(&mut self, key: &str, now: Instant) -> bool {
        self.0.expire(now);
        let had_end = self.0.ttl(key.as_bytes(), now).is_some();
        match self.0.get(key.as_bytes()).map(<[u8]>::to_vec) {
            _ if !had_end => {}
            Some(text) => self.0.set(key.as_bytes(), &text, None),
            None => self.0.set_other_type(key.as_bytes()),
        }
        had_end
    }

    /// DEL: whether it was there.
    pub fn remove(&mut self, key: &str, now: Instant) -> bool {
        self.0.expire(now);
        self.0.remove(key.as_bytes())
    }

    /// FLUSHALL.
    pub fn flush(&mut self) {
        self.0.flush();
    }

    /// What is under a key.
    pub fn content(&mut self, key: &str, now: Instant) -> Content {
        self.0.expire(now);
        match self.0.get(key.as_bytes()) {
            Some(text) => Content::Text(text.to_vec(), self.0.ttl(key.as_bytes(), now)),
            None if self.0.contains(key.as_bytes()) => Content::OtherType,
            None => Content::Nothing,
        }
    }
}

/// The fence key of the lock with this key.
#[must_use]
pub fn fence_of(key: &str) -> String {
    String::from_utf8_lossy(&fence_key(key.as_bytes())).into_owned()
}

/// Where what the same holder had under the lock's key stands while `value` is in its place.
#[must_use]
pub fn former_of(key: &str, value: &Value) -> String {
    String::from_utf8_lossy(&former_key(key.as_bytes(), value.as_bytes())).into_owned()
}
