//! Reads what is stored for a lock.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::classify::{error_of, failed};
use super::connection::InstanceConnection;
use super::plain::read_beginning;
use super::wire::Answer;
use crate::instance::{AreFreeFuture, Read, ReadFuture, StoredKey};
use crate::protocol::{Cause, FencingToken, READERS};
use crate::resource::{Resource, TOKENS_KEY};

/// How much of a value is read: what other programs put under the key of a lock may be longer than any answer that is
/// accepted.
const MOST_OF_ANY_VALUE: u64 = 64 * 1024;

/// How many readers of a lock are told of: as many as fit into an answer.
const MOST_READERS: usize = 64;

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
    commands.cmd("PTTL").arg(key).cmd("ZSCORE").arg(TOKENS_KEY).arg(key).cmd("ZSCORE").arg(key).arg(READERS);
    let (wire, deadline) = (connection.wire().clone(), connection.deadline());
    let (answer, resource) = (wire.ask_all(&commands), resource.clone());
    Box::pin(async move {
        let values = answered(answer, deadline).await?;
        if !is_of_readers(&values) {
            return stored(&values);
        }
        // Only now: of another program's set even a few members may be more than is accepted as an answer.
        let members = redis::pipe().cmd("ZRANGE").arg(resource.key()).arg(0).arg(MOST_READERS - 1).to_owned();
        let members = answered(wire.ask_all(&members), deadline).await?;
        let readers = members.first().map(texts).unwrap_or_default();
        Ok(StoredKey { value: None, readers, ..stored_beside(&values) })
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

async fn answered(answer: Answer, deadline: Duration) -> Result<Vec<Value>, Cause> {
    match timeout(deadline, answer.replies()).await {
        Ok(values) => values.map_err(|error| failed(&error)),
        Err(_) => Err(Cause::TimedOut),
    }
}

/// The key is a string, a set of readers, or another program's: some of the answers may be errors.
fn is_of_readers(values: &[Value]) -> bool {
    match values.get(3) {
        Some(Value::Double(score)) => *score == f64::INFINITY,
        Some(Value::BulkString(score)) => score == b"inf",
        _ => false,
    }
}

fn stored(values: &[Value]) -> Read {
    if let Some(failed) = values.iter().take(3).find_map(error_of) {
        return Err(failed);
    }
    Ok(stored_beside(values))
}

/// What is not told of readers.
fn stored_beside(values: &[Value]) -> StoredKey {
    let [value, left, token, ..] = values else { return StoredKey::default() };
    let is_there = *left != MISSING; // GETRANGE knows no difference between nothing and an empty value
    let expires_in = match left {
        Value::Int(left) => u64::try_from(*left).ok().map(Duration::from_millis), // negative: none, or for ever
        _ => None,
    };
    let token = match token {
        Value::Double(score) => FencingToken::from_score(*score),
        other => bytes(other).and_then(|token| FencingToken::from_wire(&token)),
    };
    StoredKey { value: bytes(value).filter(|_| is_there), readers: Vec::new(), expires_in, token }
}

fn texts(members: &Value) -> Vec<Vec<u8>> {
    let Value::Array(members) = members else { return Vec::new() };
    members.iter().filter_map(bytes).filter(|member| member != READERS).collect()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    }
}
