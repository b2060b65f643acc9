//! Messages between clients over one connection (P25, P26).

use std::future::ready;
use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::connection::InstanceConnection;
use super::driver::poll_once;
use crate::instance::{Relay, RelayFuture};

/// Listens to a channel. Without the right to it a client hears of nothing and only asks (P27).
pub(super) async fn listen(mut connection: MultiplexedConnection, channel: String) -> bool {
    redis::cmd("SUBSCRIBE").arg(channel).query_async::<()>(&mut connection).await.is_ok()
}

/// Queues one command. It does not wait in the send queue: nothing depends on its order.
pub(super) fn relay(connection: &Arc<InstanceConnection>, relay: Relay) -> RelayFuture {
    if connection.is_silent() {
        return Box::pin(ready(false));
    }
    connection.note_request();
    let command = match relay {
        Relay::Message { to, message } => redis::cmd("PUBLISH").arg(to.channel()).arg(message).to_owned(),
        Relay::Keep { key, instead_of, successors } => connection.scripts().keep(&key, instead_of, &successors),
    };
    let mut multiplexed = connection.multiplexed();
    let result = poll_once(async move { multiplexed.send_packed_command(&command).await });
    let deadline = connection.deadline();
    // In a task: a command whose result nobody awaits is not sent any more. A right that is missing, or a script,
    // only costs time.
    let carry_out = async move { matches!(timeout(deadline, result).await, Ok(Ok(Value::Int(1..)))) };
    let task = connection.runtime().spawn(carry_out);
    Box::pin(async move { task.await.unwrap_or(false) })
}
