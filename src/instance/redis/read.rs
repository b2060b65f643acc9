//! Reads what is stored for a lock.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::classify::{error_of, failed};
use super::connection::InstanceConnection;
use super::plain::read_beginning;
use crate::instance::{AreFreeFuture, Read, ReadFuture, StoredKey};
use crate::protocol::{Cause, FencingToken, READERS};
use crate::resource::{Resource, TOKENS_KEY};

/// How much of a value is read: what other programs put under the key of a lock may be longer than any answer that is
/// accepted.
const MOST_OF_ANY_VALUE: u64 = 64 * 1024;

/// How many readers of a lock are told of.
const MOST_READERS: usize = 256;

/// What `PTTL` says where there is no key.
const MISSING: Value = Value::Int(-2);

/// Queues the reads. They do not wait in the send queue: nothing depends on their order.
pub(super) fn read(connection: &Arc<InstanceConnection>, resource: &Resource) -> ReadFuture {
    if connection.is_silent() {
        return Box::pin(ready(Err(Cause::Silent)));
    }
    let mut commands = redis::pipe();
    let key = resource.key();
    read_beginning(&mut commands, key, MOST_OF_ANY_VALUE);
    commands.cmd("PTTL").arg(key).cmd("ZSCORE").arg(TOKENS_KEY).arg(key);
    commands.cmd("ZSCORE").arg(key).arg(READERS).cmd("ZRANGE").arg(key).arg(0).arg(MOST_READERS - 1);
    let (answer, deadline) = (connection.wire().ask_all(&commands), connection.deadline());
    Box::pin(async move {
        match timeout(deadline, answer.replies()).await {
            Ok(Ok(values)) => stored(&values),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(Cause::TimedOut),
        }
    })
}

/// Asks which of several locks are free: for each whether nothing is stored.
pub(super) fn are_free(connection: &Arc<InstanceConnection>, resources: &[Resource]) -> AreFreeFuture {
    if connection.is_silent() {
        return Box::pin(ready(Err(Cause::Silent)));
    }
    let mut commands = redis::pipe();
    for resource in resources {
        commands.cmd("PTTL").arg(resource.key());
    }
    let (answer, deadline) = (connection.wire().ask_all(&commands), connection.deadline());
    Box::pin(async move {
        match timeout(deadline, answer.replies_without_error()).await {
            Ok(Ok(left)) => Ok(left.iter().map(|left| *left == MISSING).collect()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(Cause::TimedOut),
        }
    })
}

/// Some of the answers are errors: the key is either a string or a set of readers, if it is not another program's.
fn stored(values: &[Value]) -> Read {
    let [value, left, token, marker, members] = values else { return Ok(StoredKey::default()) };
    let is_of_readers = match marker {
        Value::Double(score) => *score == f64::INFINITY,
        Value::BulkString(score) => score == b"inf",
        _ => false,
    };
    let asked = if is_of_readers { [left, token, members] } else { [value, left, token] };
    if let Some(failed) = asked.into_iter().find_map(error_of) {
        return Err(failed);
    }
    let bytes = |value: &Value| match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    };
    let is_there = *left != MISSING; // GETRANGE knows no difference between nothing and an empty value
    let expires_in = match left {
        Value::Int(left) => u64::try_from(*left).ok().map(Duration::from_millis), // negative: none, or for ever
        _ => None,
    };
    let token = match token {
        Value::Double(score) => FencingToken::from_score(*score),
        other => bytes(other).and_then(|token| FencingToken::from_wire(&token)),
    };
    let readers = match members {
        Value::Array(members) if is_of_readers => members.iter().filter_map(bytes).collect(),
        _ => Vec::new(),
    };
    let readers = readers.into_iter().filter(|member: &Vec<u8>| member != READERS).collect();
    Ok(StoredKey { value: bytes(value).filter(|_| is_there), readers, expires_in, token })
}
