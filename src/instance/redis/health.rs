//! What outlives a connection: what the client last learnt about the instance.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::Endpoint;
use super::admission::server_info::ServerInfo;
use super::reconnect::{Excess, Sessions};
use super::trouble::CurrentTrouble;
use crate::instance::{InstanceCounts, ReplyKind};
use crate::protocol::{AdmissionState, NotUsable, Reply, SeenRecords};

/// Shared by the connections of an instance, one after the other, and by callers that read its status.
#[derive(Debug, Default)]
pub(super) struct InstanceHealth {
    last: Mutex<LastKnown>,
    pub(super) trouble: CurrentTrouble,
    pub(super) counts: ReplyCounts,
}

#[derive(Debug, Default)]
pub(super) struct LastKnown {
    pub(super) excess: Excess,
    pub(super) info: Option<ServerInfo>,
    /// What was connected to last.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) round_trip: Option<Duration>,
    /// How many tokens it keeps, tombstones included, and how far the floor is behind its clock (P13).
    pub(super) tokens: Option<(u64, Duration)>,
    pub(super) last_error: Option<String>,
    /// The connections that the process may still have.
    pub(super) sessions: Sessions,
    /// Over the previous connection.
    pub(super) rights: Rights,
    /// The records of the process that was connected last.
    pub(super) seen: SeenRecords,
    pub(super) previous_admission: Option<PreviousAdmission>,
    /// Why it gave this client no votes when that was last known.
    pub(super) refusal: Option<NotUsable>,
}

/// What an instance does for a connection that it may as well refuse; `None` for what was not requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rights {
    /// Whether changes of keys are pushed.
    pub(super) tracking: Option<bool>,
    /// Whether messages of other clients are.
    pub(super) hears: Option<bool>,
    /// Whether the connection has the name that it was to have.
    pub(super) named: Option<bool>,
}

/// How the previous connection left the instance: its clock may step while the client is not connected.
#[derive(Clone, Debug)]
pub(super) struct PreviousAdmission {
    pub(super) state: AdmissionState,
    /// How far the client's clock had been put forward by then.
    pub(super) own_clock_ahead: Duration,
}

/// What became of the requests to one instance, over all of its connections; each counter only rises.
#[derive(Debug, Default)]
pub(super) struct ReplyCounts {
    connections: AtomicU64,
    commands: AtomicU64,
    requests: AtomicU64,
    replies: [AtomicU64; ReplyKind::ALL.len()],
}

impl ReplyCounts {
    /// A connection is up.
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// One command goes out with so many requests.
    pub(super) fn sent(&self, requests: usize) {
        self.commands.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(u64::try_from(requests).unwrap_or(0), Ordering::Relaxed);
    }

    /// A request has ended like this.
    pub(super) fn replied(&self, reply: &Reply) {
        if let Some(counter) = self.replies.get(ReplyKind::of(reply) as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> InstanceCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let replies = self.replies.each_ref().map(load);
        let (connections, commands, requests) = (load(&self.connections), load(&self.commands), load(&self.requests));
        InstanceCounts { connections, commands, requests, replies }
    }
}

impl InstanceHealth {
    pub(super) fn lock(&self) -> MutexGuard<'_, LastKnown> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Cause, FencingToken, Refusal};

    #[test]
    fn every_kind_of_reply_is_counted_by_itself() {
        let counts = ReplyCounts::default();
        let unknown = [
            Cause::TimedOut,
            Cause::Connecting,
            Cause::Disconnected(String::new()),
            Cause::Silent,
            Cause::Overloaded,
            Cause::Loading,
            Cause::Busy,
            Cause::OutOfMemory,
            Cause::ReadOnly,
            Cause::CannotWrite(String::new()),
            Cause::NoPermission(String::new()),
            Cause::ClockBehind { clock_s: 1, token_s: 2 },
            Cause::ScriptMissing,
        ];
        let others = [Reply::Granted, Reply::Refused(Refusal::default()), Reply::NotAdmitted { remaining: None }];
        let stale = Reply::Stale { stored: FencingToken::propose(1, None) };
        for reply in unknown.into_iter().map(Reply::Unknown).chain(others).chain([stale]) {
            counts.replied(&reply);
        }
        let counts = counts.snapshot();
        for (at, kind) in ReplyKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, counts.of(kind)), (at, 1), "{kind:?}");
        }
    }
}
