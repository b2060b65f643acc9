//! Judges a merged history by true time: all logs are of one clock.

mod availability;
mod leases;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use availability::{Availability, Phase, PhaseBounds, availability};
pub(crate) use leases::{ObservedLease, leases};
pub(crate) use rules::{CheckLimits, Violation, violations};
