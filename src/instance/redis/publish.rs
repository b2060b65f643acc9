//! Messages between clients over one connection (P25, P26).

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::send_queue::Asked;
use super::wire::{Answer, Wire};
use crate::instance::{PublishFuture, Wake};

/// Listens to a channel. Without the right to it a client hears of nothing and only asks (P27).
pub(super) fn listen(wire: &Wire, channel: &str) -> Answer {
    wire.ask(redis::cmd("SUBSCRIBE").arg(channel))
}

/// The command for a message.
fn command(wake: &Wake) -> Cmd {
    let Wake { to, message } = wake;
    redis::cmd("PUBLISH").arg(to.channel()).arg(message).to_owned()
}

/// What is published behind these requests, in the same write.
pub(super) fn behind(requests: &[Asked]) -> Vec<Cmd> {
    requests.iter().flat_map(|asked| asked.request.wakes()).map(command).collect()
}

/// Sends a message, and tells within the deadline whether anybody heard it.
pub(super) fn publish(wire: &Wire, wake: &Wake, deadline: Duration) -> PublishFuture {
    let answer = wire.ask(&command(wake));
    // A right that is missing only costs time.
    Box::pin(async move { matches!(timeout(deadline, answer).await, Ok(Ok(Value::Int(1..)))) })
}
