//! P5, P6: late grants, instances that come back, and what a shutdown says.

use std::sync::Arc;

use redquorum::{Loss, RunError};
use redquorum_testkit::Proxy;
use tokio::sync::Notify;

use crate::support::{
    PATIENCE, SHORT_TIMEOUT, builder_of, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair,
    ready, reports, secs, timed,
};

#[test]
fn grants_that_come_after_the_caller_gave_up_are_released() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let proxies: Vec<_> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        for cancelled in [false, true] {
            let builder = builder_of(&fleet).instances(proxies.iter().map(Proxy::address));
            let redlock = ready(builder.instance_timeout(SHORT_TIMEOUT)).await;
            let set = || fleet.iter().map(|server| server.calls("set").unwrap()).collect::<Vec<_>>();
            let before = set();
            // A request is carried out long after the instance timeout, and its answer comes too late.
            let late = secs(1);
            proxies.iter().for_each(|proxy| proxy.delay(late, ms(0)).unwrap());
            if cancelled {
                let limit = SHORT_TIMEOUT / 2;
                assert!(tokio::time::timeout(limit, redlock.lock("late").acquire()).await.is_err());
            } else {
                let (result, took) = timed(redlock.lock("late").try_acquire()).await;
                assert!(reports(result.unwrap_err()).len() == 3 && took < late, "{took:?}");
            }
            // The key itself is there for a moment only.
            let all_set = || set().iter().zip(&before).all(|(now, before)| now > before);
            assert!(eventually(PATIENCE, all_set).await, "it is set when nobody waits any more");
            free_within(PATIENCE, &fleet).await; // the ttl is twice that
            proxies.iter().for_each(|proxy| proxy.forward().unwrap());
        }
    });
}

#[test]
fn an_instance_that_comes_back_loses_the_orphan() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        let guard = held(&redlock, "orphan").await;
        assert!(eventually(PATIENCE, || fleet[0].keys().unwrap() == ["orphan"]).await);
        fleet[0].hang().unwrap();
        // Once silence is known nothing more is sent: the release is pending.
        for _ in 0..400 {
            if !redlock.instances()[0].connected {
                break;
            }
            pair(&redlock, "other").await;
            tokio::time::sleep(ms(5)).await;
        }
        assert!(!redlock.instances()[0].connected);
        assert!(guard.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet[1..]).await;
        fleet[0].resume().unwrap();
        free_within(PATIENCE, &fleet).await; // the ttl is twice that
    });
}

#[test]
fn an_orphan_of_a_broken_connection_is_released_over_the_next() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let proxy = Proxy::start(&fleet[0]).unwrap();
        let mut addresses = fleet.addresses();
        addresses[0] = proxy.address();
        let redlock = ready(builder_of(&fleet).instances(addresses)).await;
        let guard = held(&redlock, "orphan").await;
        assert!(eventually(PATIENCE, || fleet[0].keys().unwrap() == ["orphan"]).await);
        proxy.cut();
        assert!(eventually(PATIENCE, || !redlock.instances()[0].connected).await);
        drop(guard);
        free_within(PATIENCE, &fleet[1..]).await;
        assert_eq!(fleet[0].keys().unwrap(), ["orphan"]);
        proxy.forward().unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_shutdown_drains() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let mut guards = Vec::new();
        for number in 0..50 {
            guards.push(held(&redlock, &format!("name-{number}")).await);
        }
        drop(guards);
        assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
        assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "nothing is left to wait for");
        assert!(matches!(redlock.lock("a").try_acquire().await, Err(ref error) if error.kind() == "shut_down"));
    });
}

#[test]
fn a_shutdown_ends_what_is_held_and_lets_others_in() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        let guard = held(&ours, "a").await;
        let begun = Arc::<Notify>::default();
        let inside = Arc::clone(&begun);
        let running = tokio::spawn(ours.lock("b").run(async move |_| {
            inside.notify_one();
            std::future::pending::<()>().await
        }));
        begun.notified().await; // its key is there before it knows
        assert!(eventually(PATIENCE, || fleet.iter().all(|server| server.keys().unwrap().len() == 2)).await);
        assert_eq!(ours.shutdown(PATIENCE).await, Ok(Vec::new()));
        assert!(matches!(guard.lost().await, Loss::ShutDown));
        assert!(matches!(running.await.unwrap(), Err(RunError::Lost(Loss::ShutDown))));
        for name in ["a", "b"] {
            held(&other, name).await.release().await.unwrap();
        }
    });
}

#[test]
fn a_shutdown_names_what_a_hung_instance_still_owes() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let guards = [held(&redlock, "a").await, held(&redlock, "b").await, held(&redlock, "c").await];
        fleet[2].hang().unwrap();
        drop(guards);
        let (result, took) = timed(redlock.shutdown(secs(20))).await;
        assert!(took < secs(10), "those out of reach are not waited for: {took:?}");
        let unreleased = result.unwrap(); // a quorum has confirmed each
        let [left] = &*unreleased else { panic!("{unreleased:?}") };
        assert_eq!((&left.address, left.releases), (&format!("127.0.0.1:{}", fleet[2].port()), 3));
        assert!(left.cause.is_some(), "{left}");
        free_within(ms(0), &fleet[..2]).await;
        fleet[2].resume().unwrap();
        assert!(eventually(PATIENCE, || redlock.instances()[2].connected).await);
        assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
        free_within(ms(0), &fleet).await;
    });
}
