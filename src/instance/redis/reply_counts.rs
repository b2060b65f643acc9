//! What became of the requests to an instance, counted over all of its connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::instance::{InstanceCounts, ReplyKind};
use crate::protocol::Reply;

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
        if let Some(counter) = self.replies.get(ReplyKind::of(reply) as usize) {
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
            counts.replied(&reply, 2);
        }
        let counts = counts.snapshot();
        for (at, kind) in ReplyKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, counts.of(kind)), (at, 2), "{kind:?}");
        }
    }
}
