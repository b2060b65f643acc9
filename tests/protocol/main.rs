//! The pure protocol against statements of its rules that are written down here a second time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod any_order;
mod contest;
mod defeat;
mod fencing;
mod lease;
mod renewal;
#[path = "../shared/rng.rs"]
#[expect(dead_code, reason = "others draw more")]
mod rng;
mod support;
mod tables;
mod wire;
