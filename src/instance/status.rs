//! What can be seen of an instance from outside.

use std::fmt;
use std::time::Duration;

use super::cause::{Cause, ReplyKind};

/// How an instance does, as one client sees it. Made by
/// [`Redlock::instances`](crate::Redlock::instances).
///
/// With the feature `serde` it can be serialised: the fields as they are named here, times in milliseconds with `_ms` behind their name,
/// `admission` as a word with `remaining_ms` in a quarantine, and `counts.replies` by kind.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// The address without credentials.
    pub address: String,
    /// Whether requests can be sent to it now.
    pub connected: bool,
    /// Whether it is a master; `None` until it has answered.
    pub is_master: Option<bool>,
    /// The server and its version, as in `valkey 9.1.2`; `None` until it has answered.
    pub version: Option<String>,
    /// The id of the server process; `None` until it has answered. A restart changes it.
    pub run_id: Option<String>,
    /// Whether it may vote.
    pub admission: AdmissionStatus,
    /// How long ago it was flushed, if that caused its last quarantine. A flush of any of its databases is a quarantine.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "flushed_ago_ms", serialize_with = "crate::serialized::optional_millis")
    )]
    pub flushed_ago: Option<Duration>,
    /// The longest ttl that its record allows; `None` without a valid record.
    #[cfg_attr(feature = "serde", serde(rename = "max_ttl_ms", serialize_with = "crate::serialized::optional_millis"))]
    pub max_ttl: Option<Duration>,
    /// Why it gives this client no votes, in words, if that is for the client's settings. It is up all the same, and may well vote for
    /// others.
    pub refusal: Option<String>,
    /// How many steps of its clock this client has seen in the life of this process.
    pub clock_steps: u32,
    /// How long the last sign of life took.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "round_trip_ms", serialize_with = "crate::serialized::optional_millis")
    )]
    pub round_trip: Option<Duration>,
    /// How many fencing tokens it kept when this client last had it forget old ones; `None` until a client that wants locks has.
    pub tokens: Option<u64>,
    /// How far the largest token that it may have forgotten was behind its clock then.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "floor_lag_ms", serialize_with = "crate::serialized::optional_millis")
    )]
    pub floor_lag: Option<Duration>,
    /// The eviction policy, if it is set to evict keys: it may throw locks away. Use `noeviction`.
    pub evicts: Option<String>,
    /// What it refuses for a reason of its own since it last voted: it may be connected and admitted,
    /// and still of no use (a full instance, one in cluster mode, a user who may not touch the keys).
    pub trouble: Option<Trouble>,
    /// Clients with another list of instances that were connected to it when this one was connected last: with both lists, two clients can
    /// hold the same lock.
    pub other_lists: Vec<OtherList>,
    /// What last went wrong, in words; `None` also while it is connected for the first time.
    pub last_error: Option<String>,
    /// What was sent to it, and what became of that.
    pub counts: InstanceCounts,
}

/// Clients that are connected to an instance and use another list of instances, or another quorum, than this one: with both, two clients
/// can hold the same lock.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherList {
    /// How many.
    pub clients: u64,
    /// Their quorum.
    pub votes: usize,
    /// How many instances their list has.
    pub instances: usize,
}

impl fmt::Display for OtherList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, votes, instances } = self;
        write!(
            f,
            "clients with another list of instances are connected to it ({clients}), which need {votes} of {instances} votes: one of them may \
             hold a lock that this client holds, too; give all the same list and quorum"
        )
    }
}

/// How far a wall clock is from this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockOffset {
    /// It shows a later time.
    Ahead(Duration),
    /// It shows an earlier time.
    Behind(Duration),
}

impl ClockOffset {
    /// Of a clock that shows the first time when this machine's shows the second.
    pub(crate) fn of(its: Duration, ours: Duration) -> Self {
        if its < ours { Self::Behind(ours.saturating_sub(its)) } else { Self::Ahead(its.saturating_sub(ours)) }
    }

    /// Without the direction.
    #[must_use]
    pub const fn distance(self) -> Duration {
        match self {
            Self::Ahead(by) | Self::Behind(by) => by,
        }
    }
}

impl Default for ClockOffset {
    fn default() -> Self {
        Self::Ahead(Duration::ZERO)
    }
}

/// What a client has sent to an instance since the client was built, and what became of it. The numbers only rise.
///
/// ```no_run
/// use redquorum::ReplyKind;
/// # fn f(redlock: &redquorum::Redlock) {
/// for instance in redlock.instances() {
///     let counts = &instance.counts;
///     println!("{}: {} late of {}", instance.address, counts.of(ReplyKind::TimedOut), counts.requests);
/// }
/// # }
/// ```
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceCounts {
    /// How often it was connected.
    pub connections: u64,
    /// Commands with requests that were sent. Under load several requests share one.
    pub commands: u64,
    /// The requests in them.
    pub requests: u64,
    /// How requests have ended, those that were not sent too; in the order of [`ReplyKind::ALL`].
    #[cfg_attr(feature = "serde", serde(serialize_with = "by_kind"))]
    pub(crate) replies: [u64; ReplyKind::ALL.len()],
}

impl InstanceCounts {
    /// How many requests have ended like this, those that were not sent too.
    #[must_use]
    pub fn of(&self, reply: ReplyKind) -> u64 {
        self.replies.get(reply as usize).copied().unwrap_or(0)
    }
}

#[cfg(feature = "serde")]
fn by_kind<S: serde::Serializer>(counts: &[u64; ReplyKind::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ReplyKind::ALL.iter().map(|kind| kind.name()).zip(counts))
}

/// Why an instance that can be reached does not carry out requests.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What it said.
    #[cfg_attr(feature = "serde", serde(rename = "cause", serialize_with = "crate::serialized::text"))]
    pub cause: Cause,
    /// How long ago it last said so.
    #[cfg_attr(feature = "serde", serde(rename = "age_ms", serialize_with = "crate::serialized::millis"))]
    pub age: Duration,
}

/// Whether an instance may vote: only one that cannot have forgotten locks does.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", tag = "state", content = "remaining_ms"))]
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
    Quarantine(#[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialized::millis"))] Duration),
    /// It has no valid record: it is new, or has restarted. The first client that wants a lock writes one, and from then on
    /// it sits out. An operator can spare that, where no lock was held: see [`AdmissionRecords::open`](crate::operator::AdmissionRecords::open).
    Unrecorded,
    /// It gives this client no votes, for the client's settings: see [`InstanceStatus::refusal`].
    Refused,
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::protocol;

    #[test]
    fn the_serialised_form_is_the_one_that_is_promised() {
        let status = InstanceStatus {
            address: "127.0.0.1:6379".to_owned(),
            admission: AdmissionStatus::Quarantine(Duration::from_micros(1_900)),
            round_trip: Some(Duration::from_millis(1)),
            trouble: Some(Trouble { cause: protocol::Cause::Silent.into(), age: Duration::from_secs(2) }),
            ..Default::default()
        };
        let status = to_value(status).unwrap();
        assert_eq!(status["admission"], json!({"state": "quarantine", "remaining_ms": 1}));
        assert_eq!((&status["round_trip_ms"], &status["max_ttl_ms"]), (&json!(1), &json!(null)));
        assert_eq!(
            status["trouble"],
            json!({"cause": Cause::from(protocol::Cause::Silent).to_string(), "age_ms": 2000})
        );
        assert_eq!(status["counts"]["replies"]["granted"], json!(0));
        assert_eq!(to_value(AdmissionStatus::Admitted).unwrap(), json!({"state": "admitted"}));
    }
}
