//! The standing of the instance behind one connection, shared between requests and the task that
//! keeps the connection up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::handshake::{Admitted, Rules};
use crate::instance::redis::flushes::Flushes;
use crate::protocol::{Instant, Named, Raw, Record, Remedy, Reply, Standing};

/// Admission of one connection.
pub(crate) struct Guarded {
    pub(crate) rules: Rules,
    standing: Mutex<Standing>,
    pub(crate) flushes: Flushes,
    remedy: Mutex<Option<Remedy>>,
    asked: Notify,
}

impl Guarded {
    pub(crate) fn new(rules: Rules, admitted: Admitted, flushes: Flushes) -> Self {
        flushes.watch_since(admitted.watched_since);
        let (standing, remedy, asked) = (Mutex::new(admitted.standing), Mutex::new(None), Notify::new());
        Self { rules, standing, flushes, remedy, asked }
    }

    /// What a request names that is sent at this instant of the own clock.
    pub(crate) fn named(&self, now: Instant) -> Named {
        self.standing().named(now)
    }

    /// What the instance's clock shows at least at this instant of the own clock, in microseconds.
    pub(crate) fn wall_us(&self, now: Instant) -> u64 {
        self.standing().watch().at_least_ms(now).saturating_mul(1000)
    }

    /// A copy of the standing.
    pub(crate) fn snapshot(&self) -> Standing {
        self.standing().clone()
    }

    /// Judges a reply to a request that named `record`.
    pub(crate) fn judge(&self, raw: Raw, record: &Arc<Record>, sent: Instant) -> Reply {
        let received = self.rules.clock.now();
        let mut standing = self.standing();
        if self.flushes.unsettled().is_some() {
            standing.doubt();
        }
        let (reply, remedy) = standing.judge(raw, record, sent, received);
        drop(standing);
        if let Some(remedy) = remedy {
            self.ask(remedy);
        }
        reply
    }

    /// Takes in a sample of the instance's clock.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, instance_us: u64) {
        if self.standing().observe(sent, received, instance_us) {
            self.ask(Remedy::Quarantine);
        }
    }

    /// Asks for something to be done about the instance. The stronger remedy wins.
    pub(crate) fn ask(&self, remedy: Remedy) {
        let mut asked = self.remedy();
        if *asked != Some(Remedy::Quarantine) {
            *asked = Some(remedy);
        }
        drop(asked);
        self.asked.notify_one();
    }

    /// Whether the clock jumped and nothing was done about it yet.
    pub(crate) fn has_jumped(&self) -> bool {
        self.standing().watch().jumped().is_some()
    }

    /// It had not jumped; nothing counts until everybody else would have noticed.
    pub(crate) fn own_clock_stood_still(&self, most: Duration, notice: Duration) {
        let until = self.rules.clock.now().saturating_add(notice);
        self.standing().own_clock_stood_still(most, until);
    }

    /// Asks for a look at what was flushed.
    pub(crate) fn note_flush(&self) {
        self.asked.notify_one();
    }

    /// Waits until something must be done.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// What must be done apart from flushes.
    pub(crate) fn take_remedy(&self) -> Option<Remedy> {
        self.remedy().take()
    }

    /// The flushes up to this one were of other data.
    pub(crate) fn spare(&self, flush: u32) {
        let mut standing = self.standing();
        self.flushes.settle(flush);
        standing.spare();
    }

    /// Begins to set things right, after the flushes up to `flush` too. After a quarantine has begun the
    /// record is believed no more, and nothing counts until [`renew`](Self::renew).
    pub(crate) fn begin(&self, remedy: Remedy, flush: Option<u32>) {
        let mut standing = self.standing();
        flush.into_iter().for_each(|flush| self.flushes.settle(flush));
        standing.begin_remedy(remedy);
        if remedy == Remedy::Quarantine {
            self.rules.known.get().seen.doubt(standing.record());
        }
    }

    /// Notes how the connection leaves the instance, for the next one.
    pub(crate) fn leave(&self, own_clock_ahead: Duration) {
        let standing = self.standing();
        let mut known = self.rules.known.get();
        if standing.is_doubted() || self.flushes.unsettled().is_some() {
            known.seen.doubt(standing.record());
        }
        known.former = Some((standing.clone(), own_clock_ahead));
    }

    /// Goes by this record from now on.
    pub(crate) fn renew(&self, admitted: &Admitted) {
        self.flushes.watch_since(admitted.watched_since);
        self.standing().renew((**admitted.standing.record()).clone());
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remedy(&self) -> MutexGuard<'_, Option<Remedy>> {
        self.remedy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
