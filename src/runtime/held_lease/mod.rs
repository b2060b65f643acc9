//! A lease that is held: shared by its guards, those who wait for its loss, and the task that renews it.

mod end;
mod held;
mod renewal_policy;
mod state;
mod tenure;
#[cfg(test)]
pub(super) mod tests;

pub(crate) use end::LeaseEnd;
pub(super) use end::who_did_not_grant;
pub(super) use held::{AfterLoss, EndNotice};
pub(crate) use held::{HeldLease, LeaseRelease};
pub(crate) use renewal_policy::RenewalPolicy;
pub(super) use state::{Acquired, HeldLeaseState, ScheduleKey};
pub(crate) use state::{GuardNumber, Wish};
pub(crate) use tenure::{Tenure, Validity};
