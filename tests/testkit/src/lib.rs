//! Real Redis and Valkey servers on free loopback ports, for tests, examples and benches.
//!
//! ```
//! use redquorum_testkit::{Fleet, Program};
//!
//! # fn main() -> Result<(), redquorum_testkit::Error> {
//! let fleet = Fleet::start(&Program::required()?, 3)?;
//! fleet[0].hang()?; // accepts connections, answers nothing
//! fleet[1].kill()?; // refuses connections
//! fleet[2].command(&["SET", "orders:42", "held"])?;
//! assert_eq!(fleet[2].keys()?, ["orders:42"]);
//! fleet[1].restart()?; // same port, empty
//! # Ok(())
//! # }
//! ```
//!
//! - [`Program`] finds the servers of this machine, [`Program::all_required`] one of each kind.
//! - [`Server`] and [`Fleet`] run them; all that a value started ends when it is dropped, hung or not.
//! - [`Proxy`] stands before a server and delays, loses or cuts what passes.
//! - [`in_a_child`] forks.
//! - [`Stalls`] tells whether the machine stood still meanwhile.
//! - [`Client`] speaks RESP2 with a deadline, [`wait_until`] waits for a condition.
//!
//! Nothing outlives the process either, however it ends: a small shell holds the read end of a
//! pipe, and when the pipe closes it kills what is left and removes the directories. So a `Fleet`
//! may live in a `static`. The kit runs on Unix and needs no async runtime.

mod child;
mod clock;
mod error;
mod fleet;
mod home;
mod ports;
mod process;
mod program;
mod proxy;
mod resp;
mod server;
mod stalls;
mod stats;

pub use child::in_a_child;
pub use clock::wait_until;
pub use error::Error;
pub use fleet::Fleet;
pub use program::{Kind, Program};
pub use proxy::Proxy;
pub use resp::{Client, Reply};
pub use server::{Server, ServerBuilder};
pub use stalls::Stalls;

/// Its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/contributing.md")]
struct Contributing;
