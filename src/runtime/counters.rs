//! What a client has done so far, counted. Nothing here is counted under a mutex: a recorder of metrics is foreign code.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::log_limit::LogLimit;

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Acquired {
        is_handed_over: bool,
    },
    Contended,
    /// Of this kind ([`AcquireError::kind`](crate::AcquireError::kind)).
    Failed(&'static str),
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    Expired,
    MaxHold,
    Gone,
    TakenOver,
}

impl LossKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::MaxHold => "max_hold",
            Self::Gone => "gone",
            Self::TakenOver => "taken_over",
        }
    }
}

/// Counters of one client; each only rises.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) acquired: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) contended: Counter,
    pub(crate) failed: Counter,
    /// Over all acquires that gave a lock.
    pub(crate) acquire_micros: AtomicU64,
    pub(crate) rounds: Counter,
    pub(crate) renewals: Counter,
    pub(crate) failed_renewals: Counter,
    pub(crate) expired: Counter,
    pub(crate) max_hold: Counter,
    pub(crate) gone: Counter,
    pub(crate) taken_over: Counter,
    /// Bounds the warnings of lost leases.
    pub(super) loss_warnings: LogLimit<16>,
    /// Bounds the warnings of renewals that fail, and of leases that are held for long.
    pub(super) renewal_warnings: LogLimit<16>,
    /// Bounds the warnings of releases behind work.
    pub(crate) release_warnings: LogLimit<16>,
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

/// A number that only rises, and is recorded for the facade `metrics` as it does.
#[derive(Debug)]
pub(crate) struct Counter {
    number: AtomicU64,
    /// The name of the metric, and a label if it has one.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nothing is recorded"))]
    metric: (&'static str, Option<(&'static str, &'static str)>),
}

impl Counter {
    const fn new(name: &'static str, label: Option<(&'static str, &'static str)>) -> Self {
        Self { number: AtomicU64::new(0), metric: (name, label) }
    }

    pub(crate) fn get(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, number: u64) {
        self.add_of(number, None);
    }

    /// The same for events of one kind.
    fn add_of(&self, number: u64, kind: Option<&'static str>) {
        self.number.fetch_add(number, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.record(number, kind);
        #[cfg(not(feature = "metrics"))]
        let _ = kind;
    }

    /// Records a rise; by zero where a number is to be seen that has not risen yet.
    #[cfg(feature = "metrics")]
    fn record(&self, number: u64, kind: Option<&'static str>) {
        let (name, label) = self.metric;
        let labels: Vec<_> = label.into_iter().chain(kind.map(|kind| ("kind", kind))).collect();
        metrics::counter!(name, &labels).increment(number);
    }
}

impl Default for Counters {
    fn default() -> Self {
        let acquires = |outcome| Counter::new("redquorum_acquires_total", Some(("outcome", outcome)));
        let renewals = |result| Counter::new("redquorum_renewals_total", Some(("result", result)));
        let losses = |kind: LossKind| Counter::new("redquorum_losses_total", Some(("cause", kind.name())));
        Self {
            acquired: acquires("acquired"),
            contended: acquires("contended"),
            failed: acquires("failed"),
            handed_over: Counter::new("redquorum_hand_overs_total", None),
            rounds: Counter::new("redquorum_acquire_rounds_total", None),
            renewals: renewals("won"),
            failed_renewals: renewals("lost"),
            expired: losses(LossKind::Expired),
            max_hold: losses(LossKind::MaxHold),
            gone: losses(LossKind::Gone),
            taken_over: losses(LossKind::TakenOver),
            acquire_micros: AtomicU64::new(0),
            loss_warnings: LogLimit::default(),
            renewal_warnings: LogLimit::default(),
            release_warnings: LogLimit::default(),
            #[cfg(feature = "metrics")]
            recorded: RecordedCounts::default(),
        }
    }
}

impl Counters {
    /// An acquire has ended, after so long.
    pub(crate) fn acquire_ended(&self, outcome: AcquireOutcome, took: Duration) {
        let (counter, kind) = match outcome {
            AcquireOutcome::Acquired { is_handed_over } => {
                self.acquire_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
                self.handed_over.add(is_handed_over.into());
                (&self.acquired, None)
            }
            AcquireOutcome::Contended => (&self.contended, None),
            AcquireOutcome::Failed(kind) => (&self.failed, Some(kind)),
        };
        counter.add_of(1, kind);
        #[cfg(feature = "metrics")]
        if let Some((key, value)) = counter.metric.1 {
            metrics::histogram!("redquorum_acquire_seconds", key => value).record(took.as_secs_f64());
        }
    }

    /// A lease was lost.
    pub(super) fn lost(&self, kind: LossKind) {
        let counter = match kind {
            LossKind::Expired => &self.expired,
            LossKind::MaxHold => &self.max_hold,
            LossKind::Gone => &self.gone,
            LossKind::TakenOver => &self.taken_over,
        };
        counter.add(1);
    }

    /// Records all as they are for the first time: they begin at zero and not with the first event, which would be no rise
    /// for a monitoring system.
    #[cfg(feature = "metrics")]
    pub(crate) fn record(&self, kinds_of_failures: &[&'static str]) {
        let acquires = [&self.acquired, &self.contended, &self.handed_over, &self.rounds];
        let renewals = [&self.renewals, &self.failed_renewals];
        let losses = [&self.expired, &self.max_hold, &self.gone, &self.taken_over];
        acquires.into_iter().chain(renewals).chain(losses).for_each(|counter| counter.record(0, None));
        kinds_of_failures.iter().for_each(|kind| self.failed.record(0, Some(kind)));
    }
}
