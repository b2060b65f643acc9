//! What the tests share.
#![expect(clippy::disallowed_methods, reason = "tests read the paused clock of the runtime")]

use std::time::Duration;

use redquorum::testing::{Cluster, Hang};
use redquorum::{AdmissionStatus, Guard, Redlock, Renewal};
use tokio::time::Instant;

/// The default instance timeout.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);

/// What a server says whose memory is full.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) async fn cluster_of(count: usize) -> (Cluster, Redlock) {
    let cluster = Cluster::new(count);
    let redlock = cluster.builder().renew(Renewal::Off).connect().await.unwrap();
    (cluster, redlock)
}

/// As [`cluster_of`], with leases that are renewed, as they are by default.
pub(crate) async fn renewing(count: usize) -> (Cluster, Redlock) {
    let cluster = Cluster::new(count);
    let redlock = cluster.builder().connect().await.unwrap();
    (cluster, redlock)
}

pub(crate) async fn held(redlock: &Redlock, name: &str) -> Guard {
    redlock.lock(name).try_acquire().await.unwrap()
}

/// Carries a future out and gives how much (virtual) time it took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let output = future.await;
    (output, begun.elapsed())
}

/// Lets background tasks do everything that needs no time.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Waits until so many instances are connected and may vote.
pub(crate) async fn until_voting(redlock: &Redlock, count: usize) {
    settle().await; // so that connections which are broken are known to be
    let votes = || {
        let instances = redlock.instances();
        instances.iter().filter(|known| known.connected && known.admission == AdmissionStatus::Admitted).count()
    };
    while votes() < count {
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) fn hang_first(cluster: &Cluster, count: usize, how: Hang) {
    cluster.instances().take(count).for_each(|instance| instance.hang(how));
}

pub(crate) fn how_many_have(cluster: &Cluster, name: &str) -> usize {
    cluster.instances().filter(|instance| instance.value(name).is_some()).count()
}
