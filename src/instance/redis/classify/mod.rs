//! From a server's answers to [`Reply`](crate::protocol::Reply)s: the only place that knows the redis crate's errors.
//!
//! Whatever a server says, only the exact words of the request's own script count as a grant.

mod cause;
mod key_check;
mod plain;
mod read;
mod scripts;

pub(crate) use cause::{clip, failed};
pub(crate) use key_check::classify_key_check;
pub(crate) use plain::classify_plain;
pub(crate) use read::{Said, beginning, bytes, error_of, is_a_fault_of_a_request};
pub(crate) use scripts::{classify_acquires, classify_extends, classify_readers, classify_releases};

#[cfg(test)]
mod tests;
