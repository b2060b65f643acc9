//! Waiting, deadlines, and requests that are never sent.

use std::time::Duration;

use redquorum::testing::{Hang, Requests, TestInstance};
use redquorum::{AcquireError, BadRequest, TtlError};

use crate::support::{TIMEOUT, cluster_of, hang_first, held, ms, secs, settle, timed};

#[tokio::test(start_paused = true)]
async fn bad_input_sends_nothing() {
    let (cluster, redlock) = cluster_of(3).await;
    let is_bad = |result: Result<_, AcquireError>| match result {
        Err(AcquireError::BadRequest(bad)) => bad,
        other => panic!("{:?}", other.map(|_: redquorum::Guard| ())),
    };
    let names = |bad| matches!(bad, BadRequest::Resource(_));
    assert!(names(is_bad(redlock.lock("").acquire().await)));
    assert!(names(is_bad(redlock.lock("redquorum:fence:a").try_acquire().await)));
    let zero = is_bad(redlock.lock("a").ttl(Duration::ZERO).acquire().await);
    assert_eq!(zero, BadRequest::Ttl(TtlError::ZeroTtl));
    let drift = is_bad(redlock.lock("a").ttl(ms(4)).acquire().await);
    assert!(matches!(drift, BadRequest::Ttl(TtlError::TtlBelowDrift { .. })));
    let long = is_bad(redlock.lock("a").ttl(ms(10_001)).try_acquire().await);
    assert!(matches!(long, BadRequest::TtlAboveMax { .. }));
    settle().await;
    assert_eq!(cluster.requests(), Requests::default());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_sends_nothing() {
    let (cluster, redlock) = cluster_of(3).await;
    redlock.shutdown(secs(1)).await.unwrap();
    assert!(matches!(redlock.lock("a").acquire().await, Err(ref error) if error.kind() == "shut_down"));
    assert_eq!(cluster.requests(), Requests::default());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_gets_the_lock_soon_after_its_release() {
    let (_cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    let other = redlock.clone();
    let waiting = tokio::spawn(async move { timed(other.lock("a").acquire()).await });
    tokio::time::sleep(secs(3)).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let (guard, took) = waiting.await.unwrap();
    assert!(guard.unwrap().is_valid());
    // The pause between two tries has grown to a second at most by then.
    assert!(took >= secs(3) && took <= secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_wait_names_the_cause_of_the_last_try() {
    let (cluster, redlock) = cluster_of(3).await;
    let _guard = held(&redlock, "a").await;
    let (result, took) = timed(redlock.lock("a").wait_at_most(secs(1)).acquire()).await;
    let Err(AcquireError::DeadlinePassed { waited, last }) = result else { panic!("{result:?}") };
    assert!(matches!(*last, AcquireError::Contended(_)), "{last:?}");
    assert_eq!((waited, took), (secs(1), secs(1)));

    cluster.instances().for_each(TestInstance::cut_off);
    let (result, took) = timed(redlock.lock("b").wait_at_most(secs(1)).acquire()).await;
    let Err(AcquireError::DeadlinePassed { last, .. }) = result else { panic!("{result:?}") };
    assert!(matches!(*last, AcquireError::NoQuorum { .. }), "{last:?}");
    assert_eq!(took, secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_one_whole_round() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 2, Hang::Stopped);
    let (result, took) = timed(redlock.lock("a").wait_at_most(Duration::ZERO).acquire()).await;
    let Err(AcquireError::DeadlinePassed { last, .. }) = result else { panic!("{result:?}") };
    assert!(matches!(*last, AcquireError::NoQuorum { .. }), "{last:?}");
    assert_eq!(took, TIMEOUT);
    cluster.instances().for_each(TestInstance::resume);
    assert!(redlock.lock("b").wait_at_most(Duration::ZERO).acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_redlock_client_and_this_one_exclude_each_other() {
    let (cluster, redlock) = cluster_of(3).await;
    for index in 0..2 {
        assert!(cluster.instance(index).set_if_absent("a", "foreign", secs(5)));
    }
    let result = redlock.lock("a").try_acquire().await;
    let Err(AcquireError::Contended(held_by)) = result else { panic!("{result:?}") };
    assert_eq!((held_by.refused_by, held_by.earliest_expiry), (2, None), "plain commands do not tell when it ends");
    assert_eq!(held_by.by.to_string(), "a client of another kind");
    tokio::time::sleep(secs(5)).await;
    let _guard = held(&redlock, "a").await;
    let free = cluster.instances().filter(|i| i.set_if_absent("a", "foreign", secs(5))).count();
    assert_eq!(free, 0);
}

#[tokio::test(start_paused = true)]
async fn refused_by_few_and_unanswered_by_the_rest_is_not_called_held() {
    let (cluster, redlock) = cluster_of(5).await;
    assert!(cluster.instance(0).set_if_absent("a", "foreign", secs(60)));
    cluster.instances().skip(1).take(3).for_each(TestInstance::cut_off);
    let result = redlock.lock("a").try_acquire().await;
    assert!(matches!(result, Err(AcquireError::NoQuorum { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn connected_returns_with_a_quorum_and_names_those_missing() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    settle().await;
    let (result, took) = timed(redlock.wait_connected(secs(1))).await;
    let error = result.unwrap_err();
    assert_eq!((error.connected, error.needed, took), (2, 3, secs(1)));
    assert_eq!(error.reports.len(), 3);
    let starting = cluster.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ms(300)).await;
        starting.instance(2).resume();
    });
    let (result, took) = timed(redlock.wait_connected(secs(5))).await;
    assert!(result.is_ok());
    // A pause between two tries to connect is a second at most, and those that are still missing are waited for a
    // little longer.
    assert!((ms(300)..=ms(1_500) + TIMEOUT).contains(&took), "{took:?}");
}
