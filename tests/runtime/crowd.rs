//! Many who want the same lock at once.

use std::time::Duration;

use futures_util::future::join_all;
use redquorum::testing::simulation::table_sizes;
use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, Guard, Redlock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{TIMEOUT, cluster_of, hang_first, held, ms, secs, settle, timed};

#[tokio::test(start_paused = true)]
async fn one_asks_for_all_who_wait_and_other_locks_do_not_wait_for_them() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&cluster.builder().renew(redquorum::Renewal::Off).connect().await.unwrap(), "a").await;
    let sent = cluster.requests().acquire;
    cluster.instances().for_each(|instance| instance.slow_down(ms(10), ms(10)));
    let mut crowd = JoinSet::new();
    for _ in 0..1_000 {
        let redlock = redlock.clone();
        crowd.spawn(async move { redlock.lock("a").acquire().await.map(drop) });
    }
    sleep(ms(15)).await;
    let carried_out = cluster.requests().acquire - sent;
    assert!((1..=3).contains(&carried_out), "{carried_out}");
    let (other, took) = timed(redlock.lock("b").try_acquire()).await;
    assert!(other.is_ok() && took <= ms(40), "behind one command at most: {took:?}");
    guard.release().await.unwrap();
    while let Some(got) = crowd.join_next().await {
        assert!(got.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end_although_its_turn_to_ask_has_not_come() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(75), ms(75)));
    let mut crowd = JoinSet::new();
    for index in 0..4_000 {
        let lock = redlock.lock(index.to_string()).wait_at_most(ms(10));
        crowd.spawn(async move { timed(lock.acquire()).await });
    }
    let mut never_asked = 0;
    while let Some(ended) = crowd.join_next().await {
        let (result, took) = ended.unwrap();
        assert!(took <= ms(11) + 2 * TIMEOUT, "{took:?}");
        match result {
            Ok(_) => {}
            Err(AcquireError::DeadlinePassed { last, .. }) => {
                never_asked += usize::from(last.kind() == "queue_timeout");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(never_asked > 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_the_line_is_passed_over() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    let mut crowd = JoinSet::new();
    for _ in 0..10_000 {
        let redlock = redlock.clone();
        crowd.spawn(async move { redlock.lock("a").try_acquire().await.map(drop) });
    }
    settle().await;
    let last = redlock.clone();
    let last = tokio::spawn(async move { timed(last.lock("a").acquire()).await });
    settle().await;
    crowd.abort_all();
    cluster.instances().for_each(TestInstance::resume);
    let (got, took) = last.await.unwrap();
    assert!(got.is_ok() && took <= ms(300), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_tries_of_one_lock_without_a_quorum_shares_the_verdict_of_a_round_that_begins_after_it() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    for tried in burst(&redlock, 1_000, |_| "a".to_owned()).await {
        match tried {
            (Err(AcquireError::NoQuorum { .. }), took) if took <= TIMEOUT * 2 => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(redlock.stats().acquire_rounds, 2);
}

/// So many single tries at once, and how long each took.
async fn burst(
    redlock: &Redlock,
    count: usize,
    name: impl Fn(usize) -> String,
) -> Vec<(Result<Guard, AcquireError>, Duration)> {
    let mut crowd = JoinSet::new();
    for number in 0..count {
        let lock = redlock.lock(name(number));
        crowd.spawn(async move { timed(lock.try_acquire()).await });
    }
    crowd.join_all().await
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_tries_of_a_lock_that_another_client_has_learns_that_in_two_rounds() {
    let (cluster, redlock) = cluster_of(3).await;
    let _guard = held(&cluster.builder().connect().await.unwrap(), "a").await;
    for hung in [0, 1] {
        hang_first(&cluster, hung, Hang::RequestsLost);
        cluster.instances().for_each(|instance| instance.slow_down(ms(30), ms(30)));
        let rounds = redlock.stats().acquire_rounds;
        for (tried, took) in burst(&redlock, 3_000, |_| "a".to_owned()).await {
            assert!(tried.is_err_and(|error| error.is_contended()) && took <= ms(60) * 2 + ms(10), "{took:?}");
        }
        assert_eq!(redlock.stats().acquire_rounds - rounds, 2);
    }
}

/// The round that is under way says nothing of what happens after it began.
#[tokio::test(start_paused = true)]
async fn a_try_does_not_share_the_verdict_of_a_round_that_began_before_it_came() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&cluster.builder().connect().await.unwrap(), "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(1), ms(60)));
    let first = tokio::spawn(redlock.lock("a").try_acquire());
    sleep(ms(20)).await; // it was refused, and has not heard of it
    drop(guard);
    sleep(ms(10)).await;
    assert!(!first.is_finished());
    let second = redlock.lock("a").try_acquire().await;
    assert!(first.await.unwrap().unwrap_err().is_contended());
    assert!(second.is_ok(), "it was free before this try began: {second:?}");
}

/// Counter-example: all were told that the ttl was too short, as it was for the first.
#[tokio::test(start_paused = true)]
async fn a_try_does_not_share_the_verdict_that_a_shorter_ttl_was_too_short() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    let lock = redlock.lock("a");
    let kinds = async |ttls: &[Duration]| {
        let tries = join_all(ttls.iter().map(|ttl| lock.clone().ttl(*ttl).try_acquire())).await;
        tries.iter().map(|tried| tried.as_ref().map_or_else(AcquireError::kind, |_| "won")).collect::<Vec<_>>()
    };
    let (short, long) = (ms(50), secs(10));
    assert_eq!(kinds(&[short, short, long, long]).await, ["too_slow", "too_slow", "won", "contended"]);
    sleep(secs(1)).await;
    let (all, took) = timed(kinds(&[short; 100])).await;
    assert_eq!((all, took), (vec!["too_slow"; 100], ms(76)), "two rounds");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_tries_of_different_free_locks_at_once_all_get_theirs() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    for (tried, _) in burst(&redlock, 4_000, |number| number.to_string()).await {
        assert!(tried.is_ok(), "{tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_in_line_are_told_of_a_shutdown() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    let mut crowd = JoinSet::new();
    for _ in 0..100 {
        let redlock = redlock.clone();
        crowd.spawn(async move { redlock.lock("a").acquire().await.map(drop) });
    }
    settle().await;
    let (_, took) = timed(redlock.shutdown(secs(10))).await;
    assert!(took <= secs(1), "{took:?}");
    sleep(secs(1)).await;
    while let Some(got) = crowd.join_next().await {
        assert!(matches!(got.unwrap(), Err(ref error) if error.kind() == "shut_down"));
    }
}

/// How many of a client ask at once.
const ASKS_AT_ONCE: usize = 256;

#[tokio::test(start_paused = true)]
async fn thousands_of_locks_that_are_wanted_at_once_are_asked_for_a_few_hundred_at_a_time() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    let mut crowd = JoinSet::new();
    for number in 0..4 * ASKS_AT_ONCE {
        let redlock = redlock.clone();
        crowd.spawn(async move { redlock.lock(number.to_string()).acquire().await.map(drop) });
    }
    settle().await;
    let queues = table_sizes(&redlock).into_iter().find(|(what, _)| what.contains("one connection"));
    assert_eq!(queues.unwrap().1, ASKS_AT_ONCE);
    sleep(ms(250)).await; // the first were in vain, the next ask
    cluster.instances().for_each(TestInstance::resume);
    while let Some(got) = crowd.join_next().await {
        assert!(got.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn single_tries_for_thousands_of_locks_end_with_the_first_round_without_a_quorum_that_began_after_them() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    for (tried, took) in burst(&redlock, 20 * ASKS_AT_ONCE, |number| number.to_string()).await {
        let error = tried.unwrap_err();
        assert!(error.kind() == "no_quorum" && took <= TIMEOUT * 2, "{error} after {took:?}");
        assert!(error.to_string().contains("no answer within the instance timeout"), "{error}");
    }
}

/// The pauses of waiters end all the time, where there are thousands. Each of their attempts takes a round trip.
#[tokio::test(start_paused = true)]
async fn a_free_lock_is_acquired_beside_thousands_of_waiters_that_poll() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| {
        for number in 0..2_500 {
            instance.set(number.to_string(), "another library's");
        }
        instance.slow_down(ms(75), ms(75));
    });
    let mut crowd = JoinSet::new();
    for number in 0..2_500 {
        let lock = redlock.lock(number.to_string());
        crowd.spawn(async move { lock.acquire().await.map(drop) });
    }
    sleep(secs(5)).await;
    for number in 0..10 {
        let (free, took) = timed(redlock.lock(format!("free {number}")).try_acquire()).await;
        assert!(took <= ms(160), "{took:?}");
        drop(free.unwrap());
        sleep(ms(100)).await;
    }
}
