//! Real servers on loopback, every kind that this machine has: counts, hangs, crashes, odd servers.
//!
//! These tests wait for real time on machines that do other things as well: they compare measures
//! with each other and with the timeouts that they set, and never with the speed of some machine.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod attach;
mod background_release;
mod cancel;
mod counts;
mod credentials;
mod crowd;
mod defaults;
mod elections;
mod ending;
mod exclusion;
mod floods;
mod full;
mod hung;
mod interop;
mod kept;
mod liars;
mod links;
mod listing;
mod lock_all;
mod loss;
mod memory;
mod names;
mod namesakes;
mod odd;
mod order;
mod permits;
mod read;
mod readme;
mod reentry;
mod refusing;
mod renewing;
mod requests;
mod restart;
mod scripts;
mod sentinel;
mod support;
#[cfg(feature = "tls-rustls")]
mod tls;
mod tokens;
mod tries;
mod unpolled;
mod wire;
mod words;
