//! This library: fencing is always on, admission by default.

use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, AllGuard, Guard, Redlock};

use crate::Outcome;
use crate::opened::open;

#[derive(Clone)]
pub(crate) struct Ours(Redlock);

impl Ours {
    /// Connects and waits until all instances vote.
    pub(crate) async fn connect(addresses: Vec<String>, ttl: Duration, admission: Admission) -> Outcome<Self> {
        open(&addresses, ttl).await;
        let redlock =
            Redlock::builder().instances(addresses).ttl(ttl).max_ttl(ttl).admission(admission).connect().await?;
        redlock.want_locks();
        let votes = |status: AdmissionStatus| matches!(status, AdmissionStatus::Admitted | AdmissionStatus::Off);
        while !redlock.instances().iter().all(|status| votes(status.admission)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self(redlock))
    }

    pub(crate) async fn acquire(&self, name: &str) -> Outcome<Guard> {
        Ok(self.0.lock(name).try_acquire().await?)
    }

    pub(crate) async fn acquire_all(&self, names: &[String]) -> Outcome<AllGuard> {
        Ok(self.0.lock_all(names).try_acquire().await?)
    }
}
