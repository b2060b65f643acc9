//! Those who wait for a lock: in which order they got in, and how long it took them.

mod observed;
mod phases;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use phases::WaitPhase;
pub(crate) use rules::{Crash, WaitLimits};

use serde::Serialize;

use super::{ObservedLease, PhaseBounds, Violation};
use crate::event::Event;

/// What became of all waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Waiting {
    pub(crate) phases: Vec<WaitPhase>,
    pub(crate) crashes: Vec<Crash>,
}

impl Waiting {
    /// `None` if nobody waited. Adds to the violations what is not within the limits, if there are any.
    pub(crate) fn of(
        history: &[Event],
        leases: &[ObservedLease],
        marks: &PhaseBounds,
        limits: Option<WaitLimits>,
        violations: &mut Vec<Violation>,
    ) -> Option<Self> {
        let waits = observed::waits(history, leases);
        let resource = waits.first()?.resource.clone();
        let leases: Vec<&ObservedLease> = leases.iter().filter(|lease| lease.resource == resource).collect();
        let crashes = rules::crashes(history, &leases);
        if let Some(limits) = limits {
            violations.extend(rules::violations(history, &waits, &crashes, marks, limits));
        }
        Some(Self { phases: phases::phases(history, &leases, &waits, marks), crashes })
    }
}
