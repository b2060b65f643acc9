//! Connections that die without a word, that break, and that are killed.

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Program, Proxy};

use crate::support::{
    MAX_TTL, PATIENCE, SHORT_TIMEOUT, all_vote, builder_of, eventually, fleet_of, free_within, ms, on_each_kind, pair,
    pair_on_a_bad_day, ready, release_on_a_bad_day, secs, timed, with_admission,
};

/// Three instances, the first behind a proxy. The short `max_ttl` makes the heartbeat quick, and the timeout
/// has silence known soon.
async fn behind_a_proxy(program: &Program) -> (Fleet, Proxy, Redlock) {
    let fleet = fleet_of(program, 3);
    let proxy = Proxy::start(&fleet[0]).unwrap();
    let mut addresses = fleet.addresses();
    addresses[0] = proxy.address();
    let redlock = ready(with_admission(&fleet).instance_timeout(SHORT_TIMEOUT).instances(addresses)).await;
    (fleet, proxy, redlock)
}

fn is_connected(redlock: &Redlock) -> bool {
    redlock.instances()[0].connected
}

/// The first instance serves again.
async fn serves(fleet: &Fleet, redlock: &Redlock) {
    all_vote(redlock).await;
    // Releases, by script or compared by the server.
    let released = || fleet[0].calls("evalsha").unwrap();
    let before = released();
    let serves = || released() >= before + 2;
    for _ in 0..10 {
        pair_on_a_bad_day(redlock, "a").await; // on a busy machine its connection may be taken for silent once more
        if eventually(secs(1), serves).await {
            break;
        }
    }
    assert!(serves());
    free_within(secs(1), fleet).await;
}

#[test]
fn a_connection_into_a_black_hole_is_replaced_without_any_request() {
    on_each_kind(async |program| {
        let (fleet, proxy, redlock) = behind_a_proxy(&program).await;
        let accepted = proxy.accepted();
        proxy.black_hole().unwrap();
        assert!(eventually(PATIENCE, || !is_connected(&redlock)).await, "noticed");
        assert!(eventually(PATIENCE, || proxy.accepted() > accepted + 1).await, "tried anew");
        proxy.forward().unwrap();
        serves(&fleet, &redlock).await;
        let open = || proxy.open() == 1;
        assert!(eventually(PATIENCE, open).await, "{} connections are kept", proxy.open());
    });
}

#[test]
fn a_server_whose_replies_are_lost_delays_nobody_and_keeps_no_lock() {
    on_each_kind(async |program| {
        let (fleet, proxy, redlock) = behind_a_proxy(&program).await;
        proxy.lose_replies().unwrap();
        for _ in 0..100 {
            pair_on_a_bad_day(&redlock, "a").await;
            tokio::time::sleep(ms(10)).await;
        }
        assert!(!is_connected(&redlock), "silence is known");
        // Its releases stood behind its acquires, though nobody heard of either.
        free_within(secs(1), &fleet).await;
        proxy.forward().unwrap();
        serves(&fleet, &redlock).await;
    });
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    on_each_kind(async |program| {
        let (fleet, proxy, redlock) = behind_a_proxy(&program).await;
        for _ in 0..3 {
            proxy.cut();
            assert!(eventually(PATIENCE, || !is_connected(&redlock)).await);
            pair_on_a_bad_day(&redlock, "a").await;
            proxy.forward().unwrap();
            serves(&fleet, &redlock).await;
        }
    });
}

#[test]
fn connections_that_the_server_kills_cost_no_lock() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        // Far longer than the test may take, as the lease is not renewed.
        let redlock = ready(builder_of(&fleet).ttl(secs(60)).max_ttl(secs(60))).await;
        let held = crate::support::held(&redlock, "held").await;
        let working = tokio::spawn({
            let redlock = redlock.clone();
            async move {
                for _ in 0..100 {
                    let lock = redlock.lock("a").wait_at_most(PATIENCE);
                    release_on_a_bad_day(lock.acquire().await.unwrap()).await;
                    tokio::time::sleep(ms(5)).await;
                }
            }
        });
        while !working.is_finished() {
            for server in fleet.iter() {
                server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
                tokio::time::sleep(ms(20)).await;
            }
        }
        working.await.unwrap();
        all_vote(&redlock).await;
        assert!(held.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn all_connections_killed_at_once_are_made_again() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(builder_of(&fleet)).await;
        for server in fleet.iter() {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        }
        let ((), took) = timed(pair(&redlock, "a")).await;
        assert!(took < PATIENCE, "{took:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn an_instance_far_away_is_connected_as_long_as_its_answers_are_in_time() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        proxies.iter().for_each(|proxy| proxy.delay(ms(105), ms(105)).unwrap());
        for builder in [builder_of(&fleet), with_admission(&fleet)] {
            let builder = builder.ttl(MAX_TTL).max_ttl(MAX_TTL).instances(proxies.iter().map(Proxy::address));
            let redlock = ready(builder.instance_timeout(ms(400))).await; // two such ways are more
            pair_on_a_bad_day(&redlock, "a").await;
        }
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn an_instance_that_does_not_answer_says_at_which_step() {
    on_each_kind(async |program| {
        let (_fleet, proxy, redlock) = behind_a_proxy(&program).await;
        proxy.cut();
        assert!(eventually(PATIENCE, || !is_connected(&redlock)).await);
        proxy.black_hole().unwrap();
        let told = || redlock.instances()[0].last_error.clone().is_some_and(|error| error.contains("logging in"));
        assert!(eventually(PATIENCE, told).await, "{:?}", redlock.instances()[0]);
    });
}

#[test]
fn an_instance_that_drops_every_connection_is_connected_to_ever_more_seldom() {
    on_each_kind(async |program| {
        let (fleet, proxy, redlock) = behind_a_proxy(&program).await;
        let before = proxy.accepted();
        let mut dropped = before;
        let drop_it = || {
            if is_connected(&redlock) {
                dropped = proxy.accepted();
                for kind in ["normal", "pubsub"] {
                    fleet[0].command(&["CLIENT", "KILL", "TYPE", kind]).unwrap();
                }
            }
            false
        };
        eventually(secs(3), drop_it).await;
        let tries = proxy.accepted() - before;
        println!("{tries} connections in 3 s");
        assert!(tries <= 15, "{tries} connections");
        assert!(eventually(PATIENCE, || proxy.accepted() > dropped).await, "the last that was dropped is replaced");
        serves(&fleet, &redlock).await;
    });
}
