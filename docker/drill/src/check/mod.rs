//! Judges a merged history by true time: all logs are of one clock.

mod availability;
mod leases;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use availability::{Availability, Marks, Phase, availability};
pub(crate) use leases::{Lease, leases};
pub(crate) use rules::{Terms, Violation, violations};
