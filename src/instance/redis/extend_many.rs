//! Many leases extended in one command.

use std::future::ready;
use std::sync::Arc;

use super::connection::InstanceConnection;
use super::write::Parts;
use crate::instance::{Claim, ExtendManyFuture, Request};
use crate::protocol::{Cause, Reply};

/// Sends one command that extends all `claims`, and sets the keys that are missing only if it `repairs`.
///
/// It does not wait in the send queue: a release that is called later is sent later in any case (P6).
pub(super) fn extend_many(
    connection: &Arc<InstanceConnection>,
    claims: &[Arc<Claim>],
    repairs: bool,
) -> ExtendManyFuture {
    let count = claims.len();
    if connection.is_silent() {
        return Box::pin(ready(vec![connection.counted(Reply::NotSent(Cause::Silent), count); count]));
    }
    connection.note_request();
    let now = connection.what_is_known();
    let mut commands = redis::pipe();
    commands.add_command(connection.scripts().extend(
        claims.iter().map(|claim| &**claim),
        now.attached.as_ref(),
        repairs,
    ));
    let sent = connection.send(now, Parts::of_extends(count), count, &commands, &[]);
    let requests: Vec<Request> = claims.iter().map(|claim| Request::Extend(Arc::clone(claim))).collect();
    let connection = Arc::clone(connection);
    Box::pin(async move {
        let requests: Vec<&Request> = requests.iter().collect();
        let replies = connection.replies(&requests, sent).await;
        let replies = replies.unwrap_or_else(|| vec![Reply::Unknown(Cause::TimedOut); count]); // P5
        replies.into_iter().map(|reply| connection.counted(reply, 1)).collect()
    })
}
