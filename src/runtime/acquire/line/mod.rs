//! Who waits in this client for one lock, first come first served (P24).
//!
//! One task asks on the wire for all of them: the asker. A lease that it wins, or that somebody of this client lets go,
//! is offered to the first, who takes it with the next poll. Whoever does not take it in time is passed over,
//! and keeps the place (P22).
//!
//! Everything about a line is decided under its one mutex, and nothing foreign runs there: wakers are woken, leases
//! are released and tasks are ended after it.

mod asking;
mod guards;
pub(crate) mod lines;
mod places;
mod queue;
mod state;
mod turns;

pub(super) use asking::{NextStep, Parked};
pub(super) use places::Turn;
pub(super) use queue::PlaceNumber;
pub(super) use state::{Aftermath, AskerId, AskerStart, Line};
