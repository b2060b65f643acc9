//! How well the locks could be had before, during and after the faults.

use serde::Serialize;

use super::leases::ObservedLease;
use super::rules::millis;
use crate::clock::Nanos;
use crate::event::{DenialReason, Event, EventKind};

/// A part of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Phase {
    pub(crate) granted: usize,
    /// Refused because another client holds the lock; no sign of trouble.
    pub(crate) held: usize,
    /// Failed because of the instances.
    pub(crate) failed: usize,
    /// `granted / (granted + failed)`.
    pub(crate) share: Option<f64>,
    /// The longest time without a grant or an extend, in milliseconds.
    pub(crate) longest_gap_ms: f64,
    /// The longest failed try, in milliseconds.
    pub(crate) slowest_failure_ms: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Availability {
    pub(crate) before: Phase,
    pub(crate) during: Phase,
    pub(crate) after: Phase,
    /// From the end of the faults to the next grant, in milliseconds; `None` if there was none.
    pub(crate) recovery_ms: Option<f64>,
    /// One of the causes that were given while the fault was there.
    pub(crate) cause: Option<String>,
}

/// The instants at which the phases change: start of the workload, first fault, end of the last fault, end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PhaseBounds {
    pub(crate) start: Nanos,
    pub(crate) fault: Nanos,
    pub(crate) healed: Nanos,
    pub(crate) end: Nanos,
}

impl PhaseBounds {
    pub(crate) fn of(history: &[Event], leases: &[ObservedLease]) -> Self {
        let at = |wanted: &EventKind| history.iter().find(|event| event.kind == *wanted).map(|event| event.at);
        let end = history.iter().map(|event| event.at).max().unwrap_or(0);
        let start = leases.first().map_or(end, |lease| lease.from);
        let fault = at(&EventKind::Fault).unwrap_or(end);
        let healed = at(&EventKind::Healed).unwrap_or(end);
        Self { start: start.min(fault), fault, healed, end }
    }
}

pub(crate) fn availability(history: &[Event], leases: &[ObservedLease]) -> (PhaseBounds, Availability) {
    let marks = PhaseBounds::of(history, leases);
    let phase = |from, to| phase(history, leases, from, to);
    let recovered = leases.iter().find(|lease| lease.from >= marks.healed);
    let cause = history.iter().find_map(|event| match &event.kind {
        EventKind::Denied { answer: DenialReason::Failed, cause, .. }
            if (marks.fault..marks.healed).contains(&event.at) =>
        {
            Some(cause.clone())
        }
        _ => None,
    });
    let availability = Availability {
        before: phase(marks.start, marks.fault),
        during: phase(marks.fault, marks.healed),
        after: phase(marks.healed, marks.end),
        recovery_ms: recovered.map(|lease| millis(lease.from.saturating_sub(marks.healed))),
        cause,
    };
    (marks, availability)
}

/// What ended in `from..to`.
fn phase(history: &[Event], leases: &[ObservedLease], from: Nanos, to: Nanos) -> Phase {
    let within = |at: Nanos| (from..to).contains(&at);
    let mut phase = Phase { granted: leases.iter().filter(|lease| within(lease.from)).count(), ..Phase::default() };
    for event in history.iter().filter(|event| within(event.at)) {
        if let EventKind::Denied { answer, asked, .. } = &event.kind {
            match answer {
                DenialReason::Held => phase.held += 1,
                DenialReason::Failed => {
                    phase.failed += 1;
                    let took = millis(event.at.saturating_sub(*asked));
                    phase.slowest_failure_ms = phase.slowest_failure_ms.max(took);
                }
            }
        }
    }
    phase.share = share(phase.granted, phase.failed);
    phase.longest_gap_ms = longest_gap(leases, from, to);
    phase
}

#[expect(clippy::cast_precision_loss, reason = "only shown")]
fn share(granted: usize, failed: usize) -> Option<f64> {
    let all = granted + failed;
    (all > 0).then(|| granted as f64 / all as f64)
}

fn longest_gap(leases: &[ObservedLease], from: Nanos, to: Nanos) -> f64 {
    let promises = leases.iter().flat_map(|lease| lease.promises.iter().map(|promise| promise.0));
    let mut instants: Vec<Nanos> = promises.filter(|at| (from..to).contains(at)).chain([from, to]).collect();
    instants.sort_unstable();
    let gaps = instants.iter().zip(instants.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a));
    millis(gaps.max().unwrap_or(0))
}
