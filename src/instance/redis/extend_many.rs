//! Many leases in one command: extends, and checks of the keys that are being watched.

use std::future::ready;
use std::sync::Arc;

use redis::Pipeline;
use tokio::time::timeout;

use super::classify::{classify_extend_many, classify_key_check};
use super::connection::InstanceConnection;
use super::driver::poll_once;
use super::plain::{MOST_OF_A_VALUE, read_beginning};
use crate::instance::{Claim, ExtendManyFuture, ExtendReply, KeyCheckFuture, KeyState};
use crate::protocol::{Cause, Reply};

/// Queues one command that extends all `claims`.
///
/// It does not wait in the send queue: a release that is called later is sent later in any case (P6).
pub(super) fn extend_many(connection: &Arc<InstanceConnection>, claims: &[Arc<Claim>]) -> ExtendManyFuture {
    let count = claims.len();
    if connection.is_silent() {
        let reply = connection.counted(Reply::NotSent(Cause::Silent), count);
        return Box::pin(ready(vec![ExtendReply::Decided(reply); count]));
    }
    connection.note_request();
    let sent = connection.send(count, |attached| connection.scripts().extend_many(claims, attached));
    let connection = Arc::clone(connection);
    Box::pin(async move {
        let Some((result, answered)) = connection.answer(sent).await else {
            let reply = connection.counted(Reply::Unknown(Cause::TimedOut), count); // P5
            return vec![ExtendReply::Decided(reply); count];
        };
        let (raw, without_value) = classify_extend_many(count, result);
        let observed = connection.observe(raw, true, &answered);
        let reply = connection.judge(observed, &answered);
        // Those without the value are asked again one by one, and counted then; so are all whose script was missing, behind
        // the scripts, which are on their way again.
        let again: Vec<usize> = match &reply {
            Reply::Granted => without_value,
            Reply::NotSent(Cause::ScriptMissing) => (0..count).collect(),
            _ => Vec::new(),
        };
        let reply = connection.counted(reply, count - again.len().min(count));
        let mut replies = vec![ExtendReply::Decided(reply); count];
        for index in again {
            replies.get_mut(index).into_iter().for_each(|reply| *reply = ExtendReply::ExtendAlone);
        }
        replies
    })
}

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

/// Queues one check of all keys of `claims`, and asks for a push when any of them changes.
pub(super) fn check_keys(connection: &Arc<InstanceConnection>, claims: Vec<Arc<Claim>>) -> KeyCheckFuture {
    let unknown = vec![KeyState::Unknown; claims.len()];
    if connection.is_silent() || !connection.is_tracking() {
        return Box::pin(ready(unknown));
    }
    let keys = claims.iter().flat_map(|claim| claim.resources.lock_keys());
    let commands = if connection.has_long_values() { read_beginnings(keys) } else { read_all(keys) };
    let mut multiplexed = connection.multiplexed();
    let result = poll_once(async move { multiplexed.send_packed_commands(&commands, 0, commands.len()).await });
    let deadline = connection.deadline();
    Box::pin(async move {
        match timeout(deadline, result).await {
            Ok(Ok(answers)) => classify_key_check(&claims, &answers).unwrap_or(unknown),
            // Requests find out what is wrong with the connection; this only checks.
            Ok(Err(_)) | Err(_) => unknown,
        }
    })
}
