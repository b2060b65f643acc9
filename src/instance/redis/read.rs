//! Reads what is stored for a lock.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::classify::failed;
use super::connection::InstanceConnection;
use super::plain::read_beginning;
use crate::instance::{AreFreeFuture, ReadFuture, StoredKey};
use crate::protocol::{Cause, FencingToken};
use crate::resource::{Resource, TOKENS_KEY};

/// How much of a value is read: what other programs put under the key of a lock may be longer than any answer that is
/// accepted.
const MOST_OF_ANY_VALUE: u64 = 64 * 1024;

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
    let (answer, deadline) = (connection.wire().ask_all(&commands), connection.deadline());
    Box::pin(async move {
        match timeout(deadline, answer.replies_without_error()).await {
            Ok(Ok(values)) => Ok(stored(&values)),
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

fn stored(values: &[Value]) -> StoredKey {
    let [value, left, token, ..] = values else { return StoredKey::default() };
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
    StoredKey { value: bytes(value).filter(|_| is_there), expires_in, token }
}
