//! Asks all instances for their admission records, and has them changed.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::client_task::run_detached;
use super::examine::ask_all;
use super::shared::Shared;
use crate::instance::{FoundRecord, RecordFuture, Trace};
use crate::protocol::Cause;

/// Reads the record of every instance.
pub(crate) async fn read_all(shared: &Arc<Shared>) -> Vec<Result<FoundRecord, Cause>> {
    ask_all(shared, shared.instances.iter().map(|instance| instance.read_record()).collect()).await
}

/// Looks whether any instance shows a trace of use.
pub(crate) async fn look_for_traces(shared: &Arc<Shared>) -> Vec<Result<Trace, Cause>> {
    ask_all(shared, shared.instances.iter().map(|instance| instance.open_record(false)).collect()).await
}

/// Writes the first record of every instance that shows none.
pub(crate) async fn open_all(shared: &Arc<Shared>) -> Vec<Result<Trace, Cause>> {
    carry_out(shared, shared.instances.iter().map(|instance| instance.open_record(true)).collect()).await
}

/// Gives every record that was found this client's time.
pub(crate) async fn set_all(shared: &Arc<Shared>, found: Vec<FoundRecord>) -> Vec<Result<bool, Cause>> {
    let sets = shared.instances.iter().zip(found).map(|(instance, found)| instance.set_record(found));
    carry_out(shared, sets.collect()).await
}

/// In a task of the client, also if the caller is dropped: half of the instances would be as bad as none.
async fn carry_out<T: Send + 'static>(shared: &Arc<Shared>, deeds: Vec<RecordFuture<T>>) -> Vec<Result<T, Cause>> {
    let outcome = run_detached(&shared.runtime, |result: oneshot::Sender<Vec<Result<T, Cause>>>| async move {
        drop(result.send(join_all(deeds).await));
    });
    outcome.await.unwrap_or_else(|_| shared.instances.iter().map(|_| Err(shared.runtime_has_ended())).collect())
}
