//! This library: fencing is always on, admission by default.

use std::time::Duration;

use redquorum::{Admission, AdmissionStatus, Guard, Redlock, ResourceNames};

use crate::Outcome;

#[derive(Clone)]
pub(crate) struct Ours(Redlock);

impl Ours {
    /// Connects and waits until all instances vote.
    pub(crate) async fn connect(addresses: Vec<String>, ttl: Duration, admission: Admission) -> Outcome<Self> {
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

    pub(crate) async fn acquire_all(&self, names: &[String]) -> Outcome<Guard> {
        Ok(self.0.lock(names.iter().collect::<ResourceNames>()).try_acquire().await?)
    }
}
