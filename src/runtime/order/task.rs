//! The client's task that takes messages of others in.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::known::Parts;
use crate::instance::ReceivedMessage;
use crate::runtime::lasting_task::ran_to_its_end;

/// How often what is too old is forgotten.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

/// Ends with the client.
pub(super) async fn run(
    parts: Arc<Parts>,
    mut messages: mpsc::Receiver<ReceivedMessage>,
    mut ended: oneshot::Receiver<()>,
) {
    while !ran_to_its_end("takes messages in", serve(&parts, &mut messages, &mut ended)).await {}
}

async fn serve(parts: &Parts, messages: &mut mpsc::Receiver<ReceivedMessage>, mut ended: &mut oneshot::Receiver<()>) {
    loop {
        let is_empty = parts.known().is_empty();
        tokio::select! {
            biased;
            _ = &mut ended => return,
            message = messages.recv() => match message {
                Some(message) => parts.on_message(message),
                None => return,
            },
            () = parts.grew.notified() => {}
            () = sleep(EXPIRE_INTERVAL), if !is_empty => {}
        }
        let now = parts.clock.now();
        parts.known().expire(now);
    }
}
