//! What is done about an instance that was admitted, and may have forgotten locks since (P15, P17).

use super::peers::PeerConnections;
use super::server_info::{self, ServerInfo};
use super::shared::SharedAdmission;
use crate::instance::redis::connection::InstanceConnection;
use crate::protocol::{AdmissionFollowUp, Cause};

/// Takes what is to be done apart from flushes. A jump of its clock may be settled by now, or turn out to have
/// been one of the client's clock: then the record is only read again.
pub(crate) async fn take_due(
    connection: &InstanceConnection,
    admission: &SharedAdmission,
    peers: &PeerConnections,
) -> Option<AdmissionFollowUp> {
    match admission.take_follow_up() {
        Some(AdmissionFollowUp::Quarantine)
            if !admission.has_jumped() || peers.own_clock_stood_still(connection).await =>
        {
            Some(AdmissionFollowUp::RereadRecord)
        }
        follow_up => follow_up,
    }
}

/// Does what was requested, and what a flush requires. Returns what was done, and the server's report.
pub(crate) async fn carry_out(
    connection: &InstanceConnection,
    admission: &SharedAdmission,
    requested: Option<AdmissionFollowUp>,
) -> Result<Option<(AdmissionFollowUp, ServerInfo)>, Cause> {
    let handshake = connection.handshake();
    let flush = admission.unsettled_flush();
    // P15: the data with the locks may be gone, or have come back as an old copy with the very record.
    let required = flush.map(|_| AdmissionFollowUp::Quarantine);
    let Some(follow_up) = required.or(requested) else { return Ok(None) };
    admission.begin_follow_up(follow_up, flush);
    let report = server_info::read(handshake.wire).await?;
    let (state, info) = handshake.run(report, flush.is_some()).await?;
    admission.replace_record(&state);
    Ok(Some((follow_up, info)))
}
