//! Locks that are left to run out.

use std::time::Duration;

use redquorum::testing::TestInstance;
use redquorum::{AcquireError, Holder};
use tokio::time::sleep;

use crate::support::{held, how_many_have, ms, renewing, secs};

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_kept_excludes_everybody_until_its_keys_expire() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(2)).await;
    guard.extend().await.unwrap();
    let (view, sent) = (guard.lease(), cluster.requests());
    assert_eq!(guard.keep_until_expiry(), ms(9_898));
    assert!(!view.is_valid(), "nobody relies on it any more");
    for second in 1..10 {
        sleep(secs(1)).await;
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        let AcquireError::Contended(held_by) = error else { panic!("{error:?}") };
        assert_eq!(held_by.earliest_expiry, Some(secs(10 - second)), "neither renewed nor released");
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
    assert!(first.keep_until_expiry() > Duration::ZERO);
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
async fn keeping_a_lock_that_was_lost_says_zero() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(TestInstance::flush);
    guard.lost().await;
    assert_eq!(guard.keep_until_expiry(), Duration::ZERO);
}
