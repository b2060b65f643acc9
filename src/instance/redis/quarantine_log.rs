//! What the log says of an instance that may have forgotten locks (P15): that it waits, why and for how long, and that it is over.

use std::time::Duration;

use crate::log_limit::LogLimit;
use crate::protocol::{AdmissionState, Instant, RecordMeaning, RecordOrigin};

/// Times of one end that were read from a clock at different moments differ by less.
const SAME_END: Duration = Duration::from_millis(100);

/// What the log says of the quarantines of one instance.
#[derive(Debug, Default)]
pub(super) struct QuarantineLog {
    /// Until when the present one lasts.
    pub(super) until: Option<Instant>,
    begins: LogLimit<4>,
}

impl QuarantineLog {
    /// Notes how long the instance waits now, and for a clock that jumped if `has_jumped`.
    pub(super) fn note(&mut self, instance: &str, state: &AdmissionState, has_jumped: bool, now: Instant) {
        if *state.meaning() != RecordMeaning::Recorded {
            self.until = None; // its end is not to be waited for
            return;
        }
        let left = state.quarantine_left(now);
        if left.is_zero() {
            if self.until.take().is_some() {
                tracing::info!(instance, "its quarantine is over: it grants locks");
            }
            return;
        }
        let until = now.saturating_add(left);
        let is_same = |known: Instant| known.saturating_since(until).max(until.saturating_since(known)) < SAME_END;
        let times = if self.until.replace(until).is_some_and(is_same) { None } else { self.begins.note(now) };
        let Some(times) = times else { return };
        if state.record().origin == RecordOrigin::Flushed {
            tracing::warn!(instance, remaining = ?left, times, "in quarantine, it grants no locks: a database of it was flushed");
        } else if has_jumped {
            tracing::warn!(instance, remaining = ?left, times, "in quarantine, it grants no locks: its clock jumped");
        } else {
            tracing::info!(instance, remaining = ?left, times, "in quarantine, it grants no locks: it may have forgotten some");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AdmissionRecord, ClockWatch, ProcessIdentity};

    /// Its connection looked at the end that had passed again and again, without a pause.
    #[test]
    fn the_end_of_a_quarantine_is_not_waited_for_any_more_once_its_record_is_gone() {
        let (identity, now) = (ProcessIdentity::new("run", "replication"), Instant::from_millis(1_000));
        let watch = ClockWatch::begin(0, now, now, 1_000_000);
        let record = AdmissionRecord {
            identity: identity.clone(),
            vote_from_ms: 5_000,
            longest_ttl_ms: 4_000,
            origin: RecordOrigin::Waits,
            order: 1,
        };
        let mut log = QuarantineLog::default();
        log.note("a", &AdmissionState::new(record, watch), false, now);
        assert!(log.until.is_some());
        log.note("a", &AdmissionState::without_record(identity, RecordMeaning::Unrecorded, watch), false, now);
        assert_eq!(log.until, None);
    }
}
