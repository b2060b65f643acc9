//! The program `redquorum` as people and scripts see it: real processes, on real servers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod admission;
mod config;
mod connections;
mod environment;
mod exits;
mod looking;
mod losses;
mod overlap;
mod permits;
mod readiness;
mod secrets;
mod shared;
mod support;
mod telling;
mod terminal;
mod views;
