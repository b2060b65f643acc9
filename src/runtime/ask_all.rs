//! What operators ask of every instance, beside any lock.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::client_task::{run_abort_on_drop, run_detached};
use super::shared::Shared;
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, FoundRecord, Read, ReplyTo, Request, StoredKey, TakesReplies};
use crate::protocol::{Cause, CurrentHolder, FencingToken, InstanceId, Reply, Value};
use crate::resource::Resource;

/// A token for a release where none is stored; the least there is.
const LEAST_TOKEN: u64 = 4096;

type Answer<T> = Result<T, Cause>;

/// One answer for each instance, in a task of the client. If the caller is dropped nothing more is asked.
pub(crate) async fn ask_all<T: Send + 'static, F>(
    shared: &Arc<Shared>,
    ask: impl Fn(&RedisInstance) -> F,
) -> Vec<Answer<T>>
where
    F: Future<Output = Answer<T>> + Send + 'static,
{
    let asked: Vec<F> = shared.instances.iter().map(ask).collect();
    let outcome = run_abort_on_drop(&shared.runtime, |result: oneshot::Sender<Vec<Answer<T>>>| async move {
        drop(result.send(join_all(asked).await));
    });
    outcome.await.unwrap_or_else(|_| nobody(shared))
}

/// The same for what changes instances: also if the caller is dropped, as half of them would be as bad as none.
pub(crate) async fn carry_out<T: Send + 'static>(
    shared: &Arc<Shared>,
    deeds: impl Iterator<Item = impl Future<Output = Answer<T>> + Send + 'static>,
) -> Vec<Answer<T>> {
    let deeds: Vec<_> = deeds.collect(); // sent before this waits
    let outcome = run_detached(&shared.runtime, |result: oneshot::Sender<Vec<Answer<T>>>| async move {
        drop(result.send(join_all(deeds).await));
    });
    outcome.await.unwrap_or_else(|_| nobody(shared))
}

/// The runtime of the client has ended.
fn nobody<T>(shared: &Shared) -> Vec<Answer<T>> {
    shared.instances.iter().map(|_| Err(shared.runtime_has_ended())).collect()
}

/// Reads what every instance has stored for a lock of one resource.
pub(crate) async fn read_all(shared: &Arc<Shared>, resource: &Resource) -> Vec<Read> {
    ask_all(shared, |instance| instance.read(resource.clone())).await
}

/// Gives every record that was found this client's time.
pub(crate) async fn set_all(shared: &Arc<Shared>, found: Vec<FoundRecord>) -> Vec<Answer<bool>> {
    carry_out(shared, shared.instances.iter().zip(found).map(|(instance, found)| instance.set_record(found))).await
}

/// Deletes the keys of `expected` on every instance, each by the very value that was read there (P7): whether it was
/// there.
pub(crate) async fn take_away(
    shared: &Arc<Shared>,
    resource: &Resource,
    expected: &CurrentHolder,
) -> Vec<Answer<bool>> {
    let found = read_all(shared, resource).await;
    let (replies, mut came) = mpsc::unbounded_channel();
    let replies = Arc::new(TakenAwayReplies(replies));
    let mut outcome: Vec<Answer<bool>> = Vec::with_capacity(found.len());
    for ((id, instance), read) in InstanceId::all(found.len()).zip(shared.instances.iter()).zip(found) {
        outcome.push(match read.map(|stored| release(resource, expected, stored)) {
            Err(cause) => Err(cause),
            Ok(None) => Ok(false),
            Ok(Some(request)) => {
                instance.call(request, ReplyTo::new(Arc::clone(&replies) as Arc<_>, id));
                Err(shared.runtime_has_ended()) // unless it is answered
            }
        });
    }
    drop(replies); // the others are in the places for replies
    while let Some((id, reply)) = came.recv().await {
        outcome.get_mut(id.index()).into_iter().for_each(|outcome| *outcome = was_deleted(reply.clone()));
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
    let claim = Claim::new(resource.clone(), Value::from_wire(&value), token, stored.expires_in.unwrap_or_default());
    let claim = Claim { resent: true, ..claim }; // its holder may be about to extend it (P6)
    Some(Request::Release(Arc::new(claim), None))
}

fn was_deleted(reply: Reply) -> Answer<bool> {
    match reply {
        Reply::Granted => Ok(true),
        Reply::NotSent(cause) | Reply::Unknown(cause) => Err(cause),
        _ => Ok(false),
    }
}
