//! Many who want the same lock at once.

use redquorum::AcquireError;
use redquorum::testing::simulation::table_sizes;
use redquorum::testing::{Hang, TestInstance};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{TIMEOUT, cluster_of, hang_first, held, ms, secs, settle, timed};

/// How many tries of one client for one lock are on their way at once.
const AT_ONCE: usize = 1;

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
async fn a_single_try_waits_for_its_turn_no_longer_than_for_an_answer() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    let mut crowd = JoinSet::new();
    for _ in 0..4 * AT_ONCE {
        let redlock = redlock.clone();
        crowd.spawn(async move { timed(redlock.lock("a").try_acquire()).await });
    }
    let (mut answered, mut turned_away) = (0, 0);
    while let Some(tried) = crowd.join_next().await {
        match tried.unwrap() {
            (Err(AcquireError::NoQuorum { .. }), took) if took <= TIMEOUT * 2 => answered += 1,
            (Err(error), took) if error.kind() == "queue_timeout" && took == TIMEOUT => turned_away += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(answered >= AT_ONCE && answered + turned_away == 4 * AT_ONCE, "{answered} {turned_away}");
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
async fn single_tries_for_thousands_of_locks_take_turns_and_fail_when_their_turn_does_not_come_in_time() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::RequestsLost);
    let mut crowd = JoinSet::new();
    for number in 0..2 * ASKS_AT_ONCE {
        let redlock = redlock.clone();
        crowd.spawn(async move { redlock.lock(number.to_string()).try_acquire().await.map(drop) });
    }
    let (mut answered, mut turned_away) = (0, 0);
    while let Some(tried) = crowd.join_next().await {
        match tried.unwrap() {
            Err(AcquireError::NoQuorum { .. }) => answered += 1,
            Err(error) if error.kind() == "queue_timeout" => turned_away += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(answered >= ASKS_AT_ONCE && answered + turned_away == 2 * ASKS_AT_ONCE, "{answered} {turned_away}");
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
