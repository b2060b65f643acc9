//! What an instance in quarantine may keep of a lease (P10): the votes that have counted for it.
//!
//! An instance that has voted for the lease has voted for no other client that may still rely on that. As long as the
//! key is there, it votes for no other. So in the same process it keeps its vote, however the quarantine began: a flush of
//! another database, or a step of its clock. Nothing is kept over a restart, with data on disk or without, nor over a
//! time as a replica: what comes back then may be older than what was granted in between.

use std::sync::Arc;

use crate::protocol::admission::record::AdmissionRecord;
use crate::protocol::instance_set::InstanceId;
use crate::protocol::round::reply::Reply;
use crate::protocol::terms::LeaseTerms;
use crate::protocol::time::Instant;

/// Hardly any client has more instances.
const USUAL: usize = 5;

/// The last vote of each instance that counted for one lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedVotes(Vec<Option<CountedVote>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct CountedVote {
    /// The record under which it was given, which names the process.
    record: Arc<AdmissionRecord>,
    sent: Instant,
    /// By when the key may have expired that it set, by the client's clock.
    until: Instant,
    /// The same by the instance's clock, in microseconds, where that is known. A step of it takes that much of the key's life.
    until_us: Option<u64>,
}

/// Where and when a vote was requested, and answered.
#[derive(Clone, Copy, Debug)]
pub struct VoteRequest<'a> {
    /// Of which instance.
    pub id: InstanceId,
    /// The record that the request named.
    pub record: &'a Arc<AdmissionRecord>,
    /// How long the key lives; `None` for less than clocks can measure.
    pub terms: Option<LeaseTerms>,
    /// When it was sent, by the client's clock.
    pub sent: Instant,
    /// When it was answered.
    pub received: Instant,
    /// What the instance's clock read in the answer, in microseconds.
    pub instance_us: Option<u64>,
}

impl CountedVotes {
    /// What an answer counts for that admission lets count: a kept key is a vote if the last vote of the instance for this lease
    /// is of the same process, and the key that it set cannot have expired since.
    pub fn count(&mut self, reply: Reply, request: &VoteRequest<'_>) -> Reply {
        let reply = match reply {
            Reply::Kept { .. } if self.keeps(request) => Reply::Granted,
            Reply::Kept { remaining } => Reply::NotAdmitted { remaining: Some(remaining) },
            reply => reply,
        };
        if matches!(reply, Reply::Granted | Reply::Repaired) {
            self.note(request);
        }
        reply
    }

    /// The key was missing when the instance carried out a request that was sent then, or another's: nothing is kept of what
    /// was voted for before.
    pub fn forget(&mut self, id: InstanceId, sent: Instant) {
        if let Some(last) = self.0.get_mut(id.index()) {
            last.take_if(|last| last.sent <= sent);
        }
    }

    fn keeps(&self, request: &VoteRequest<'_>) -> bool {
        let Some(last) = self.0.get(request.id.index()).and_then(Option::as_ref) else { return false };
        let is_same_process = last.record.identity == request.record.identity;
        let is_in_time = request.received < last.until;
        let clocks = request.instance_us.zip(last.until_us);
        let was_not_stepped_past = clocks.is_some_and(|(now_us, until_us)| now_us < until_us);
        is_same_process && is_in_time && was_not_stepped_past
    }

    fn note(&mut self, request: &VoteRequest<'_>) {
        let VoteRequest { id, record, terms, sent, instance_us, .. } = *request;
        if self.0.is_empty() {
            self.0.reserve(USUAL); // those of the others follow
        }
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, None);
        }
        let Some(last) = self.0.get_mut(id.index()) else { return };
        if last.as_ref().is_none_or(|last| last.sent <= sent) {
            let until = terms.map_or(sent, |terms| terms.valid_until(sent));
            let ttl_us = terms.and_then(|terms| u64::try_from(terms.ttl().as_micros()).ok()).unwrap_or(0);
            let until_us = instance_us.map(|us| us.saturating_add(ttl_us));
            *last = Some(CountedVote { record: Arc::clone(record), sent, until, until_us });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::{ProcessIdentity, RecordOrigin};

    const MS: fn(u64) -> Instant = Instant::from_millis;
    const NOW_US: u64 = 1_800_000_000_000_000;
    const KEPT: Reply = Reply::Kept { remaining: Duration::from_millis(7) };
    const NOT_KEPT: Reply = Reply::NotAdmitted { remaining: Some(Duration::from_millis(7)) };

    fn record(run_id: &str, replication_id: &str, order: u64) -> Arc<AdmissionRecord> {
        let identity = ProcessIdentity::new(run_id, replication_id);
        let (longest_ttl_ms, origin) = (1_000, RecordOrigin::Flushed);
        Arc::new(AdmissionRecord { identity, vote_from_ms: 5, longest_ttl_ms, origin, order })
    }

    fn at(id: usize, record: &Arc<AdmissionRecord>, sent_ms: u64) -> VoteRequest<'_> {
        let terms = LeaseTerms::new(Duration::from_millis(1_000), 10_000).ok();
        let (sent, received, instance_us) = (MS(sent_ms), MS(sent_ms + 1), Some(NOW_US + sent_ms * 1_000));
        VoteRequest { id: InstanceId::new(id), record, terms, sent, received, instance_us }
    }

    /// With a vote of the first instance that was sent at 100 ms, and lets the key be there until 1 088 ms.
    fn voted(record: &Arc<AdmissionRecord>) -> CountedVotes {
        let mut votes = CountedVotes::default();
        assert_eq!(votes.count(Reply::Granted, &at(0, record, 100)), Reply::Granted);
        votes
    }

    #[test]
    fn a_key_that_is_kept_in_the_process_that_voted_for_it_counts_under_another_record() {
        let mut votes = voted(&record("r", "p", 1));
        let later = record("r", "p", 2);
        assert_eq!(votes.count(KEPT, &at(0, &later, 1_086)), Reply::Granted);
        assert_eq!(votes.count(KEPT, &at(0, &later, 2_000)), Reply::Granted, "that was a vote, too");
    }

    #[test]
    fn a_key_that_is_kept_after_a_restart_or_a_time_as_a_replica_counts_for_nothing() {
        for (run_id, replication_id) in [("other", "other"), ("r", "other")] {
            let mut votes = voted(&record("r", "p", 1));
            assert_eq!(votes.count(KEPT, &at(0, &record(run_id, replication_id, 2), 200)), NOT_KEPT);
        }
    }

    #[test]
    fn a_key_that_is_kept_counts_for_as_long_as_the_last_vote_has_kept_it() {
        let record = record("r", "p", 1);
        assert_eq!(voted(&record).count(KEPT, &at(0, &record, 1_087)), NOT_KEPT);
        let mut votes = voted(&record);
        assert_eq!(votes.count(NOT_KEPT, &at(0, &record, 1_000)), NOT_KEPT);
        assert_eq!(votes.count(KEPT, &at(0, &record, 1_087)), NOT_KEPT, "what does not count keeps nothing");
    }

    /// The key may have expired by the step, and have been set again by an extend whose answer was lost.
    #[test]
    fn a_key_that_may_have_expired_by_a_step_of_the_clock_is_not_kept() {
        let record = record("r", "p", 1);
        let stepped = |us: u64| VoteRequest { instance_us: Some(NOW_US + us), ..at(0, &record, 200) };
        assert_eq!(voted(&record).count(KEPT, &stepped(1_099_999)), Reply::Granted);
        assert_eq!(voted(&record).count(KEPT, &stepped(1_100_000)), NOT_KEPT);
        assert_eq!(voted(&record).count(KEPT, &VoteRequest { instance_us: None, ..stepped(0) }), NOT_KEPT);
    }

    #[test]
    fn an_instance_that_has_not_voted_for_the_lease_keeps_nothing_of_it() {
        let record = record("r", "p", 1);
        assert_eq!(voted(&record).count(KEPT, &at(1, &record, 200)), NOT_KEPT);
        assert_eq!(CountedVotes::default().count(KEPT, &at(0, &record, 200)), NOT_KEPT);
    }

    #[test]
    fn a_key_that_was_missing_since_is_not_kept() {
        let record = record("r", "p", 1);
        let mut votes = voted(&record);
        votes.forget(InstanceId::new(0), MS(99)); // answered late
        votes.forget(InstanceId::new(1), MS(200));
        assert_eq!(votes.clone().count(KEPT, &at(0, &record, 200)), Reply::Granted);
        votes.forget(InstanceId::new(0), MS(200));
        assert_eq!(votes.count(KEPT, &at(0, &record, 300)), NOT_KEPT);
    }

    #[test]
    fn a_vote_of_which_clocks_cannot_tell_how_long_it_lasts_keeps_nothing() {
        let record = record("r", "p", 1);
        let mut votes = CountedVotes::default();
        votes.count(Reply::Granted, &VoteRequest { terms: None, ..at(0, &record, 100) });
        assert_eq!(votes.count(KEPT, &at(0, &record, 100)), NOT_KEPT);
    }
}
