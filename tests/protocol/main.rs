//! The pure protocol against statements of its rules that are written down here a second time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod any_order;
mod defeat;
mod fencing;
mod lease;
mod renewal;
mod support;
mod tables;
mod wire;
