//! The deterministic simulator: production's `protocol` against fake instances in virtual time.
//!
//! `cargo test --test sim` runs the fixed set, the planted bugs and shrinking; see `cli` for more.
#![expect(clippy::expect_used, reason = "test code")]

mod admission;
#[path = "../shared/batch.rs"]
mod batch;
mod cli;
mod client;
mod clock;
mod faults;
mod instance;
mod interleavings;
mod invariants;
mod line;
mod mirror;
mod mutants;
mod plain;
mod reservation;
#[path = "../shared/rng.rs"]
mod rng;
mod runner;
mod scenario;
mod shrink;
mod stats;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
