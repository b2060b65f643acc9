//! What a client knows of one instance, over all of its connections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::Endpoint;
use super::admission::server_info::ServerInfo;
use crate::instance::{InstanceCounts, InstanceStatus, OtherList, ReplyKind, Trouble};
use crate::log_limit::LogLimit;
use crate::protocol::{AdmissionState, Cause, Instant, NotUsable, Reply, SeenRecords};

/// So many connections are remembered. One more would be one that broke just before the earlier ones were ended.
const MOST_SESSIONS: usize = 16;

/// Shared by the connections of an instance, one after the other, and by callers that read its status.
#[derive(Debug, Default)]
pub(super) struct Standing {
    known: Mutex<Known>,
    /// Whether it refuses at present: votes are many, and need look no further.
    is_in_trouble: AtomicBool,
    // Each counter only rises.
    connections: AtomicU64,
    commands: AtomicU64,
    requests: AtomicU64,
    replies: [AtomicU64; ReplyKind::ALL.len()],
}

#[derive(Debug, Default)]
pub(super) struct Known {
    info: Option<ServerInfo>,
    /// What was connected to last.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) round_trip: Option<Duration>,
    /// How many tokens it keeps, tombstones included, and how far the floor is behind its clock (P13).
    pub(super) tokens: Option<(u64, Duration)>,
    pub(super) last_error: Option<String>,
    /// How the process calls those of the client's connections to it that are not known to be ended (P28).
    sessions: Vec<u64>,
    /// Over the previous connection.
    pub(super) rights: Rights,
    /// What other lists of instances were in use when it was connected last (A10).
    pub(super) other_lists: Vec<OtherList>,
    /// The records of the process that was connected last.
    pub(super) seen: SeenRecords,
    /// How the previous connection left the instance, and how far the client's clock had been put forward by then: the instance's clock may
    /// step while the client is not connected.
    pub(super) previous_admission: Option<(AdmissionState, Duration)>,
    /// Why it gave this client no votes when that was last known.
    pub(super) refusal: Option<NotUsable>,
    /// Why it refuses requests at present, though it is connected and admitted, and when the last of these was sent.
    pub(super) trouble: Option<(Cause, Instant)>,
    /// When the vote was sent that ended the last trouble. What was sent before may be answered after it.
    voted: Option<Instant>,
    warnings: LogLimit,
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

impl Standing {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Records what a reply to a request for a vote (`may_vote`), or to a release, shows of the instance: a reason of its own to refuse is kept
    /// until it votes. Warns when the cause changes.
    pub(super) fn note(&self, instance: &str, reply: &Reply, may_vote: bool, sent: Instant) {
        match reply {
            Reply::Unknown(cause) if is_its_own(cause) => {
                let mut known = self.lock();
                if known.voted.is_some_and(|voted| sent <= voted) {
                    return;
                }
                let was = known.trouble.replace((cause.clone(), sent));
                self.is_in_trouble.store(true, Ordering::Relaxed);
                if was.is_none_or(|(was, _)| was != *cause)
                    && let Some(times) = known.warnings.note(sent)
                {
                    drop(known);
                    tracing::warn!(instance, %cause, times, "it refuses requests for a reason of its own");
                }
            }
            Reply::Granted | Reply::Repaired | Reply::Kept { .. }
                if may_vote && self.is_in_trouble.load(Ordering::Relaxed) =>
            {
                let mut known = self.lock();
                (known.trouble, known.voted) = (None, Some(sent));
                self.is_in_trouble.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// What is known of it, connected or not.
    pub(super) fn status(&self, address: &str, now: Instant) -> InstanceStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (connections, commands, requests) = (load(&self.connections), load(&self.commands), load(&self.requests));
        let counts = InstanceCounts { connections, commands, requests, replies: self.replies.each_ref().map(load) };
        let known = self.lock();
        let (tokens, floor_lag) = known.tokens.unzip();
        let (trouble, other_lists) = (known.trouble.clone(), known.other_lists.clone());
        let info = known.info.clone();
        InstanceStatus {
            address: address.to_owned(),
            is_master: info.as_ref().map(|info| info.facts.is_master),
            version: info.as_ref().map(|info| info.version.clone()),
            run_id: info.as_ref().map(|info| info.run_id.clone()),
            evicts: info.and_then(|info| info.evicts),
            round_trip: known.round_trip,
            tokens,
            floor_lag,
            other_lists,
            trouble: trouble.map(|(cause, at)| Trouble { cause: cause.into(), age: now.saturating_since(at) }),
            last_error: known.last_error.clone(),
            counts,
            ..InstanceStatus::default()
        }
    }
}

impl Known {
    /// Records what the server reports of itself, and returns what it reported before.
    pub(super) fn note_info(&mut self, info: ServerInfo) -> Option<ServerInfo> {
        if self.info.as_ref().is_none_or(|before| before.run_id != info.run_id) {
            self.sessions.clear();
        }
        self.info.replace(info)
    }

    /// Records a connection, and returns those that the process may still have.
    pub(super) fn begin_session(&mut self, session: Option<u64>) -> Vec<u64> {
        let former = self.sessions.clone();
        self.sessions.extend(session);
        let too_many = self.sessions.len().saturating_sub(MOST_SESSIONS);
        self.sessions.drain(..too_many);
        former
    }

    /// The process was to end these.
    pub(super) fn end_sessions(&mut self, former: &[u64]) {
        self.sessions.retain(|id| !former.contains(id));
    }
}

/// Whether it is the instance that refuses, and not the way to it.
const fn is_its_own(cause: &Cause) -> bool {
    !matches!(
        cause,
        Cause::Connecting
            | Cause::NotConnected(_)
            | Cause::Tls(_)
            | Cause::Certificate(_)
            | Cause::ClientCertificate(_)
            | Cause::TlsSettings(_)
            | Cause::NoMaster(_)
            | Cause::NoCredentials(_)
            | Cause::OtherProtocol(_)
            | Cause::NoHello(_)
            | Cause::Silent
            | Cause::Overloaded
            | Cause::Withdrawn
            | Cause::ScriptMissing
            | Cause::Unrecorded
            | Cause::NoVote
            | Cause::TimedOut
            | Cause::Disconnected(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::redis::admission::server_info;
    use crate::protocol::{FencingToken, Refusal};

    #[test]
    fn every_kind_of_reply_is_counted_by_itself() {
        let standing = Standing::default();
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
            standing.replied(&reply);
        }
        let counts = standing.status("a", Instant::ZERO).counts;
        for (at, kind) in ReplyKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, counts.of(kind)), (at, 1), "{kind:?}");
        }
    }

    #[test]
    fn a_reason_of_its_own_stays_until_the_instance_votes_on_what_was_sent_later() {
        let standing = Standing::default();
        let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
        let note = |reply, may_vote, seconds| standing.note("a", &reply, may_vote, at(seconds));
        let trouble = |seconds| standing.status("a", at(seconds)).trouble;
        note(Reply::Unknown(Cause::TimedOut), true, 1);
        assert_eq!(trouble(1), None);
        note(Reply::Unknown(Cause::OutOfMemory), true, 2);
        note(Reply::Granted, false, 3); // a full instance still deletes
        let expected = Trouble { cause: Cause::OutOfMemory.into(), age: Duration::from_secs(3) };
        assert_eq!(trouble(5), Some(expected));
        note(Reply::Granted, true, 6);
        assert_eq!(trouble(6), None);
        note(Reply::Unknown(Cause::OutOfMemory), false, 4); // answered late
        assert_eq!(trouble(7), None);
        note(Reply::Unknown(Cause::OutOfMemory), false, 7);
        assert!(trouble(7).is_some());
    }

    #[test]
    fn connections_are_remembered_until_their_process_was_asked_to_end_them() {
        let mut known = Known::default();
        let begin = |known: &mut Known, run_id: &str, session| {
            known.note_info(server_info::tests::of_process(run_id));
            known.begin_session(session)
        };
        assert_eq!(begin(&mut known, "one", Some(1)), [0; 0]);
        assert_eq!(begin(&mut known, "one", Some(2)), [1]);
        assert_eq!(begin(&mut known, "one", Some(3)), [1, 2], "the second broke before the first was ended");
        known.end_sessions(&[1, 2]);
        assert_eq!(begin(&mut known, "one", None), [3]);
        assert_eq!(begin(&mut known, "another", Some(1)), [0; 0]);
        (2..100).for_each(|session| drop(known.begin_session(Some(session))));
        assert_eq!(known.begin_session(None).len(), MOST_SESSIONS);
    }
}
