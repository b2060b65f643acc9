//! What an acquire and a release cost: one command on each instance, one round trip.

use redquorum::{Redlock, ResourceNames};
use redquorum_testkit::{Fleet, Proxy};

use crate::support::{
    PATIENCE, builder_of, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair, ready, timed,
    with_admission,
};

const ROUNDS: u64 = 25;

fn evalsha(fleet: &Fleet) -> Vec<u64> {
    fleet.iter().map(|server| server.calls("evalsha").unwrap()).collect()
}

/// Waits until every instance has carried out this many commands; more never become fewer.
async fn expect_each(fleet: &Fleet, count: u64) {
    let all = vec![count; fleet.len()];
    assert!(eventually(PATIENCE, || evalsha(fleet) == all).await, "{:?} instead of {count} each", evalsha(fleet));
}

async fn count(fleet: &Fleet, redlock: &Redlock, names: impl Into<ResourceNames> + Clone) {
    fleet.iter().for_each(|server| server.reset_stats().unwrap());
    for round in 0..ROUNDS {
        let guard = redlock.lock(names.clone()).try_acquire().await.unwrap();
        expect_each(fleet, 2 * round + 1).await;
        guard.release().await.unwrap();
        expect_each(fleet, 2 * round + 2).await;
    }
    tokio::time::sleep(ms(50)).await;
    expect_each(fleet, 2 * ROUNDS).await;
    // The heartbeat is a TIME; nothing else goes to the instances.
    for other in ["eval", "script|load", "multi", "ping", "hello"] {
        assert!(fleet.iter().all(|server| server.calls(other).unwrap() == 0), "{other}");
    }
}

#[test]
fn an_acquire_and_a_release_are_one_command_each_on_each_instance() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        for builder in [builder_of(&fleet), with_admission(&fleet)] {
            // No stall of the machine is to be taken for a hang: what times out is released once more.
            let redlock = ready(builder.instance_timeout(PATIENCE)).await;
            pair(&redlock, "a").await;
            free_within(PATIENCE, &fleet).await;
            count(&fleet, &redlock, "a").await;
            count(&fleet, &redlock, ["a", "b", "c", "d"]).await;
        }
    });
}

#[test]
fn a_refused_try_asks_each_instance_once_and_clears_up_once() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let ours = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await;
        let other = client_of(&fleet).await;
        let _guard = held(&other, "a").await;
        expect_each(&fleet, fleet[0].calls("evalsha").unwrap()).await;
        fleet.iter().for_each(|server| server.reset_stats().unwrap());
        for round in 1..=ROUNDS {
            assert!(ours.lock("a").try_acquire().await.is_err());
            // P5: what a refusal may hide, a resent SET, is released too.
            expect_each(&fleet, 2 * round).await;
        }
    });
}

#[test]
fn many_tasks_at_once_share_commands() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await;
        fleet.iter().for_each(|server| server.reset_stats().unwrap());
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let redlock = redlock.clone();
                tokio::spawn(async move {
                    for _ in 0..10 {
                        pair(&redlock, &format!("task-{task}")).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        free_within(PATIENCE, &fleet).await;
        println!("{:?} commands for {} requests", evalsha(&fleet), 64 * 10 * 2);
        assert!(evalsha(&fleet).iter().all(|calls| *calls <= 64 * 10), "{:?}", evalsha(&fleet));
    });
}

#[test]
fn an_acquire_and_a_release_are_one_round_trip_each() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        // Not the default timeout: nothing here is to be taken for a hang.
        let builder = builder_of(&fleet).instances(proxies.iter().map(Proxy::address)).instance_timeout(PATIENCE);
        let redlock = ready(builder).await;
        pair(&redlock, "a").await;
        proxies.iter().for_each(|proxy| proxy.delay(ms(30), ms(30)).unwrap());
        let (mut acquires, mut releases) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let (guard, took) = timed(held(&redlock, "a")).await;
            acquires.push(took);
            releases.push(timed(guard.release()).await.1);
        }
        for least in [acquires.iter().min().unwrap(), releases.iter().min().unwrap()] {
            assert!(*least >= ms(60) && *least < ms(120), "one trip takes 60 ms: {acquires:?} {releases:?}");
        }
    });
}
