//! What a client has done so far, counted. Nothing here is counted under a mutex: a recorder of metrics is foreign code,
//! and what it does ends nothing of the client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::log_limit::ManyLocksLimit;

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Acquired { is_handed_over: bool },
    Contended,
    Failed,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    Expired,
    Gone,
    TakenOver,
}

impl LossKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::TakenOver => "taken_over",
        }
    }
}

/// Counters of one client; each only rises.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) acquired: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) contended: Counter,
    pub(crate) failed: Counter,
    /// Over all acquires that gave a lock.
    pub(crate) acquire_micros: Counter,
    pub(crate) rounds: Counter,
    pub(crate) renewals: Counter,
    pub(crate) failed_renewals: Counter,
    pub(crate) expired: Counter,
    pub(crate) gone: Counter,
    pub(crate) taken_over: Counter,
    /// Bounds the warnings of lost leases.
    pub(super) loss_warnings: ManyLocksLimit,
    /// Bounds the warnings of renewals that fail, and of leases that are held for long.
    pub(super) renewal_warnings: ManyLocksLimit,
    /// Bounds the warnings of releases behind work.
    pub(crate) release_warnings: ManyLocksLimit,
    /// What was recorded of the numbers of the instances.
    #[cfg(feature = "metrics")]
    pub(crate) recorded: RecordedCounts,
}

/// How much of a number that rises elsewhere was recorded: by the position of the instance, the metric and its label.
#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
pub(crate) struct RecordedCounts(
    std::sync::Mutex<std::collections::BTreeMap<(usize, &'static str, &'static str), u64>>,
);

#[cfg(feature = "metrics")]
impl RecordedCounts {
    /// By how much the number is more than what was recorded of it; that is recorded now.
    pub(crate) fn rise(&self, number: (usize, &'static str, &'static str), now: u64) -> u64 {
        let mut recorded = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = recorded.entry(number).or_default();
        let rise = now.saturating_sub(*before);
        *before = now.max(*before);
        rise
    }
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }
}

impl Counters {
    /// An acquire has ended, after so long.
    pub(crate) fn acquire_ended(&self, outcome: AcquireOutcome, took: Duration) {
        let (counter, name) = match outcome {
            AcquireOutcome::Acquired { .. } => (&self.acquired, "acquired"),
            AcquireOutcome::Contended => (&self.contended, "contended"),
            AcquireOutcome::Failed => (&self.failed, "failed"),
        };
        counter.add(1);
        if let AcquireOutcome::Acquired { is_handed_over } = outcome {
            self.acquire_micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            self.handed_over.add(is_handed_over.into());
            recorded::count("redquorum_hand_overs_total", None, is_handed_over.into());
        }
        recorded::count("redquorum_acquires_total", Some(("outcome", name)), 1);
        recorded::time("redquorum_acquire_seconds", ("outcome", name), took);
    }

    /// A round of an acquire was sent.
    pub(super) fn round_sent(&self) {
        self.rounds.add(1);
        recorded::count("redquorum_acquire_rounds_total", None, 1);
    }

    /// A renewal was decided.
    pub(super) fn renewal_decided(&self, is_won: bool) {
        let (counter, name) = if is_won { (&self.renewals, "won") } else { (&self.failed_renewals, "lost") };
        counter.add(1);
        recorded::count("redquorum_renewals_total", Some(("result", name)), 1);
    }

    /// A lease was lost.
    pub(super) fn lost(&self, kind: LossKind) {
        let counter = match kind {
            LossKind::Expired => &self.expired,
            LossKind::Gone => &self.gone,
            LossKind::TakenOver => &self.taken_over,
        };
        counter.add(1);
        recorded::count("redquorum_losses_total", Some(("cause", kind.name())), 1);
    }
}

/// For the facade `metrics`.
#[cfg(feature = "metrics")]
mod recorded {
    use std::time::Duration;

    type Label = (&'static str, &'static str);

    pub(super) fn count(name: &'static str, label: Option<Label>, number: u64) {
        match label {
            Some((key, value)) => metrics::counter!(name, key => value).increment(number),
            None => metrics::counter!(name).increment(number),
        };
    }

    pub(super) fn time(name: &'static str, (key, value): Label, took: Duration) {
        metrics::histogram!(name, key => value).record(took.as_secs_f64());
    }
}

#[cfg(not(feature = "metrics"))]
mod recorded {
    use std::time::Duration;

    type Label = (&'static str, &'static str);

    pub(super) const fn count(_name: &'static str, _label: Option<Label>, _number: u64) {}

    pub(super) const fn time(_name: &'static str, _label: Label, _took: Duration) {}
}
