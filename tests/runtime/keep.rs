//! Locks that are left to run out.

use std::time::Duration;

use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{AcquireError, Admission, BadRequest, ExtendError, Holder, Loss, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{hang_first, held, how_many_have, ms, renewing, secs, settle, timed};

const fn minutes(minutes: u64) -> Duration {
    secs(60 * minutes)
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_kept_excludes_everybody_until_its_keys_expire() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(2)).await;
    guard.extend().await.unwrap();
    let (view, sent) = (guard.lease(), cluster.requests());
    guard.keep_for(Duration::ZERO).await.unwrap();
    assert!(!view.is_valid(), "nobody relies on it any more");
    for second in 1..10 {
        sleep(secs(1)).await;
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        let AcquireError::Contended(held_by) = error else { panic!("{error:?}") };
        assert_eq!(held_by.refused_by, 5);
        let left = cluster.instance(0).expires_in("a");
        assert_eq!(left, Some(secs(10 - second)), "neither renewed nor released");
    }
    assert_eq!(cluster.requests().extend, sent.extend);
    sleep(ms(999)).await;
    assert_eq!(how_many_have(&cluster, "a"), 5);
    sleep(ms(1)).await;
    assert!(cluster.keys().is_empty());
    let _next = held(&redlock, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_one_of_several_guards_keeps_is_held_on_by_the_others_and_released_by_none() {
    let (cluster, redlock) = renewing(3).await;
    let lock = || redlock.lock("a").holder(Holder::from("me"));
    let guards = [lock().acquire().await.unwrap(), lock().acquire().await.unwrap(), lock().acquire().await.unwrap()];
    let [first, second, third] = guards;
    first.keep_for(Duration::ZERO).await.unwrap();
    sleep(secs(30)).await;
    assert!(second.is_valid() && third.is_valid(), "still renewed");
    drop(second);
    assert!(third.release().await.unwrap().was_still_held);
    sleep(secs(6)).await;
    assert_eq!(how_many_have(&cluster, "a"), 3);
    assert_eq!(cluster.requests().release, 0);
    sleep(secs(5)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn keeping_a_lock_that_was_lost_fails() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(TestInstance::flush);
    guard.lost().await;
    assert!(matches!(guard.keep_for(Duration::ZERO).await, Err(ExtendError::Lost { .. })));
}

/// How long the key lives on each instance, in whole seconds.
fn lives(cluster: &Cluster, name: &str) -> Vec<u64> {
    let left = cluster.instances().map(|instance| instance.expires_in(name).unwrap_or_default());
    left.map(|left| left.as_secs_f64().round() as u64).collect()
}

#[tokio::test(start_paused = true)]
async fn a_mark_stays_far_longer_than_any_lease_and_nobody_holds_it() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held(&redlock, "a").await;
    let view = guard.lease();
    sleep(secs(5)).await;
    guard.keep_for(minutes(14)).await.unwrap();
    assert!(!view.is_valid() && matches!(view.lost().await, Loss::GivenUp));
    let sent = cluster.requests();
    sleep(minutes(14) - secs(1)).await;
    for client in [&redlock, &elsewhere] {
        assert!(client.lock("a").try_acquire().await.unwrap_err().is_contended());
    }
    assert_eq!((cluster.requests().extend, cluster.requests().release), (sent.extend, sent.release));
    sleep(secs(10)).await; // 1 % of it, as an instance's clock may be the faster one
    assert!(held(&elsewhere, "a").await.is_valid());
}

#[tokio::test(start_paused = true)]
async fn what_lives_long_enough_anyway_is_left_as_it_is() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    guard.keep_for(secs(5)).await.unwrap();
    assert_eq!((cluster.requests().extend, lives(&cluster, "a")), (0, vec![10; 3]));

    let guard = held(&redlock, "b").await;
    sleep(secs(3)).await;
    guard.keep_for(secs(8)).await.unwrap();
    assert_eq!(lives(&cluster, "b"), [10; 3], "a ttl is never shortened");
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_sent_until_a_quorum_has_it() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    hang_first(&cluster, 2, Hang::Stopped);
    let resumed = async {
        sleep(secs(4)).await;
        cluster.instances().for_each(TestInstance::resume);
    };
    let (kept, ()) = tokio::join!(guard.keep_for(minutes(1)), resumed);
    kept.unwrap();
    sleep(secs(2)).await;
    assert!(lives(&cluster, "a").iter().filter(|left| **left > 50).count() >= 2);

    // While no quorum answers the lease ends, and the mark has failed.
    let guard = held(&redlock, "b").await;
    hang_first(&cluster, 2, Hang::Stopped);
    let (kept, took) = timed(guard.keep_for(minutes(1))).await;
    assert!(matches!(kept, Err(ExtendError::Lost { .. })), "{kept:?}");
    assert!(took >= secs(9) && took < secs(11), "{took:?}");
    assert_eq!(cluster.requests().release, 0);
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_refused_or_given_up_leaves_the_keys_to_expire() {
    let (cluster, redlock) = renewing(3).await;
    let error = held(&redlock, "a").await.keep_for(minutes(60 * 24 * 365 * 10) + ms(1)).await.unwrap_err();
    assert!(matches!(error, ExtendError::BadRequest(BadRequest::KeptTooLong { .. })), "{error}");
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    let guard = held(&redlock, "b").await;
    assert!(timeout(ms(10), guard.keep_for(minutes(1))).await.is_err());
    sleep(secs(1)).await;
    assert_eq!((lives(&cluster, "a"), lives(&cluster, "b")), (vec![9; 3], vec![60; 3]));
    assert_eq!(cluster.requests().release, 0);
}

#[tokio::test(start_paused = true)]
async fn other_guards_of_the_holder_do_not_rely_on_a_mark() {
    let (cluster, redlock) = renewing(3).await;
    let lock = redlock.lock("a").renew(Renewal::Off).holder(Holder::from("me"));
    let (first, second) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    first.keep_for(minutes(1)).await.unwrap();
    assert!(second.remaining() < secs(10), "instances that forget wait for no longer than that");
    second.lost().await;
    drop(second);
    assert!(lives(&cluster, "a").iter().all(|left| *left >= 49));
}

#[tokio::test(start_paused = true)]
async fn a_mark_outlives_a_minority_that_forgets_it_and_no_majority() {
    let (cluster, redlock) = renewing(3).await;
    held(&redlock, "a").await.keep_for(minutes(5)).await.unwrap();
    settle().await;
    cluster.instance(0).flush();
    sleep(secs(30)).await;
    assert!(redlock.lock("a").try_acquire().await.unwrap_err().is_contended());
    cluster.instance(1).flush();
    sleep(secs(5)).await;
    assert!(redlock.lock("a").try_acquire().await.is_err(), "not before max_ttl");
    sleep(secs(30)).await;
    assert!(redlock.lock("a").try_acquire().await.is_ok(), "which is documented");
}

/// Counter-example: it was sent again and again, never granted, while the lease was renewed.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_by_the_records_keeps_a_mark_for_longer_than_they_allow_a_lease() {
    let (cluster, redlock) = renewing(3).await;
    held(&redlock, "a").await.release().await.unwrap(); // the records allow 10 s by now
    let tool = cluster.builder().max_ttl(minutes(60)).admission(Admission::AsRecorded).connect().await.unwrap();
    let guard = held(&tool, "a").await;
    assert!(guard.extend_to(minutes(14)).await.is_err(), "no lease is");
    let kept = timeout(secs(60), held(&tool, "b").await.keep_for(minutes(14))).await;
    kept.unwrap().unwrap();
    assert_eq!(lives(&cluster, "b"), [14 * 60 + 8; 3]);
}
