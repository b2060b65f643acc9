//! What is done about an instance that was admitted, and may have forgotten locks since (P15, P17).

use super::handshake::ask_facts;
use super::peers::Peers;
use super::server_info::About;
use super::shared::Guarded;
use crate::instance::redis::connection::Link;
use crate::protocol::{Cause, Remedy};

/// What must be done apart from flushes. That its clock jumped may be settled by now, or turn out to
/// be no fault of it.
pub(crate) async fn take(link: &Link, guarded: &Guarded, peers: &Peers) -> Option<Remedy> {
    match guarded.take_remedy() {
        Some(Remedy::Quarantine) if !guarded.has_jumped() || peers.stood_still(link).await => Some(Remedy::Readmit),
        remedy => remedy,
    }
}

/// Sets the standing of the instance right again, by what was asked for and after a flush: says what
/// was done, and what the instance says of itself.
pub(crate) async fn carry_out(
    link: &Link,
    guarded: &Guarded,
    asked: Option<Remedy>,
) -> Result<Option<(Remedy, About)>, Cause> {
    let mut admitting = link.admitting(guarded);
    let flush = guarded.flushes.unsettled();
    // P15: the data with the locks may have come back as an old copy, with the very record.
    let spared = flush.is_none() || (guarded.flushes.were_watched() && admitting.is_untouched().await);
    let remedy = if spared { asked } else { Some(Remedy::Quarantine) };
    if let Some(flush) = flush.filter(|_| spared) {
        guarded.spare(flush);
    }
    let Some(remedy) = remedy else { return Ok(None) };
    guarded.begin(remedy, flush);
    let told = ask_facts(&mut admitting.connection).await?;
    let admitted = admitting.admit(told).await?;
    guarded.renew(&admitted);
    Ok(Some((remedy, admitted.about)))
}
