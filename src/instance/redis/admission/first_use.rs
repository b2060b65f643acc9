//! Lets instances vote at once that nobody has ever used (P15).

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Duration, sleep, timeout};

use super::handshake::Watch;
use crate::instance::redis::connection::Link;
use crate::instance::redis::supervisor::Reach;
use crate::protocol::{Record, Remedy, never_used};

/// The pause between two looks, so that connections that flap cost little.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until all instances are connected with records that show that they were never used, and
/// opens them. Ends when the client is gone.
pub(crate) async fn open_when_never_used(mut instances: Vec<watch::Receiver<Reach>>) {
    loop {
        if let Some(links) = links(&instances) {
            open_if_never_used(&links).await;
        }
        let changes = instances.iter_mut().map(|instance| Box::pin(instance.changed()));
        if futures_util::future::select_all(changes).await.0.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// The links, if all instances are connected and, as far as is known, untouched.
fn links(instances: &[watch::Receiver<Reach>]) -> Option<Vec<Arc<Link>>> {
    let link = |instance: &watch::Receiver<Reach>| match &*instance.borrow() {
        Reach::Up(link) => {
            let standing = link.guarded()?.snapshot();
            standing.record().is_untouched(0).then(|| Arc::clone(link))
        }
        Reach::Down(_) => None,
    };
    instances.iter().map(link).collect()
}

async fn open_if_never_used(links: &[Arc<Link>]) {
    // Read again now that every record has been written: see `never_used`.
    let records: Vec<(Record, u64)> =
        join_all(links.iter().map(|link| read_record(link))).await.into_iter().flatten().collect();
    if never_used(&records, links.len()) {
        tracing::info!("all instances are untouched: nobody has ever used them, opening");
        join_all(links.iter().zip(&records).map(|(link, (record, _))| open(link, record))).await;
    }
}

/// The record as the instance has it now, with its clock in milliseconds.
async fn read_record(link: &Link) -> Option<(Record, u64)> {
    let mut admitting = link.admitting(link.guarded()?);
    let reading = timeout(link.deadline(), admitting.read(Watch::GoesOn)).await.ok()?.ok()?;
    Some((Record::from_wire(&reading.record?)?, reading.instance_us / 1_000))
}

async fn open(link: &Link, blank: &Record) {
    let Some(guarded) = link.guarded() else { return };
    // Whether it took or not is what reading the record again shows.
    let _ = timeout(link.deadline(), link.admitting(guarded).open(blank)).await;
    guarded.ask(Remedy::Readmit);
}
