//! Requests of operators to every instance, beside any lock.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::shared::{Shared, runtime_ended};
use super::tasks::{run_abort_on_drop, run_detached};
use crate::instance::redis::RedisInstance;
use crate::instance::{Claim, FoundRecord, Read, ReplyTo, Request, StoredKey, TakesReplies};
use crate::protocol::{Access, Cause, CurrentHolder, FencingToken, InstanceId, Reply, Value};
use crate::resource::Resource;

/// A token for a release where none is stored; the least there is.
const LEAST_TOKEN: u64 = 4096;

type Answer<T> = Result<T, Cause>;

/// One answer for each instance, in a task of the client. If the caller is dropped no more requests are sent.
pub(crate) async fn ask_all<T: Send + 'static, F>(
    shared: &Arc<Shared>,
    ask: impl Fn(&RedisInstance) -> F,
) -> Vec<Answer<T>>
where
    F: Future<Output = Answer<T>> + Send + 'static,
{
    if let Some(cause) = shared.unusable() {
        return none_asked(shared, &cause);
    }
    let asked: Vec<F> = shared.instances.iter().map(ask).collect();
    let outcome = run_abort_on_drop(&shared.runtime, |result: oneshot::Sender<Vec<Answer<T>>>| async move {
        drop(result.send(join_all(asked).await));
    });
    outcome.await.unwrap_or_else(|_| none_asked(shared, &runtime_ended()))
}

/// The same for what changes instances: also if the caller is dropped, as half of them would be as bad as none.
pub(crate) async fn carry_out<T: Send + 'static>(
    shared: &Arc<Shared>,
    deeds: impl Iterator<Item = impl Future<Output = Answer<T>> + Send + 'static>,
) -> Vec<Answer<T>> {
    if let Some(cause) = shared.unusable() {
        return none_asked(shared, &cause);
    }
    let deeds: Vec<_> = deeds.collect(); // sent before this waits
    let outcome = run_detached(&shared.runtime, |result: oneshot::Sender<Vec<Answer<T>>>| async move {
        drop(result.send(join_all(deeds).await));
    });
    outcome.await.unwrap_or_else(|_| none_asked(shared, &runtime_ended()))
}

fn none_asked<T>(shared: &Shared, why: &Cause) -> Vec<Answer<T>> {
    shared.instances.iter().map(|_| Err(why.clone())).collect()
}

/// Reads what every instance has stored for a lock of one resource.
pub(crate) async fn read_all(shared: &Arc<Shared>, resource: &Resource) -> Vec<Read> {
    ask_all(shared, |instance| instance.read(resource)).await
}

/// Which of several locks are free on a quorum of instances.
pub(crate) async fn which_are_free(shared: &Arc<Shared>, resources: &[Resource]) -> Vec<bool> {
    let answers = ask_all(shared, |instance| instance.are_free(resources)).await;
    let is_free = |at: usize| {
        let free = answers.iter().filter(|answer| matches!(answer, Ok(free) if free.get(at) == Some(&true)));
        free.count() >= shared.quorum.votes()
    };
    (0..resources.len()).map(is_free).collect()
}

/// The value that a quorum of instances has under a key; `None` if no quorum has one. Instances that push changes will push
/// the next one.
///
/// # Errors
/// What each instance answered, if too few did.
pub(crate) async fn look(
    shared: &Arc<Shared>,
    resource: &Resource,
) -> Result<Option<Vec<u8>>, Vec<Answer<Option<Vec<u8>>>>> {
    let answers = ask_all(shared, |instance| instance.look(resource)).await;
    let values = || answers.iter().filter_map(|answer| answer.as_ref().ok()?.as_deref());
    let count = |value: &[u8]| values().filter(|other| *other == value).count();
    let unknown = answers.iter().filter(|answer| answer.is_err()).count();
    let (most, value) = values().map(|value| (count(value), Some(value))).max().unwrap_or_default();
    let votes = shared.quorum.votes();
    match value {
        Some(value) if most >= votes => Ok(Some(value.to_vec())),
        _ if most + unknown < votes => Ok(None),
        _ => Err(answers),
    }
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
        let requests = read.map(|stored| releases(resource, expected, stored));
        // Unless each is answered, no answer is left to come.
        outcome.push(requests.as_ref().map(|_| false).map_err(Clone::clone));
        let reply_to = |number| ReplyTo::numbered(Arc::clone(&replies) as Arc<_>, id, number);
        let requests = requests.into_iter().flatten().enumerate();
        instance.call_all(requests.map(|(number, request)| (request, reply_to(number))).collect());
    }
    drop(replies); // the others are in the places for replies
    while let Some((id, reply)) = came.recv().await {
        let outcome = outcome.get_mut(id.index());
        match (outcome, was_deleted(reply)) {
            (Some(outcome @ Ok(false)), came) => *outcome = came,
            (Some(outcome), Err(cause)) => *outcome = Err(cause),
            _ => {}
        }
    }
    outcome
}

/// The replies to releases, one of each instance that was sent one.
struct TakenAwayReplies(mpsc::UnboundedSender<(InstanceId, Reply)>);

impl TakesReplies for TakenAwayReplies {
    fn take(self: Arc<Self>, id: InstanceId, _: usize, reply: Reply) {
        let _ = self.0.send((id, reply)); // no caller waits any more
    }
}

/// What deletes what is stored there of `expected`: a value, or any number of readers.
fn releases(resource: &Resource, expected: &CurrentHolder, stored: StoredKey) -> Vec<Request> {
    let StoredKey { value, readers, expires_in, token, .. } = stored;
    let token =
        token.or_else(|| FencingToken::from_number(LEAST_TOKEN)).unwrap_or_else(|| FencingToken::propose(0, None));
    let values = value.into_iter().map(|value| (CurrentHolder::from_value(&value), Access::Write, value));
    let readers = readers.into_iter().map(|value| (CurrentHolder::of_member(&value), Access::Read, value));
    let release = |(_, access, value): (CurrentHolder, Access, Vec<u8>)| {
        let claim = Claim::new(resource.clone(), Value::from_wire(&value), token, expires_in.unwrap_or_default());
        let claim = Claim { access, resent: true, ..claim }; // its holder may be about to extend it (P6)
        Request::Release(Arc::new(claim), None)
    };
    // What names no client of this library may be another program's data.
    values.chain(readers).filter(|(by, ..)| by == expected && by.client.is_some()).map(release).collect()
}

fn was_deleted(reply: Reply) -> Answer<bool> {
    match reply {
        Reply::Granted => Ok(true),
        Reply::NotSent(cause) | Reply::Unknown(cause) => Err(cause),
        _ => Ok(false),
    }
}
