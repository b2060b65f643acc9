//! Acquires a lease. Each wait is a task of the client, and so is each single try; those for one lock share a slot.

mod asking;
mod attempt;
mod deadline;
mod failure;
pub(crate) mod left_mark;
mod params;
mod place;
mod read;
mod several;
pub(crate) mod slot;
pub(crate) mod tracker;
mod try_acquire;
mod turns;
mod uncollected;
mod waiter;

pub(crate) use failure::AcquireFailure;
pub(crate) use params::{AcquireParams, Purpose};
pub(crate) use read::{read_until, try_read};
pub(crate) use several::Several;
pub(crate) use try_acquire::try_acquire;
pub(in crate::runtime) use uncollected::UncollectedLease;
pub(crate) use waiter::acquire_until;
