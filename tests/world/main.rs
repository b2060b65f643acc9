//! The whole library in a simulated world: real clients, with their connections, queues and tasks, on
//! machines with clocks of their own, a network that delays and breaks, and servers that fail.
//!
//! `cargo test --test world` runs the fixed set; see `cli` for more.
#![expect(clippy::expect_used, reason = "test code")]

mod batch;
mod chaos;
mod cli;
mod crowds;
mod cut;
mod deeds;
mod demand;
mod faults;
mod given;
#[path = "../shared/grouped.rs"]
mod grouped;
mod history;
mod invariants;
mod judge;
mod judged;
mod left_behind;
#[path = "../shared/lua.rs"]
mod lua;
#[path = "../shared/marks.rs"]
mod marks;
mod movers;
mod net;
mod operator;
mod planted;
mod recorder;
#[path = "../shared/rng.rs"]
mod rng;
mod runner;
mod runtimes;
mod scenario;
mod schedule;
mod sharers;
mod shrink;
mod stats;
mod time;
mod users;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
