//! Acquires a lease. Whoever waits stands in a line, and one task asks on the wire for all of it; a single try has a
//! task of its own.

pub(crate) mod ask_limit;
mod asker;
mod attempt;
mod failure;
pub(crate) mod limiter;
pub(crate) mod line;
mod params;
mod pauses;
mod place;
mod share;
pub(crate) mod tracker;
mod try_acquire;
mod uncollected;
mod waiting;

pub(crate) use failure::AcquireFailure;
pub(crate) use params::AcquireParams;
pub(crate) use try_acquire::try_acquire;
pub(in crate::runtime) use uncollected::UncollectedLease;
pub(crate) use waiting::acquire_until;
