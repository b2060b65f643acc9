//! What instances answer to questions: about keys, about their records, and about themselves.

use std::time::Duration;

use super::cause::Cause;
use super::status::{ClockOffset, OtherList};
use crate::protocol::{self, AdmissionRecord, FencingToken, ProcessIdentity};

/// What an instance has in the place of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The lease's own value under every key.
    Own,
    /// A key is missing, or has this value.
    NotOwn(Option<Vec<u8>>),
    /// It could not be reached.
    Unknown,
}

/// What is stored for a lock; read in three steps, between which it may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredKey {
    /// The value under the lock's key; `None` if it is free.
    pub(crate) value: Option<Vec<u8>>,
    /// Of a lock that is read: its readers, and the marks of writers that wait, the first of them.
    pub(crate) readers: Vec<Vec<u8>>,
    /// How long the key will live; `None` for ever, or if it is free.
    pub(crate) expires_in: Option<Duration>,
    /// The last fencing token.
    pub(crate) token: Option<FencingToken>,
    /// The type of what is stored there, if it is neither a value nor readers.
    pub(crate) other_type: Option<String>,
}

/// That, or why it could not be read.
pub(crate) type Read = Result<StoredKey, protocol::Cause>;

/// The admission record of an instance as it was read.
#[derive(Clone, Debug)]
pub(crate) struct FoundRecord {
    /// What is stored; `None` if nothing is.
    pub(crate) stored: Option<Vec<u8>>,
    /// The process that runs.
    pub(crate) identity: ProcessIdentity,
    /// The instance's clock then, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

impl FoundRecord {
    /// The record, if it is one.
    pub(crate) fn record(&self) -> Option<AdmissionRecord> {
        AdmissionRecord::from_wire(self.stored.as_deref()?)
    }
}

/// What shows that an instance was used before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Nothing does.
    Unused,
    /// It has this record.
    Record(String),
    /// It has a fencing token, of this lock.
    Token(String),
    /// A client listens to this channel to be woken.
    Listener(String),
    /// It was flushed since it started.
    Flushed,
}

/// What an instance answered to [`Redlock::examine`](crate::Redlock::examine).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Examination {
    /// The address without credentials.
    pub address: String,
    /// What it is and how it does, or why it did not say so.
    pub answer: Result<ServerDetails, Cause>,
}

/// What a server is and how it does, for operators.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerDetails {
    /// The server and its version, as in `valkey 9.1.2`.
    pub version: String,
    /// Which server process it is (`run_id`): two addresses with the same one lead to one process.
    pub process: String,
    /// Whether it is a master.
    pub is_master: bool,
    /// How many replicas it has. They are of no use to locks, and a failover to one forgets some.
    pub replicas: u64,
    /// Whether it is part of a Redis Cluster.
    pub is_in_cluster_mode: bool,
    /// Whether it writes an append-only file.
    pub appends_to_file: bool,
    /// Whether it saves snapshots by itself; `None` without the right to `CONFIG GET`.
    pub saves_snapshots: Option<bool>,
    /// `maxmemory` in bytes, if it is set.
    pub memory_limit: Option<u64>,
    /// The memory that it uses, in bytes.
    pub memory_used: u64,
    /// `maxmemory-policy`.
    pub eviction_policy: String,
    /// How far its wall clock is from this machine's, right to about half of [`round_trip`](Self::round_trip).
    pub clock_offset: ClockOffset,
    /// The shortest of a few round trips that were measured now.
    pub round_trip: Duration,
    /// How many fencing tokens it keeps: of locks that were granted within a minute or so, tombstones included.
    pub tokens: u64,
    /// How far the largest token that it may have forgotten is behind its clock; `None` if there is none.
    pub floor_lag: Option<Duration>,
    /// Whether it pushes changes of keys to this client, so that a loss is known at once.
    pub pushes_changes: bool,
    /// Whether messages for waiters come over it, or would if this client waited for locks.
    pub wakes_waiters: bool,
    /// Why it would set no key now, by its answers to the commands of a lock, which change nothing here: it may be full, unable to write to
    /// its disk, without the replicas that it needs, paused (no answer within the instance timeout), or deny a right. `None` if it would.
    pub refuses_writes: Option<Cause>,
    /// Clients that use another list of instances, as far as they are connected now, wait by notification, and need a majority; `None`
    /// without the right to `PUBSUB NUMSUB`.
    pub other_lists: Option<Vec<OtherList>>,
}

/// What a scan of an instance found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundKeys {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Whether all keys were looked at, and not only as many as were to be.
    pub(crate) are_all: bool,
}
