//! Thousands who wait for the same lock in one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::{join_all, try_join_all};
use redquorum::{AcquireError, Guard, Redlock, Renewal};
use tokio::task::JoinSet;

use crate::support::{
    MAX_TTL, PATIENCE, SHORT_TIMEOUT, alone_on_each_kind, builder_of, fleet_of, free_within, on_each_kind,
    pair_on_a_bad_day, ready, with_admission,
};

const WAITERS: usize = 3_000;

/// Counter-example: a thousand tries at once kept the instances, and all connections of the client, busy for
/// longer than the instance timeout; all were released and tried again together, and nine of a thousand got
/// the lock in eight seconds.
#[test]
fn thousands_who_wait_for_one_lock_all_get_it_and_other_locks_go_on_meanwhile() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(builder_of(&fleet).instance_timeout(SHORT_TIMEOUT)).await;
        let (got, inside) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let mut crowd = JoinSet::new();
        for _ in 0..WAITERS {
            let (redlock, got, inside) = (redlock.clone(), Arc::clone(&got), Arc::clone(&inside));
            crowd.spawn(async move {
                let guard = redlock.lock("crowded").acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::AcqRel), "two holders");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::Release);
                got.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await;
            });
        }
        let mut others = 0;
        while !crowd.is_empty() {
            while let Some(ended) = crowd.try_join_next() {
                ended.unwrap();
            }
            pair_on_a_bad_day(&redlock, "other").await; // fails if it takes longer than its patience
            others += 1;
        }
        println!("{} got it, {others} pairs meanwhile", got.load(Ordering::Relaxed));
        assert_eq!(got.load(Ordering::Relaxed), WAITERS);
        free_within(PATIENCE, &fleet).await;
    });
}

const LOCKS: usize = 2_000;

/// Counter-example: each lock has an asker of its own, and all of them asked at once. Requests waited in front of the
/// connections for longer than the instance timeout, so that tries were released and made again, and 90 seconds were
/// not enough.
#[test]
fn two_thousand_locks_that_are_wanted_at_once_are_all_acquired() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(builder_of(&fleet).instance_timeout(SHORT_TIMEOUT).renew(Renewal::Auto)).await;
        let mut crowd = JoinSet::new();
        for number in 0..LOCKS {
            let redlock = redlock.clone();
            crowd.spawn(async move { redlock.lock(format!("lock:{number}")).acquire().await.unwrap() });
        }
        let guards = crowd.join_all().await;
        assert!(guards.iter().all(|guard| guard.is_valid()));
        drop(guards);
        free_within(PATIENCE, &fleet).await;
    });
}

async fn burst(redlock: &Redlock, count: usize, name: impl Fn(usize) -> String) -> Vec<Result<Guard, AcquireError>> {
    let tries = (0..count).map(|number| tokio::spawn(redlock.lock(name(number)).try_acquire()));
    try_join_all(tries.collect::<Vec<_>>()).await.unwrap()
}

/// Counter-example: each asked for itself, one after the other, and four of five gave up after an instance timeout.
#[test]
fn a_storm_of_tries_is_answered_with_a_server_hung_too() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (holder, other) = (ready(builder_of(&fleet)).await, ready(builder_of(&fleet)).await);
        let guard = holder.lock("held").ttl(MAX_TTL).renew(Renewal::Auto).try_acquire().await.unwrap();
        for is_one_hung in [false, true] {
            if is_one_hung {
                fleet[0].hang().unwrap();
            }
            for refused in burst(&other, WAITERS, |_| "held".to_owned()).await {
                let error = refused.unwrap_err();
                assert!(error.is_contended(), "{error}");
            }
        }
        fleet[0].resume().unwrap();
        drop(guard);
        let all = burst(&other, 10_000, |number| format!("free:{number}")).await;
        assert_eq!(all.iter().filter_map(|tried| tried.as_ref().err()).map(ToString::to_string).next(), None);
        drop(all);
        free_within(PATIENCE, &fleet).await;
    });
}

/// Tries that wait together share a write.
#[test]
fn each_of_a_crowd_of_tries_learns_who_is_in_its_way() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (holder, other) = (ready(with_admission(&fleet)).await, ready(with_admission(&fleet)).await);
        let held = (0..64).map(|number| holder.lock(format!("held:{number}")).ttl(MAX_TTL).try_acquire());
        let guards = try_join_all(held).await.unwrap();
        let tries = (0..64).map(|number| other.lock(format!("held:{number}")).try_acquire());
        for (guard, tried) in guards.iter().zip(join_all(tries).await) {
            let AcquireError::Contended(held_by) = tried.unwrap_err() else { panic!("it is held") };
            assert_eq!(held_by.by.label.as_deref(), Some("ours"), "{guard:?}: {held_by:?}");
        }
        drop(guards);
        free_within(PATIENCE, &fleet).await;
    });
}
