//! What an instance says of itself when it is asked, beyond what a client needs.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::cause::Cause;
use super::status::ClockOffset;
use crate::protocol;

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
    /// Whether it saves snapshots by itself; `None` if the user may not ask (`CONFIG GET`).
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
    /// Whether it pushes changes of keys to this client, so that a loss is known at once.
    pub pushes_changes: bool,
    /// Whether messages for those who wait come over it.
    pub wakes_waiters: bool,
}

/// The answer of an instance, by its own deadline.
pub(crate) type ExamineFuture = Pin<Box<dyn Future<Output = Result<ServerDetails, protocol::Cause>> + Send>>;

/// What a scan of an instance found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundKeys {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Whether all keys were looked at, and not only as many as were to be.
    pub(crate) are_all: bool,
}

/// The keys of an instance that match.
pub(crate) type ScanFuture = Pin<Box<dyn Future<Output = Result<FoundKeys, protocol::Cause>> + Send>>;
