//! An instance's right to vote over one connection, shared between requests and the connection's supervisor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::handshake::{AdmissionConfig, HandshakeOutcome};
use crate::instance::redis::flushes::FlushWatch;
use crate::instance::redis::health::PreviousAdmission;
use crate::protocol::{AdmissionFollowUp, AdmissionRecord, AdmissionState, AttachedRecord, Instant, RawReply, Reply};

/// Admission of one connection.
pub(crate) struct SharedAdmission {
    pub(crate) config: AdmissionConfig,
    state: Mutex<AdmissionState>,
    pub(crate) flushes: FlushWatch,
    follow_up: Mutex<Option<AdmissionFollowUp>>,
    requested: Notify,
}

impl SharedAdmission {
    pub(crate) fn new(config: AdmissionConfig, outcome: HandshakeOutcome, flushes: FlushWatch) -> Self {
        flushes.watch_since(outcome.watched_since);
        let (state, follow_up, requested) = (Mutex::new(outcome.state), Mutex::new(None), Notify::new());
        Self { config, state, flushes, follow_up, requested }
    }

    /// The record for a request that is sent at this instant of the own clock, and what the instance's clock shows at
    /// least, in microseconds.
    pub(crate) fn known_at(&self, now: Instant) -> (AttachedRecord, u64) {
        self.state().known_at(now)
    }

    /// What the instance's clock shows at least at this instant of the own clock, in microseconds.
    pub(crate) fn wall_us(&self, now: Instant) -> u64 {
        self.state().wall_us(now)
    }

    /// What it shows about then, in microseconds.
    pub(crate) fn about_us(&self, now: Instant) -> u64 {
        let about_ns = i128::from(now.as_nanos()) + self.state().watch().offset_ns();
        u64::try_from(about_ns / 1_000).unwrap_or(0)
    }

    /// A copy of the state.
    pub(crate) fn snapshot(&self) -> AdmissionState {
        self.state().clone()
    }

    /// Takes in what a reply shows of the instance's clock; whether that has stepped forward.
    pub(crate) fn observe_reply(&self, raw: &RawReply, sent: Instant, received: Instant) -> bool {
        let stepped = self.state().observe_reply(raw, sent, received);
        if stepped {
            self.request_follow_up(AdmissionFollowUp::Quarantine);
        }
        stepped
    }

    /// What a reply to a request with `record` counts for: the clock had `stepped` by then or not, and so many flushes had
    /// been pushed. Those of later are no matter of it.
    pub(crate) fn judge(
        &self,
        raw: RawReply,
        stepped: bool,
        flushes: u32,
        record: &Arc<AdmissionRecord>,
        received: Instant,
    ) -> Reply {
        let state = self.state(); // under which flushes are settled
        let in_doubt = stepped || !self.flushes.are_settled(flushes);
        let (reply, follow_up) = state.judge(raw, in_doubt, record, received);
        drop(state);
        if let Some(follow_up) = follow_up {
            self.request_follow_up(follow_up);
        }
        reply
    }

    /// Records a sample of the instance's clock.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, instance_us: u64) {
        if self.state().observe(sent, received, instance_us) {
            self.request_follow_up(AdmissionFollowUp::Quarantine);
        }
    }

    /// Leaves something to be done to the connection's supervisor. A quarantine replaces a mere reading.
    pub(crate) fn request_follow_up(&self, follow_up: AdmissionFollowUp) {
        let mut pending = self.follow_up();
        if *pending != Some(AdmissionFollowUp::Quarantine) {
            *pending = Some(follow_up);
        }
        drop(pending);
        self.requested.notify_one();
    }

    /// Whether the clock jumped and nothing was done about it yet.
    pub(crate) fn has_jumped(&self) -> bool {
        self.state().watch().jumped().is_some()
    }

    /// It had not jumped by so much; nothing counts until this instant, by when everybody else would have noticed.
    pub(crate) fn own_clock_stood_still(&self, most: Duration, until: Instant) {
        self.state().own_clock_stood_still(most, until);
    }

    /// Counts nothing until this instant of the own clock.
    pub(crate) fn withhold_until(&self, until: Instant) {
        self.state().withhold_until(until);
    }

    /// Has the supervisor find out what was flushed.
    pub(crate) fn note_flush(&self) {
        self.requested.notify_one();
    }

    /// Waits until something must be done.
    pub(crate) async fn follow_up_requested(&self) {
        self.requested.notified().await;
    }

    /// What must be done apart from flushes.
    pub(crate) fn take_follow_up(&self) -> Option<AdmissionFollowUp> {
        self.follow_up().take()
    }

    /// The flushes up to this one were of other data.
    pub(crate) fn dismiss_flush(&self, flush: u32) {
        self.flushes.settle(flush);
        self.flushes.tell();
    }

    /// Begins a follow-up, which covers the flushes up to `flush`. Once a quarantine has begun the record is
    /// accepted no more, and nothing counts until [`replace_record`](Self::replace_record).
    pub(crate) fn begin_follow_up(&self, follow_up: AdmissionFollowUp, flush: Option<u32>) {
        let mut state = self.state();
        if let Some(flush) = flush {
            self.flushes.settle(flush);
            state.suspend_votes();
        }
        let doubtful_by_ms = state.doubtful_by_ms(self.config.clock.now());
        state.begin_follow_up(follow_up);
        if follow_up == AdmissionFollowUp::Quarantine {
            self.config.health.lock().seen.suspect(state.record(), doubtful_by_ms);
        }
        drop(state);
        self.flushes.tell();
    }

    /// Notes how the connection leaves the instance, for the next one.
    pub(crate) fn remember_for_next_connection(&self, own_clock_ahead: Duration) {
        let mut state = self.state();
        let mut last = self.config.health.lock();
        if self.flushes.unsettled().is_some() {
            state.suspend_votes();
        }
        if state.votes_suspended() {
            last.seen.suspect(state.record(), state.doubtful_by_ms(self.config.clock.now()));
        }
        last.previous_admission = Some(PreviousAdmission { state: state.clone(), own_clock_ahead });
        drop((last, state));
        self.flushes.end();
    }

    /// Goes by this record from now on.
    pub(crate) fn replace_record(&self, outcome: &HandshakeOutcome) {
        self.flushes.watch_since(outcome.watched_since);
        self.state().replace_record((**outcome.state.record()).clone());
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow_up(&self) -> MutexGuard<'_, Option<AdmissionFollowUp>> {
        self.follow_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
