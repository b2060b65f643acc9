//! A client of this library that all instances vote for.

use std::time::Duration;

use redquorum::{AdmissionStatus, Redlock};

use crate::opened::open;
use crate::{Outcome, TTL};

pub(crate) async fn connect(addresses: Vec<String>) -> Outcome<Redlock> {
    open(&addresses, TTL).await;
    let redlock = Redlock::builder().instances(addresses).ttl(TTL).max_ttl(TTL).connect().await?;
    redlock.want_locks();
    while redlock.instances().iter().any(|status| status.admission != AdmissionStatus::Admitted) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(redlock)
}
