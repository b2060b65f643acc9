//! What became of the requests to an instance, counted over all of its connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::instance::{InstanceCounts, ReplyKind};
use crate::protocol::{Cause, NotUsable, Reply};

/// Counters of one instance; each only rises.
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

    /// So many requests have ended like this.
    pub(super) fn replied(&self, reply: &Reply, requests: usize) {
        if let Some(counter) = self.replies.get(kind_of(reply) as usize) {
            counter.fetch_add(u64::try_from(requests).unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> InstanceCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let replies = self.replies.each_ref().map(load);
        let (connections, commands, requests) = (load(&self.connections), load(&self.commands), load(&self.requests));
        InstanceCounts { connections, commands, requests, replies }
    }
}

const fn kind_of(reply: &Reply) -> ReplyKind {
    match reply {
        Reply::Granted | Reply::Repaired => ReplyKind::Granted,
        Reply::Refused(_) => ReplyKind::Refused,
        Reply::Stale { .. } => ReplyKind::StaleToken,
        Reply::Kept { .. } | Reply::NotAdmitted { .. } => ReplyKind::NotAdmitted,
        Reply::NotSent(cause) | Reply::Unknown(cause) => kind_of_cause(cause),
    }
}

const fn kind_of_cause(cause: &Cause) -> ReplyKind {
    match cause {
        Cause::TimedOut => ReplyKind::TimedOut,
        Cause::Unrecorded
        | Cause::NotUsable(NotUsable::QuarantineBelowRecord { .. } | NotUsable::TtlAboveRecord { .. }) => {
            ReplyKind::NotAdmitted
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
        | Cause::NotUsable(_) => ReplyKind::NotConnected,
        Cause::Disconnected(_) => ReplyKind::Disconnected,
        Cause::Silent => ReplyKind::Silent,
        Cause::Overloaded => ReplyKind::Overloaded,
        Cause::Loading => ReplyKind::Loading,
        Cause::Busy => ReplyKind::Busy,
        Cause::OutOfMemory => ReplyKind::OutOfMemory,
        Cause::ReadOnly => ReplyKind::ReadOnly,
        Cause::CannotWrite(_) => ReplyKind::CannotWrite,
        Cause::NoPermission(_) | Cause::KeyForbidden(_) => ReplyKind::Denied,
        Cause::ClockBehind { .. } => ReplyKind::ClockBehind,
        Cause::ScriptMissing | Cause::ClusterMode(_) | Cause::Server(_) | Cause::OddReply(_) => ReplyKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FencingToken, Refusal};

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
            counts.replied(&reply, 2);
        }
        let counts = counts.snapshot();
        for (at, kind) in ReplyKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, counts.of(kind)), (at, 2), "{kind:?}");
        }
    }
}
