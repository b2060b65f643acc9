//! What can be seen of an instance from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{Cause, NotUsable};

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
    /// How long ago it was flushed, if that is what its last quarantine was for. A flush of any of its databases is a quarantine.
    pub flushed_ago: Option<Duration>,
    /// The longest ttl that its record allows; `None` if it has none to go by.
    pub max_ttl: Option<Duration>,
    /// Why it gives this client no votes, if that is for the client's settings. It is up all the same, and may well vote for
    /// others.
    pub refusal: Option<NotUsable>,
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
    /// What was sent to it, and what became of that.
    pub counts: InstanceCounts,
}

/// What a client has sent to an instance since the client was built, and what became of it. The numbers only rise.
///
/// ```no_run
/// # fn f(redlock: &redquorum::Redlock) {
/// for instance in redlock.instances() {
///     let counts = &instance.counts;
///     println!("{}: {} late of {}", instance.address, counts.of("timed_out"), counts.requests);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceCounts {
    /// How often it was connected.
    pub connections: u64,
    /// Commands with requests that were sent. Under load several requests share one.
    pub commands: u64,
    /// The requests in them.
    pub requests: u64,
    /// How requests have ended, those that were not sent too, by the names that `docs/operations.md` explains.
    pub replies: BTreeMap<&'static str, u64>,
}

impl InstanceCounts {
    /// How many requests have ended like this; zero for a name that there is not.
    #[must_use]
    pub fn of(&self, reply: &str) -> u64 {
        self.replies.get(reply).copied().unwrap_or(0)
    }
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
    /// It has no record to go by, as when it is new, or after a restart. The first client that wants a lock writes one, and from then on
    /// it sits out. An operator can spare that, where no lock was held: see [`AdmissionRecords::open`](crate::AdmissionRecords::open).
    Unrecorded,
    /// It gives this client no votes, for the client's settings: see [`InstanceStatus::refusal`].
    Refused,
}
