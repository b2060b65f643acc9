//! Clients of another library, or plain commands, and ours on the same keys: what `docs/migration.md` promises.
//!
//! `cargo test -p redquorum-examples --test migration`
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redquorum::{AcquireError, Redlock};
use redquorum_examples::stage::open;
use redquorum_examples::{TTL, now};
use redquorum_testkit::{Fleet, Program, Reply, Server};
use rslock::LockManager;
use tokio::time::sleep;

const FOR: Duration = Duration::from_secs(3);
/// Between two tries, and after a section: who polls gets in meanwhile.
const PAUSE: Duration = Duration::from_millis(3);

async fn fleet_and_client(count: usize) -> (Arc<Fleet>, Redlock) {
    let fleet = Fleet::start(&Program::required().unwrap(), count).unwrap();
    open(&fleet.addresses()).await.unwrap();
    let builder = Redlock::builder().instances(fleet.addresses()).max_ttl(TTL).ttl(TTL).instance_timeout(TTL / 3);
    (Arc::new(fleet), builder.connect().await.unwrap())
}

/// What one at a time may be in: who is in beside others is counted.
#[derive(Default)]
struct Section {
    inside: AtomicU32,
    overlaps: AtomicU32,
}

impl Section {
    async fn pass(&self) {
        if self.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        sleep(Duration::from_millis(2)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Our clients beside others, which pass once for each call that returns true.
async fn side_by_side(redlock: &Redlock, mut other: impl AsyncFnMut(&Section) -> bool) {
    let (section, end) = (Arc::new(Section::default()), now() + FOR);
    let ours = {
        let (section, redlock) = (Arc::clone(&section), redlock.clone());
        tokio::spawn(async move {
            let mut passed = 0;
            while now() < end {
                let guard = redlock.lock("account").wait_at_most(FOR).acquire().await;
                let Ok(guard) = guard else { continue };
                section.pass().await;
                guard.release().await.unwrap();
                passed += 1;
                sleep(PAUSE).await;
            }
            passed
        })
    };
    let mut theirs = 0;
    while now() < end {
        theirs += u32::from(other(&section).await);
        sleep(PAUSE).await;
    }
    let ours: u32 = ours.await.unwrap();
    println!("{ours} sections of ours, {theirs} of theirs");
    assert_eq!(section.overlaps.load(Ordering::SeqCst), 0, "two were inside at once");
    assert!(ours >= 10 && theirs >= 10, "{ours} of ours, {theirs} of theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_rslock_and_ours_exclude_each_other_on_the_same_instances() {
    let (fleet, redlock) = fleet_and_client(3).await;
    let manager = LockManager::new(fleet.addresses());
    side_by_side(&redlock, async |section| {
        let Ok(lock) = manager.lock("account", TTL).await else {
            return false;
        };
        section.pass().await;
        manager.unlock(&lock).await;
        true
    })
    .await;
}

/// `SET NX PX`, and a release that compares.
async fn set_nx(server: &Server, section: &Section) -> bool {
    let set = server.command(&["SET", "account", "theirs", "NX", "PX", "2000"]).unwrap();
    if set != Reply::Status("OK".to_owned()) {
        return false;
    }
    section.pass().await;
    let compare = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    server.command(&["EVAL", compare, "1", "account", "theirs"]).unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn set_nx_on_one_server_and_ours_with_that_server_alone_exclude_each_other() {
    let (fleet, redlock) = fleet_and_client(1).await;
    side_by_side(&redlock, async |section| set_nx(&fleet[0], section).await).await;
}

#[tokio::test]
async fn a_hash_of_redisson_is_in_the_way_is_said_to_be_and_stays() {
    let (fleet, redlock) = fleet_and_client(3).await;
    for server in fleet.iter() {
        server.command(&["HSET", "account", "a-thread", "1"]).unwrap();
    }
    let refused = redlock.lock("account").try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::Contended(_))), "{refused:?}");
    for server in fleet.iter() {
        assert_eq!(server.command(&["HGET", "account", "a-thread"]).unwrap().text().as_deref(), Some("1"));
    }
}
