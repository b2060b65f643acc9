//! Lets instances vote at once that nobody has ever used (P15).

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Duration, sleep, timeout};

use super::server_info;
use crate::foreign::contain;
use crate::instance::redis::connection::InstanceConnection;
use crate::instance::redis::supervisor::ConnectionState;
use crate::protocol::{AdmissionFollowUp, AdmissionRecord, FirstLook, RecordOrigin, never_used};

/// The pause between two looks, so that connections that flap cost little.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a look asks.
const LOOK_ROUND_TRIPS: u32 = 4;

/// Waits until all instances are connected with records that show that they were never used, and
/// opens them, if the client wants locks. Ends when the client is gone.
pub(crate) async fn watch_first_use(mut instances: Vec<watch::Receiver<ConnectionState>>) {
    loop {
        if let Some(connections) = connections(&instances) {
            allow_votes_if_never_used(&connections).await;
        }
        let changes = instances.iter_mut().map(|instance| Box::pin(instance.changed()));
        if futures_util::future::select_all(changes).await.0.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// The connections, if all instances are connected and, as far as is known, blank.
fn connections(instances: &[watch::Receiver<ConnectionState>]) -> Option<Vec<Arc<InstanceConnection>>> {
    let connection = |instance: &watch::Receiver<ConnectionState>| match &*instance.borrow() {
        ConnectionState::Up(connection) => {
            let admission = connection.admission().filter(|it| it.config.records.are_to_be_written())?;
            let state = admission.snapshot();
            (state.record().origin == RecordOrigin::Blank).then(|| Arc::clone(connection))
        }
        ConnectionState::Down(_) => None,
    };
    instances.iter().map(connection).collect()
}

async fn allow_votes_if_never_used(connections: &[Arc<InstanceConnection>]) {
    // Read again now that every record has been written: see `never_used`.
    let looks: Vec<FirstLook> =
        join_all(connections.iter().map(|connection| look_at(connection))).await.into_iter().flatten().collect();
    if never_used(&looks, connections.len()) {
        contain(|| tracing::info!("all instances are untouched: nobody has ever used them, opening"));
        join_all(connections.iter().zip(&looks).map(|(connection, look)| allow_votes(connection, look))).await;
    }
}

/// What the instance shows; nothing if it does not answer, or does not let its tokens be looked at.
async fn look_at(connection: &InstanceConnection) -> Option<FirstLook> {
    let mut handshake = connection.handshake(connection.admission()?);
    let look = async {
        let reading = handshake.read().await.ok()?;
        let has_tokens = handshake.has_tokens().await.ok()?;
        // Without a flush in between: what voted before has left a token, unless it was flushed with the record.
        let again = handshake.read().await.ok()?;
        let record = reading.record.filter(|record| Some(record) == again.record.as_ref())?;
        // The record says `blank` of what its writer had seen; another client's may have come late, behind a flush.
        let facts = server_info::read(&mut handshake.connection).await.ok()?.facts;
        if facts.was_flushed || facts.was_replica {
            return None;
        }
        Some(FirstLook { record: AdmissionRecord::from_wire(&record)?, now_ms: again.instance_us / 1_000, has_tokens })
    };
    timeout(LOOK_ROUND_TRIPS * connection.deadline(), look).await.ok()?
}

async fn allow_votes(connection: &InstanceConnection, look: &FirstLook) {
    let Some(admission) = connection.admission() else { return };
    // Whether it took or not is what reading the record again shows.
    let _ = timeout(connection.deadline(), connection.handshake(admission).allow_votes(look)).await;
    admission.request_follow_up(AdmissionFollowUp::RereadRecord);
}
