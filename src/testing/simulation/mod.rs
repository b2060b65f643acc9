//! What it takes to run this library's own code under a seed: servers that are spoken to in bytes, and
//! clients with clocks and a source of chance of their own. For the tests of this library; no part of its
//! interface.

mod clock;
mod sent;
mod server;

pub use clock::MachineClock;
pub use sent::{Asked, sent_requests};
pub use server::{Answer, Called, Data, Denial, Interpreter, KeyState, Said, ScriptCall, Server, Step, StepKind};

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Redlock;
use crate::config::Builder;
use crate::guard::ReadGuard;
use crate::instance::redis::{Address, Dialer};
use crate::lease::LeaseView;
use crate::random::seeded;

/// What is left to chance on this thread depends on the seed alone from now on.
pub fn seed_this_thread(seed: u64) {
    seeded::begin(seed);
}

/// How many entries each table of a client has: all of them go as soon as nothing is under way or held.
#[must_use]
pub fn table_sizes(client: &Redlock) -> Vec<(&'static str, usize)> {
    client.shared().table_sizes()
}

/// How much a client knows of others that wait for its locks. All of it goes within [`REMEMBERED`].
#[must_use]
pub fn remembered(client: &Redlock) -> Vec<(&'static str, usize)> {
    client.shared().remembered()
}

/// What is stored under the keys of a lease: it is in all that is sent for it, so its grants can be recognised.
#[must_use]
pub fn value_of(lease: &LeaseView) -> Vec<u8> {
    lease.tenure.claim().value.as_bytes().to_vec()
}

/// The lease of a reader, as if it was a writer's.
#[must_use]
pub fn lease_of(reader: &ReadGuard) -> LeaseView {
    LeaseView::new(Arc::clone(&reader.shared), Arc::clone(&reader.settings), reader.tenure.clone())
}

/// For how long a client knows of another that it waited, after its last message.
pub const REMEMBERED: Duration = Duration::from_secs(5);

/// A builder for a client on a machine with this clock. It connects to instance after instance over the
/// streams that `dial` opens to the one with this index.
pub fn builder<D, F, S>(instances: usize, clock: Arc<MachineClock>, dial: D) -> Builder
where
    D: Fn(usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = |index: usize| {
        let dial = dial.clone();
        Address::dialed(&format!("instance-{index}"), Dialer::new(move || dial(index)))
    };
    Builder::default().dialed((0..instances).map(address).collect()).clock(clock)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the runtime's clock is the true time here")]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{AdmissionStatus, Redlock, Renewal};

    const WALL_US: u64 = 1_750_000_000_000_000;

    struct Fleet(Vec<Server>);

    impl Fleet {
        fn new() -> Self {
            let clock = || Arc::new(MachineClock::new(Instant::now(), WALL_US, 0));
            Self((0..3).map(|index| Server::new(index, clock())).collect())
        }

        fn client(&self) -> Redlock {
            self.client_on(Arc::new(MachineClock::new(Instant::now(), WALL_US, 0)))
        }

        fn client_on(&self, clock: Arc<MachineClock>) -> Redlock {
            let servers = self.0.clone();
            let dial = move |index: usize| {
                let server = servers[index].clone();
                async move {
                    let (ours, theirs) = tokio::io::duplex(4096);
                    tokio::spawn(async move { server.serve(theirs).await });
                    Ok(ours)
                }
            };
            let limits = builder(3, clock, dial).ttl(Duration::from_secs(1)).max_ttl(Duration::from_secs(1));
            limits.label("test").build().unwrap()
        }

        fn odd_commands(&self) -> Vec<String> {
            self.0.iter().flat_map(Server::odd_commands).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_lock_renew_and_release_over_bytes() {
        let fleet = Fleet::new();
        let (one, other) = (fleet.client(), fleet.client());
        for client in [&one, &other] {
            client.wait_connected(Duration::from_secs(1)).await.unwrap();
        }
        let guard = one.lock("a").acquire().await.unwrap();
        assert!(other.lock_all(["a", "b"]).try_acquire().await.is_err());
        sleep(Duration::from_secs(3)).await;
        assert!(guard.is_valid(), "it was renewed");
        assert!(fleet.0.iter().all(|server| server.locks().len() == 1));
        assert!(guard.release().await.unwrap().was_still_held);
        let both = other.lock_all(["a", "b"]).holder("me".into()).acquire().await.unwrap();
        let again = other.lock_all(["a", "b"]).holder("me".into()).acquire().await.unwrap();
        assert_eq!(again.fencing_tokens(), both.fencing_tokens());
        assert!(one.lock_all(["a", "b"]).holder("me".into()).try_acquire().await.is_err());
        drop((both, again));
        sleep(Duration::from_millis(100)).await;
        assert!(fleet.0.iter().all(|server| server.locks().is_empty()));
        assert_eq!(fleet.odd_commands(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_ends_a_lease_at_once_and_keeps_everybody_out_for_a_ttl() {
        let fleet = Fleet::new();
        let client = fleet.client();
        client.wait_connected(Duration::from_secs(1)).await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        let begun = Instant::now();
        fleet.0.iter().for_each(Server::flush);
        guard.lost().await;
        assert!(begun.elapsed() < Duration::from_millis(50));
        let _next = client.lock("a").acquire().await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(fleet.odd_commands(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_restarted_votes_after_a_ttl_and_one_that_hangs_is_no_hindrance() {
        let fleet = Fleet::new();
        let client = fleet.client();
        client.wait_connected(Duration::from_secs(1)).await.unwrap();
        fleet.0[0].hang();
        let guard = client.lock("a").acquire().await.unwrap();
        fleet.0[0].go_on();
        sleep(Duration::from_secs(2)).await; // it gets the key too
        fleet.0[1].stop();
        fleet.0[1].start(Data::Nothing);
        sleep(Duration::from_millis(500)).await;
        assert_ne!(client.instances()[1].admission, AdmissionStatus::Admitted);
        assert!(guard.is_valid());
        sleep(Duration::from_secs(2)).await;
        assert_eq!(client.instances()[1].admission, AdmissionStatus::Admitted);
        assert!(guard.is_valid() && fleet.0.iter().all(|server| server.locks().len() == 1));
        assert_eq!(fleet.odd_commands(), [""; 0]);
    }

    /// By its record alone it would sit out the hour (P15).
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_was_set_back_while_nobody_looked_votes_after_a_ttl() {
        let fleet = Fleet::new();
        let votes_in = async |limit: Duration| {
            let client = fleet.client();
            client.wait_connected(Duration::from_secs(1)).await.unwrap();
            drop(client.lock("a").acquire().await.unwrap());
            sleep(limit).await;
            client.instances().iter().all(|instance| instance.admission == AdmissionStatus::Admitted)
        };
        assert!(votes_in(Duration::from_secs(2)).await);
        fleet.0[1].clock().step_us(-3_600_000_000);
        assert!(votes_in(Duration::from_secs(2)).await);
        assert_eq!(fleet.odd_commands(), [""; 0]);
    }

    /// A refusal, beside one of an earlier extend, shows that no quorum has the key: the silence of others changes nothing.
    #[tokio::test(start_paused = true)]
    async fn what_one_instance_answers_to_an_extend_counts_before_the_others_answer() {
        let fleet = Fleet::new();
        fleet.0.iter().for_each(Server::deny_tracking); // only answers show it
        let client = fleet.client();
        client.wait_connected(Duration::from_secs(1)).await.unwrap();
        let guard = client.lock("a").renew(Renewal::Off).acquire().await.unwrap();
        let take = |index: usize| fleet.0[index].with_data(|store, _| store.set(b"a", b"another", None));
        take(0);
        guard.extend().await.unwrap();
        sleep(Duration::from_millis(20)).await;
        take(1);
        [0, 2].into_iter().for_each(|index| fleet.0[index].hang());
        let begun = Instant::now();
        let lost = async {
            guard.lost().await;
            begun.elapsed()
        };
        let (extended, after) = tokio::join!(guard.extend(), lost);
        assert!(extended.is_err() && after < Duration::from_millis(50), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_a_clock_is_noticed_without_any_request() {
        let fleet = Fleet::new();
        let client = fleet.client();
        client.wait_connected(Duration::from_secs(1)).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        let steps = || client.instances().iter().map(|instance| instance.clock_steps).collect::<Vec<_>>();
        assert_eq!(steps(), [0; 3]);
        fleet.0[1].clock().step_us(3_600_000_000);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(steps(), [0, 1, 0]);
    }

    /// P17: by its own clock it has as much left as when that stood still.
    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_in_time_although_the_clock_of_its_client_stood_still() {
        let fleet = Fleet::new();
        let clock = Arc::new(MachineClock::new(Instant::now(), WALL_US, 0));
        let client = fleet.client_on(Arc::clone(&clock));
        client.wait_connected(Duration::from_secs(1)).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        let guard = client.lock("a").renew(Renewal::Off).acquire().await.unwrap();
        clock.stop();
        sleep(Duration::from_millis(400)).await;
        clock.go_on();
        sleep(Duration::from_millis(590)).await;
        assert!(!guard.is_valid(), "{:?}", guard.remaining());
    }
}
