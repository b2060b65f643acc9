//! An instance's right to vote over one connection, shared between requests and the connection's supervisor.

use std::mem::replace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::instance::redis::link::Asked;
use crate::instance::redis::options::ConnectOptions;
use crate::instance::redis::pushes::Pushes;
use crate::instance::{Claim, Request};
use crate::protocol::{
    AdmissionRecord, AdmissionState, Cause, Instant, LeaseTerms, NotUsable, RawReply, RecordMeaning, Reply, VoteRequest,
};

/// Why a request for a vote is not sent.
pub(crate) enum VoteObstacle {
    /// The client gets none, for its settings, or since there is no valid record, and this client writes none.
    Known(Cause),
    /// There will be a record in a moment.
    NotYet,
}

/// Admission of one connection.
pub(crate) struct SharedAdmission {
    options: Arc<ConnectOptions>,
    state: Mutex<AdmissionState>,
    /// Whether votes are requested without another look: there is a valid record.
    asks_at_once: AtomicBool,
    pushes: Arc<Pushes>,
    /// Whether the record is to be read again.
    is_unknown: AtomicBool,
    /// Wakes the connection's supervisor for that, for a flush, or for a jump of the clock.
    supervisor: Notify,
}

impl SharedAdmission {
    pub(crate) fn new(options: Arc<ConnectOptions>, state: AdmissionState, pushes: Arc<Pushes>) -> Self {
        let (asks_at_once, is_unknown) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { options, state: Mutex::new(state), asks_at_once, pushes, is_unknown, supervisor: Notify::new() }
    }

    /// Why a request for a vote is not sent.
    pub(crate) fn vote_obstacle(&self, request: &Request) -> Option<VoteObstacle> {
        if !request.asks_for_a_vote() {
            return None;
        }
        let is_acquire = matches!(request, Request::Acquire(_));
        // A mark may be there for longer than any lease, as every client's may.
        if self.options.records.as_recorded
            && !request.claim().is_mark
            && let Some(refusal) = self.too_long(request.claim().ttl)
        {
            return Some(VoteObstacle::Known(Cause::NotUsable(refusal)));
        }
        if self.asks_at_once.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        match state.meaning() {
            RecordMeaning::Refused(reason) => Some(VoteObstacle::Known(Cause::NotUsable(reason.clone()))),
            RecordMeaning::Unrecorded if is_acquire && self.options.records.are_to_be_written() => {
                Some(VoteObstacle::NotYet)
            }
            RecordMeaning::Unrecorded => Some(VoteObstacle::Known(Cause::Unrecorded)),
            RecordMeaning::Recorded => {
                self.asks_at_once.store(true, Ordering::Release); // under the lock of the state
                None
            }
        }
    }

    /// P29: a client that accepts any record uses no longer ttl than that.
    fn too_long(&self, ttl: Duration) -> Option<NotUsable> {
        let ours_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let state = self.state();
        let recorded_ms = state.record().longest_ttl_ms;
        let is_recorded = *state.meaning() == RecordMeaning::Recorded;
        (is_recorded && recorded_ms < ours_ms).then_some(NotUsable::TtlAboveRecord { recorded_ms, ours_ms })
    }

    /// Whether an acquire waits until there is a valid record.
    pub(crate) fn is_being_settled(&self) -> bool {
        *self.state().meaning() == RecordMeaning::Unrecorded
    }

    /// Has the record written, if there is none and this client wants locks.
    pub(crate) fn request_record(&self) {
        if self.is_being_settled() && self.options.records.are_to_be_written() {
            self.reread_record();
        }
    }

    /// P36: whether a key that is there is a vote, as far as is known: not behind a flush, nor in quarantine, where a plain attempt may
    /// have set one that does not count. Without a record this has it looked for again.
    pub(crate) fn keys_are_votes(&self) -> bool {
        let state = self.state();
        let is_over = state.quarantine_left(self.options.now()).is_zero();
        let counts = is_over && !state.votes_suspended() && self.pushes.unsettled_flush().is_none();
        match state.meaning() {
            RecordMeaning::Recorded => counts,
            RecordMeaning::Refused(_) => true, // its record is not known: that is a matter of this client's settings
            RecordMeaning::Unrecorded => {
                drop(state);
                self.reread_record();
                false
            }
        }
    }

    /// Why this client gets no vote, if that is for its settings.
    pub(crate) fn refusal(&self) -> Option<Cause> {
        match self.state().meaning() {
            RecordMeaning::Refused(reason) => Some(Cause::NotUsable(reason.clone())),
            _ => None,
        }
    }

    /// What the replies to a write with `record` count for, which was sent and answered at these times.
    pub(crate) fn judge(
        &self,
        asked: &[Asked],
        replies: &mut [RawReply],
        record: &Arc<AdmissionRecord>,
        (sent, received): (Instant, Instant),
    ) {
        // P17: before any vote counts, for the clock may have stepped behind what the first of them carry.
        let stepped = self.observe_replies(replies, sent, received);
        for (claim, _) in votes(asked, replies).filter(|(_, raw)| was_missing(&raw.reply)) {
            claim.votes.lock().forget(self.options.id, sent); // nothing of an earlier vote is kept
        }
        self.admit(replies, stepped, record, received); // P14, P15, P17
        for (claim, raw) in votes(asked, replies) {
            let request = self.vote_request(claim.ttl, record, (sent, received), raw.instance_us);
            let reply = replace(&mut raw.reply, Reply::Granted);
            raw.reply = claim.votes.lock().count(reply, &request); // P10
        }
    }

    /// Takes in what the replies to a write show of the instance's clock; whether that has stepped forward.
    fn observe_replies(&self, replies: &[RawReply], sent: Instant, received: Instant) -> bool {
        let (mut state, mut last, mut stepped) = (self.state(), None, false);
        for us in replies.iter().filter_map(|raw| raw.instance_us) {
            // All replies to one command carry the same sample.
            stepped |= last.replace(us) != Some(us) && state.observe(sent, received, us);
        }
        drop(state);
        if stepped {
            self.wake_supervisor();
        }
        stepped
    }

    /// What admission lets the replies to a write with `record` count for: the clock had `stepped` by then or not.
    fn admit(&self, replies: &mut [RawReply], stepped: bool, record: &Arc<AdmissionRecord>, received: Instant) {
        let state = self.state(); // under which flushes are settled
        let in_doubt = stepped || self.pushes.unsettled_flush().is_some();
        let mut is_unknown = false;
        for raw in replies {
            is_unknown |= state.judge(raw, in_doubt, record, received);
        }
        drop(state);
        if is_unknown {
            self.reread_record();
        }
    }

    /// A vote for a key that lives for `ttl`, requested with `record` at the first of these times, and answered at
    /// the second. A mark may be there for longer than any quarantine (P22): that counts for no more than `max_ttl`.
    fn vote_request<'a>(
        &self,
        ttl: Duration,
        record: &'a Arc<AdmissionRecord>,
        (sent, received): (Instant, Instant),
        instance_us: Option<u64>,
    ) -> VoteRequest<'a> {
        let ttl = ttl.min(Duration::from_millis(record.longest_ttl_ms));
        let terms = LeaseTerms::new(ttl, self.options.client.drift_ppm).ok();
        VoteRequest { id: self.options.id, record, terms, sent, received, instance_us }
    }

    /// Records a sample of the instance's clock.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, instance_us: u64) {
        if self.state().observe(sent, received, instance_us) {
            self.wake_supervisor();
        }
    }

    /// Has the supervisor read the record again.
    pub(crate) fn reread_record(&self) {
        self.is_unknown.store(true, Ordering::Release);
        self.wake_supervisor();
    }

    /// Has the supervisor see whether there was a flush, or a jump of the clock.
    pub(crate) fn wake_supervisor(&self) {
        self.supervisor.notify_one();
    }

    /// Whether the clock jumped and nothing was done about it yet.
    pub(crate) fn has_jumped(&self) -> bool {
        self.state().watch().jumped().is_some()
    }

    /// The last flush, if no quarantine was begun for it yet.
    pub(crate) fn unsettled_flush(&self) -> Option<u32> {
        self.pushes.unsettled_flush()
    }

    /// Waits until the supervisor is woken.
    pub(crate) async fn woken(&self) {
        self.supervisor.notified().await;
    }

    /// Whether the record was to be read again until now.
    pub(crate) fn take_unknown(&self) -> bool {
        self.is_unknown.swap(false, Ordering::AcqRel)
    }

    /// Begins a quarantine, which covers the flushes up to `flush`: the record is accepted no more, and nothing counts until
    /// [`replace_record`](Self::replace_record).
    pub(crate) fn begin_quarantine(&self, flush: Option<u32>) {
        let mut state = self.state();
        if let Some(flush) = flush {
            self.pushes.settle_flushes(flush);
            state.suspend_votes();
        }
        let doubtful_by_ms = state.doubtful_by_ms(self.options.now());
        state.begin_quarantine();
        self.options.standing.lock().seen.suspect(state.record(), doubtful_by_ms);
    }

    /// Notes how the connection leaves the instance, for the next one.
    pub(crate) fn remember_for_next_connection(&self, own_clock_ahead: Duration) {
        let mut state = self.state();
        let mut last = self.options.standing.lock();
        if self.pushes.unsettled_flush().is_some() {
            state.suspend_votes();
        }
        if state.votes_suspended() {
            last.seen.suspect(state.record(), state.doubtful_by_ms(self.options.now()));
        }
        last.previous_admission = Some((state.clone(), own_clock_ahead));
    }

    /// Uses this record from now on.
    pub(crate) fn replace_record(&self, found: &AdmissionState) {
        let mut state = self.state();
        self.asks_at_once.store(false, Ordering::Release);
        state.replace_meaning(found);
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replies to requests for a vote.
fn votes<'a>(asked: &'a [Asked], replies: &'a mut [RawReply]) -> impl Iterator<Item = (&'a Claim, &'a mut RawReply)> {
    let asks = |(asked, _): &(&Asked, _)| asked.request.asks_for_a_vote();
    asked.iter().zip(replies).filter(asks).map(|(asked, raw)| (asked.as_ref(), raw))
}

/// Whether the key was missing until then, or is still.
const fn was_missing(reply: &Reply) -> bool {
    matches!(reply, Reply::Repaired | Reply::Refused(_))
}
