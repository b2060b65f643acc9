//! What became of the requests to an instance, counted over all of its connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::instance::InstanceCounts;
use crate::protocol::{Cause, NotUsable, Reply};

/// The names under which replies are counted: few, as each is a series of its own wherever they are recorded.
const NAMES: [&str; 17] = [
    "granted",
    "refused",
    "stale_token",
    "not_admitted",
    "timed_out",
    "not_connected",
    "disconnected",
    "silent",
    "overloaded",
    "loading",
    "busy",
    "out_of_memory",
    "read_only",
    "cannot_write",
    "denied",
    "clock_behind",
    "other",
];

/// Counters of one instance; each only rises.
#[derive(Debug, Default)]
pub(super) struct ReplyCounts {
    connections: AtomicU64,
    commands: AtomicU64,
    requests: AtomicU64,
    replies: [AtomicU64; NAMES.len()],
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

    /// So many requests have ended like this.
    pub(super) fn replied(&self, reply: &Reply, requests: usize) {
        let counter = NAMES.iter().position(|name| *name == name_of(reply)).and_then(|index| self.replies.get(index));
        if let Some(counter) = counter {
            counter.fetch_add(u64::try_from(requests).unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> InstanceCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let replies: BTreeMap<&'static str, u64> = NAMES.into_iter().zip(self.replies.iter().map(load)).collect();
        let (connections, commands, requests) = (load(&self.connections), load(&self.commands), load(&self.requests));
        InstanceCounts { connections, commands, requests, replies }
    }
}

const fn name_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Granted | Reply::Repaired => "granted",
        Reply::Refused(_) => "refused",
        Reply::Stale { .. } => "stale_token",
        Reply::Kept { .. } | Reply::NotAdmitted { .. } => "not_admitted",
        Reply::NotSent(cause) | Reply::Unknown(cause) => name_of_cause(cause),
    }
}

const fn name_of_cause(cause: &Cause) -> &'static str {
    match cause {
        Cause::TimedOut => "timed_out",
        Cause::Unrecorded
        | Cause::NotUsable(NotUsable::QuarantineBelowRecord { .. } | NotUsable::TtlAboveRecord { .. }) => {
            "not_admitted"
        }
        Cause::Connecting
        | Cause::NotConnected(_)
        | Cause::Tls(_)
        | Cause::Certificate(_)
        | Cause::ClientCertificate(_)
        | Cause::TlsSettings(_)
        | Cause::NoCredentials(_)
        | Cause::NoMaster(_)
        | Cause::OtherProtocol(_)
        | Cause::PasswordNeeded
        | Cause::PasswordRefused
        | Cause::NoDatabase(_)
        | Cause::NoInfo(_)
        | Cause::NotUsable(_) => "not_connected",
        Cause::Disconnected(_) => "disconnected",
        Cause::Silent => "silent",
        Cause::Overloaded => "overloaded",
        Cause::Loading => "loading",
        Cause::Busy => "busy",
        Cause::OutOfMemory => "out_of_memory",
        Cause::ReadOnly => "read_only",
        Cause::CannotWrite(_) => "cannot_write",
        Cause::NoPermission(_) | Cause::KeyForbidden(_) => "denied",
        Cause::ClockBehind { .. } => "clock_behind",
        Cause::ScriptMissing | Cause::ClusterMode(_) | Cause::Server(_) | Cause::OddReply(_) => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FencingToken, Refusal};

    #[test]
    fn every_reply_is_counted_under_a_name_of_the_list() {
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
            counts.replied(&reply, 2);
        }
        let replies = counts.snapshot().replies;
        assert!(replies.values().all(|count| *count == 2), "{replies:?}");
    }
}
