//! What can be seen of an instance from outside.

use std::time::Duration;

use crate::protocol::Cause;

/// How an instance does, as one client sees it. Made by
/// [`Redlock::instances`](crate::Redlock::instances).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// The address without credentials.
    pub address: String,
    /// Whether requests can be sent to it now.
    pub connected: bool,
    /// Whether it is a master; `None` until it was asked.
    pub is_master: Option<bool>,
    /// The server and its version, as in `valkey 9.1.2`; empty until it was asked.
    pub version: String,
    /// The id of the server process; empty until it was asked. A restart changes it.
    pub run_id: String,
    /// Whether it may vote.
    pub admission: AdmissionStatus,
    /// Its clock minus this client's deciding clock, in seconds. Only changes are of interest: the
    /// deciding clock begins anywhere.
    pub clock_offset: Option<f64>,
    /// How many steps of its clock this client has seen in the life of this process.
    pub clock_steps: u32,
    /// How long the last sign of life took.
    pub round_trip: Option<Duration>,
    /// The eviction policy, if it is set to evict keys: it may throw locks away. Use `noeviction`.
    pub evicts: Option<String>,
    /// What it refuses for a reason of its own since it last voted: it may be connected and admitted,
    /// and still of no use (a full instance, one in cluster mode, a user who may not touch the keys).
    pub trouble: Option<Trouble>,
    /// What last went wrong, in words.
    pub last_error: Option<String>,
}

/// Why an instance that can be reached does not carry out requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What it said.
    pub cause: Cause,
    /// How long ago it last said so.
    pub age: Duration,
}

/// Whether an instance may vote: only one that cannot have forgotten locks does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionStatus {
    /// Not known, because it is not connected.
    #[default]
    Unknown,
    /// Admission is turned off.
    Off,
    /// It votes.
    Admitted,
    /// It may have forgotten locks and sits out for this long.
    Quarantine(Duration),
}
