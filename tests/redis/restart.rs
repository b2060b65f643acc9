//! P10: extending repairs. Servers are restarted empty, one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redquorum::{Builder, Guard};
use redquorum_testkit::Fleet;
use tokio::time::sleep;

use crate::support::{
    PATIENCE, all_vote, builder_of, eventually, fleet_of, free_within, held, intrude, ms, on_each_kind, ready, secs,
    with_admission,
};

const TTL: Duration = ms(2400);

/// Restarted servers vote at once here. An extend that waits for its timeout ends before the next is due.
fn classic(fleet: &Fleet) -> Builder {
    builder_of(fleet).ttl(TTL).instance_timeout(ms(700))
}

/// Extends every third of the ttl until told to stop; fails as soon as it is not confirmed.
async fn renew(guard: Guard, stop: Arc<AtomicBool>) -> Guard {
    while !stop.load(Ordering::Relaxed) {
        sleep(TTL / 3).await;
        guard.extend().await.unwrap();
        assert!(guard.is_valid());
    }
    guard
}

#[test]
fn a_lease_that_is_extended_survives_a_restart_of_every_instance() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let ours = ready(classic(&fleet)).await;
        let other = ready(classic(&fleet)).await;
        let stop = Arc::<AtomicBool>::default();
        let renewing = tokio::spawn(renew(held(&ours, "a").await, Arc::clone(&stop)));
        let intruding = tokio::spawn(intrude(other, Arc::clone(&stop)));
        let value = |index: usize| fleet[index].command(&["GET", "a"]).unwrap().text();
        assert!(eventually(PATIENCE, || (0..5).all(|index| value(index).is_some())).await);
        let ours_is = value(0);
        for index in 0..5 {
            fleet[index].restart().unwrap();
            assert!(eventually(PATIENCE, || value(index) == ours_is).await, "instance {index} is repaired");
            sleep(TTL / 3).await;
        }
        stop.store(true, Ordering::Relaxed);
        let intruded = intruding.await;
        let guard = renewing.await.unwrap(); // says why, if it was lost
        assert!(intruded.unwrap() > 5);
        assert!(guard.release().await.unwrap().was_still_held);
        free_within(secs(1), &fleet).await;
    });
}

#[test]
fn a_lease_outlives_the_loss_of_a_minority_of_its_keys() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(with_admission(&fleet)).await; // nothing is restarted
        let guard = held(&redlock, "a").await;
        let has = |index: usize| fleet[index].keys().unwrap() == ["a"];
        assert!(eventually(PATIENCE, || (0..5).all(has)).await);
        for index in [1, 3] {
            fleet[index].command(&["DEL", "a"]).unwrap();
        }
        guard.extend().await.unwrap();
        assert!(eventually(PATIENCE, || (0..5).all(has)).await, "repaired");
        assert!(guard.release().await.unwrap().was_still_held);
        free_within(secs(1), &fleet).await;
    });
}

#[test]
fn a_client_finds_its_servers_again_after_all_were_restarted_empty() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(classic(&fleet).ttl(secs(10))).await; // it outlives the wait for all of them
        let mut token = held(&redlock, "a").await.fencing_token();
        for _ in 0..2 {
            for server in fleet.iter() {
                server.restart().unwrap();
            }
            let guard = redlock.lock("a").wait_at_most(PATIENCE).acquire().await.unwrap();
            assert!(guard.fencing_token() > token, "by the wall clock, and by what the client has seen");
            token = guard.fencing_token();
            all_vote(&redlock).await;
            assert!(guard.release().await.unwrap().was_still_held);
            free_within(PATIENCE, &fleet).await;
        }
    });
}
