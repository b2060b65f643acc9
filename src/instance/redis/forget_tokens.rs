//! Removes old fencing tokens from an instance, a few at a time (P13).

use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{sleep, timeout};

use super::connection::InstanceConnection;
use super::scripts;
use crate::resource::{NO_LOCK, TOKENS_KEY};

/// Before all tokens.
const FIRST: &str = "-inf";

/// The pause before the next few of those that are known to be left.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// The pause after all were looked at: a small part of the time for which they are kept, within these.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60 * 60);
const PARTS: u32 = 64;

/// Removes what is older than `retention`, for as long as the connection lasts. It begins at once, for the
/// clients that never stay for long.
pub(super) async fn keep_forgetting_tokens(connection: &InstanceConnection, retention: Duration) {
    let mut from = FIRST.to_owned();
    loop {
        let next = forget_some(connection, retention, &from).await;
        let pause = if next.is_some() { SHORT_PAUSE } else { (retention / PARTS).clamp(LEAST_PAUSE, MOST_PAUSE) };
        from = next.unwrap_or_else(|| FIRST.to_owned());
        sleep(pause).await;
    }
}

/// Returns from where to continue; none if there is nothing more to look at, or the instance did not say so.
async fn forget_some(connection: &InstanceConnection, retention: Duration, from: &str) -> Option<String> {
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(scripts::forget_tokens(retention, from));
    commands.cmd("ZADD").arg(TOKENS_KEY).arg(0).arg(NO_LOCK); // behind it, for it is the oldest
    match timeout(connection.deadline(), connection.wire.ask_all(&commands).replies()).await {
        Ok(Ok(answers)) => match answers.into_iter().next() {
            Some(Value::BulkString(next)) => String::from_utf8(next).ok(),
            _ => None,
        },
        _ => None, // it is tried again after a pause; without the right only old tokens stay
    }
}
