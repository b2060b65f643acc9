//! Asks all instances what only operators want to know.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::client_task::run_abort_on_drop;
use super::shared::Shared;
use crate::instance::{FoundKeys, ServerDetails};
use crate::protocol::Cause;

/// Asks every instance about itself.
pub(crate) async fn examine_all(shared: &Arc<Shared>) -> Vec<Result<ServerDetails, Cause>> {
    let asked: Vec<_> = shared.instances.iter().map(|instance| instance.examine()).collect();
    ask_all(shared, asked).await
}

/// Looks for keys on every instance.
pub(crate) async fn scan_all(shared: &Arc<Shared>, pattern: &[u8], most: usize) -> Vec<Result<FoundKeys, Cause>> {
    let asked: Vec<_> = shared.instances.iter().map(|instance| instance.scan(pattern.to_vec(), most)).collect();
    ask_all(shared, asked).await
}

/// One answer for each instance, in a task of the client.
///
/// If the caller is dropped nothing more is asked.
pub(super) async fn ask_all<T: Send + 'static>(
    shared: &Arc<Shared>,
    asked: Vec<impl Future<Output = Result<T, Cause>> + Send + 'static>,
) -> Vec<Result<T, Cause>> {
    let outcome = run_abort_on_drop(&shared.runtime, |result: oneshot::Sender<Vec<Result<T, Cause>>>| async move {
        drop(result.send(join_all(asked).await));
    });
    outcome.await.unwrap_or_else(|_| shared.instances.iter().map(|_| Err(shared.runtime_has_ended())).collect())
}
