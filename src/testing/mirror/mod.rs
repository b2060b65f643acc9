//! What the scripts do, written a second time in Rust, without a server and without time of its own.
//!
//! The servers in this process carry out requests by it, and `tests/conformance` holds it against real ones.

pub(super) mod bulk;
pub(super) mod readers;
pub(super) mod scripts;
pub(super) mod store;
