//! Acquires a lease: tries until one is won, each in a task of its own.

mod attempt;
mod failure;
pub(crate) mod limiter;
mod params;
mod reentry;
pub(crate) mod reentry_table;
pub(crate) mod tracker;
mod try_acquire;
mod uncollected;
mod waiting;

pub(crate) use failure::AcquireFailure;
pub(crate) use params::AcquireParams;
pub(crate) use try_acquire::try_acquire;
pub(crate) use waiting::acquire_until;
