//! Checks of the keys of leases that are watched.

use std::future::ready;
use std::sync::Arc;

use redis::{Pipeline, Value};
use tokio::time::timeout;

use super::classify::{classify_key_check, failed};
use super::connection::InstanceConnection;
use super::plain::read_beginning;
use super::read::read;
use super::reply_bound::MOST_OF_A_VALUE;
use crate::instance::{Claim, KeyCheckFuture, KeyState, LookFuture};
use crate::protocol::Cause;
use crate::resource::Resource;

/// Reads all keys at once, and asks for a push when any of them changes.
fn read_all<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("CLIENT").arg("CACHING").arg("YES").cmd("MGET");
    for key in keys {
        commands.arg(key);
    }
    commands
}

/// The same, of each key as much as a value of this library may take: what another program keeps there may be more
/// than is accepted as an answer.
fn read_beginnings<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Pipeline {
    let mut commands = redis::pipe();
    for key in keys {
        commands.cmd("CLIENT").arg("CACHING").arg("YES");
        read_beginning(&mut commands, key, MOST_OF_A_VALUE);
    }
    commands
}

/// Reads one key that others hold, and asks for a push when it changes, where the instance pushes.
pub(super) fn look(connection: &Arc<InstanceConnection>, resource: &Resource) -> LookFuture {
    if !connection.is_tracking() || connection.is_silent() {
        let read = read(connection, resource);
        return Box::pin(async move { read.await.map(|stored| stored.value) });
    }
    let key = std::iter::once(resource.key());
    let commands = if connection.has_long_values() { read_beginnings(key) } else { read_all(key) };
    let (answer, deadline) = (connection.wire().ask_all(&commands), connection.deadline());
    Box::pin(async move {
        match timeout(deadline, answer.replies_without_error()).await {
            Ok(Ok(replies)) => Ok(replies.last().and_then(value_of)),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(Cause::TimedOut),
        }
    })
}

/// The value in the answer to a look at one key. GETRANGE knows no difference between nothing and an empty value.
fn value_of(answer: &Value) -> Option<Vec<u8>> {
    match answer {
        Value::Array(values) => value_of(values.first()?),
        Value::BulkString(value) => Some(value.clone()).filter(|value| !value.is_empty()),
        _ => None,
    }
}

/// Queues one check of all keys of `claims`, and asks for a push when any of them changes.
pub(super) fn check_keys(connection: &Arc<InstanceConnection>, claims: Vec<Arc<Claim>>) -> KeyCheckFuture {
    let unknown = vec![KeyState::Unknown; claims.len()];
    if connection.is_silent() || !connection.is_tracking() {
        return Box::pin(ready(unknown));
    }
    let keys = claims.iter().map(|claim| claim.resource.key());
    let commands = if connection.has_long_values() { read_beginnings(keys) } else { read_all(keys) };
    let (answer, deadline) = (connection.wire().ask_all(&commands), connection.deadline());
    Box::pin(async move {
        match timeout(deadline, answer.replies()).await {
            Ok(Ok(answers)) => classify_key_check(&claims, &answers).unwrap_or(unknown),
            // Requests find out what is wrong with the connection; this only checks.
            Ok(Err(_)) | Err(_) => unknown,
        }
    })
}
