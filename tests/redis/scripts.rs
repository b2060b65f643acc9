//! Servers that lost the scripts.

use redquorum_testkit::Fleet;
use tokio::time::timeout;

use crate::support::{PATIENCE, all_have, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair};

fn flush_scripts(fleet: &Fleet) {
    for server in fleet.iter() {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.reset_stats().unwrap();
    }
}

/// Each instance was asked twice, and was given the scripts in between. A slow minority may be asked
/// once more: it was sent the second request before it was known to miss the scripts.
async fn was_asked_twice(fleet: &Fleet) {
    let calls = || fleet.iter().map(|server| server.calls("evalsha").unwrap()).collect::<Vec<_>>();
    assert!(eventually(PATIENCE, || calls().iter().all(|calls| *calls >= 2)).await, "{:?}", calls());
    assert!(calls().iter().all(|calls| *calls <= 3) && calls().iter().sum::<u64>() <= 2 * 5 + 2, "{:?}", calls());
    // Asked a second time before it had them, it may be given them after that.
    let loaded = || fleet.iter().all(|server| server.calls("script|load").unwrap() > 0);
    assert!(eventually(PATIENCE, loaded).await);
}

#[test]
fn an_acquire_and_an_extend_that_miss_the_scripts_take_one_more_round() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
        for _ in 0..5 {
            flush_scripts(&fleet);
            let guard = held(&redlock, "a").await;
            was_asked_twice(&fleet).await;
            flush_scripts(&fleet);
            guard.extend().await.unwrap();
            was_asked_twice(&fleet).await;
            assert!(guard.release().await.unwrap().was_still_held);
            free_within(PATIENCE, &fleet).await;
        }
    });
}

#[test]
fn a_release_that_misses_the_scripts_takes_one_more_round() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        for _ in 0..5 {
            let guard = held(&redlock, "a").await;
            assert!(eventually(PATIENCE, || all_have(&fleet)).await);
            flush_scripts(&fleet);
            assert!(guard.release().await.unwrap().was_still_held);
            was_asked_twice(&fleet).await;
            free_within(PATIENCE, &fleet).await;
        }
    });
}

#[test]
fn scripts_that_are_flushed_again_and_again_cost_no_lock_for_good() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let working: Vec<_> = (0..8)
            .map(|task| {
                let redlock = redlock.clone();
                tokio::spawn(async move {
                    for _ in 0..30 {
                        let lock = redlock.lock(format!("task-{task}")).wait_at_most(PATIENCE);
                        drop(lock.acquire().await.unwrap());
                        let guard = redlock.lock(format!("task-{task}")).wait_at_most(PATIENCE).acquire().await;
                        let _ = guard.unwrap().release().await; // may miss the scripts twice in a row
                    }
                })
            })
            .collect();
        while working.iter().any(|task| !task.is_finished()) {
            for server in fleet.iter() {
                server.command(&["SCRIPT", "FLUSH"]).unwrap();
                tokio::time::sleep(ms(20)).await;
            }
        }
        for task in working {
            task.await.unwrap();
        }
        free_within(PATIENCE, &fleet).await;
    });
}

/// Once, in the log, and as the trouble of the instance that users see.
#[test]
fn an_instance_that_may_not_load_its_scripts_again_says_which_right_is_missing() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        fleet[0].command(&["ACL", "SETUSER", "default", "-script|load"]).unwrap();
        fleet[0].command(&["SCRIPT", "FLUSH"]).unwrap(); // the two others are the quorum
        let trouble = || redlock.instances()[0].trouble.as_ref().map(|trouble| trouble.cause.to_string());
        let told = async || {
            let guard = held(&redlock, "a").await;
            guard.extend().await.unwrap();
            guard.release().await.unwrap();
            trouble()
        };
        let said = timeout(PATIENCE, async {
            loop {
                if let Some(said) = told().await {
                    return said;
                }
            }
        });
        let said = said.await.unwrap();
        assert!(said.contains("permission"), "{said}");

        fleet[0].command(&["ACL", "SETUSER", "default", "+script|load"]).unwrap();
        let votes = async { while told().await.is_some() {} };
        assert!(timeout(PATIENCE, votes).await.is_ok(), "{:?}", trouble());
        assert_eq!(redlock.instances()[0].counts.connections, 1, "over the same connection");
        free_within(PATIENCE, &fleet).await;
    });
}
