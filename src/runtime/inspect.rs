//! Looks at a lock from outside, and takes it away from its holder.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::examine::ask_all;
use super::shared::Shared;
use crate::instance::{Claim, Read, ReplyTo, Request, StoredKey, TakesReplies, Votes};
use crate::protocol::{Cause, CurrentHolder, FencingToken, InstanceId, Reply, Value};
use crate::resource::Resource;

/// A token for a release where none is stored; the least there is.
const LEAST_TOKEN: u64 = 4096;

/// What became of a lock on one instance from which it was to be taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakenAway {
    /// It was deleted.
    Deleted,
    /// Somebody else has it, or nobody.
    NotTheirs,
    /// It could not be asked, or the answer is not known.
    Unknown(Cause),
}

/// Reads what every instance has stored for a lock of one resource.
pub(crate) async fn read_all(shared: &Arc<Shared>, resource: &Resource) -> Vec<Read> {
    ask_all(shared, shared.instances.iter().map(|instance| instance.read(resource.clone())).collect()).await
}

/// Deletes the keys of `expected` on every instance, each by the very value that was read there (P7).
pub(crate) async fn take_away(shared: &Arc<Shared>, resource: &Resource, expected: &CurrentHolder) -> Vec<TakenAway> {
    let found = read_all(shared, resource).await;
    let (replies, mut came) = mpsc::unbounded_channel();
    let replies = Arc::new(TakenAwayReplies(replies));
    let mut outcome: Vec<TakenAway> = Vec::with_capacity(found.len());
    for ((id, instance), read) in InstanceId::all(found.len()).zip(shared.instances.iter()).zip(found) {
        outcome.push(match read {
            Err(cause) => TakenAway::Unknown(cause),
            Ok(stored) => match release(resource, expected, stored) {
                Some(request) => {
                    instance.call(request, ReplyTo::new(Arc::clone(&replies) as Arc<_>, id));
                    TakenAway::Unknown(shared.runtime_has_ended()) // unless it is answered
                }
                None => TakenAway::NotTheirs,
            },
        });
    }
    drop(replies); // the others are in the places for replies
    while let Some((id, reply)) = came.recv().await {
        outcome.get_mut(id.index()).into_iter().for_each(|outcome| *outcome = of_reply(reply.clone()));
    }
    outcome
}

/// The replies to releases, one of each instance that was sent one.
struct TakenAwayReplies(mpsc::UnboundedSender<(InstanceId, Reply)>);

impl TakesReplies for TakenAwayReplies {
    fn take(self: Arc<Self>, id: InstanceId, _: usize, reply: Reply) {
        let _ = self.0.send((id, reply)); // nobody waits any more
    }
}

fn release(resource: &Resource, expected: &CurrentHolder, stored: StoredKey) -> Option<Request> {
    let value = stored.value.filter(|value| CurrentHolder::from_value(value) == *expected)?;
    let token = stored.token.or_else(|| FencingToken::from_number(LEAST_TOKEN))?;
    let claim = Arc::new(Claim {
        resource: resource.clone(),
        value: Value::from_wire(&value),
        token,
        ttl: stored.expires_in.unwrap_or_default(),
        resent: true, // its holder may be about to extend it (P6)
        is_first: false,
        votes: Votes::default(),
    });
    Some(Request::Release(claim, None))
}

fn of_reply(reply: Reply) -> TakenAway {
    match reply {
        Reply::Granted => TakenAway::Deleted,
        Reply::NotSent(cause) | Reply::Unknown(cause) => TakenAway::Unknown(cause),
        _ => TakenAway::NotTheirs,
    }
}
