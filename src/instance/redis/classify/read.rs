//! What answers and errors have in common, whatever was asked.

use redis::{RedisError, Value};

use super::cause::{clip, server_cause};
use crate::protocol::{Cause, Reply};

/// The most that is kept of a value that stands in the way: more than any of ours has, and what other
/// programs put there may be anything.
const MAX_VALUE: usize = 4096;

/// A number in a grant is the instant at which the lock expires (in the year 1973 or later), and no
/// count or code.
pub(super) const LEAST_EXPIRY_MS: i64 = 100_000_000_000;

/// What no script of ours says.
pub(super) fn odd(value: &Value) -> Reply {
    Reply::Unknown(Cause::OddReply(clip(&format!("{value:?}"))))
}

pub(super) fn kept(value: &[u8]) -> Vec<u8> {
    value.get(..MAX_VALUE).unwrap_or(value).to_vec()
}

pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

/// An error of the server: the script may have been carried out in part, so it is unknown, except
/// where the server says that it did not know the script.
pub(super) fn server_error(code: &str, details: &str) -> Reply {
    match code {
        "NOSCRIPT" => Reply::NotSent(Cause::ScriptMissing),
        _ => Reply::Unknown(server_cause(code, details)),
    }
}

pub(super) fn redis_error(error: &RedisError) -> Reply {
    match error.code() {
        // A server's error that the client library turned into one of its own.
        Some(code) => server_error(code, error.detail().unwrap_or_default()),
        None => Reply::Unknown(Cause::Disconnected(clip(&error.to_string()))),
    }
}
