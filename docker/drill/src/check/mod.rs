//! Judges a merged history by true time: all logs are of one clock.

mod availability;
mod leases;
mod rules;
#[cfg(test)]
mod tests;
mod usage;
mod waiting;

pub(crate) use availability::{Availability, Phase, PhaseBounds, availability};
pub(crate) use leases::{ObservedLease, leases};
pub(crate) use rules::{CheckLimits, READ, Violation, violations};
pub(crate) use usage::{Course, Usage};
pub(crate) use waiting::{Crash, WaitLimits, WaitPhase, Waiting};

use crate::event::Event;

/// All that a history says.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) leases: Vec<ObservedLease>,
    pub(crate) marks: PhaseBounds,
    pub(crate) availability: Availability,
    /// `None` if nobody waited.
    pub(crate) waiting: Option<Waiting>,
    /// Of processes that ran for long.
    pub(crate) usage: Vec<Usage>,
    pub(crate) violations: Vec<Violation>,
}

impl Judgement {
    pub(crate) fn of(history: &[Event], limits: CheckLimits) -> Self {
        let leases = leases(history);
        let (marks, availability) = availability(history, &leases);
        let mut violations = violations(history, &leases, limits);
        let waiting = Waiting::of(history, &leases, &marks, limits.waiting, &mut violations);
        let usage = Usage::of(history);
        violations.extend(usage.iter().flat_map(Usage::violations));
        violations.sort_by_key(|violation| violation.at);
        Self { leases, marks, availability, waiting, usage, violations }
    }
}
