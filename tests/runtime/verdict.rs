//! P4: no verdict waits for an instance that it does not need.

use std::time::Duration;

use futures_util::future::join_all;
use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{AcquireError, ExtendError, InstanceAnswer, ReleaseError, Renewal, ReplyKind};

use crate::support::{TIMEOUT, cluster_of, hang_first, held, ms, settle, timed};

const HANGS: [Hang; 3] = [Hang::Stopped, Hang::RepliesLost, Hang::RequestsLost];

#[tokio::test(start_paused = true)]
async fn a_hung_minority_costs_no_time_in_acquire_extend_and_release() {
    for how in HANGS {
        let (cluster, redlock) = cluster_of(5).await;
        hang_first(&cluster, 2, how);
        let (guard, took) = timed(redlock.lock("a").try_acquire()).await;
        assert_eq!(took, Duration::ZERO, "acquire, {how:?}");
        let guard = guard.unwrap();
        let (extended, took) = timed(guard.extend()).await;
        assert_eq!((extended.is_ok(), took), (true, Duration::ZERO), "extend, {how:?}");
        let (released, took) = timed(guard.release()).await;
        assert_eq!(took, Duration::ZERO, "release, {how:?}");
        assert!(released.unwrap().was_still_held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_minority_is_not_waited_for_and_the_quorum_th_fastest_decides() {
    let (cluster, redlock) = cluster_of(5).await;
    for (index, delay) in [5, 30, 10, 150, 199].into_iter().enumerate() {
        cluster.instance(index).slow_down(ms(delay), ms(0));
    }
    let (guard, took) = timed(redlock.lock("a").try_acquire()).await;
    assert_eq!(took, ms(30));
    let guard = guard.unwrap();
    assert_eq!(guard.remaining(), ms(9_898 - 30)); // P2: from before the first send
    let (extended, took) = timed(guard.extend()).await;
    assert!(extended.is_ok());
    // The slow ones have the first request before them in their queues, the third fastest does not.
    assert_eq!(took, ms(30));
    let (released, took) = timed(guard.release()).await;
    assert_eq!((released.unwrap().was_still_held, took), (true, ms(30)));
}

#[tokio::test(start_paused = true)]
async fn a_hung_majority_is_an_error_after_exactly_the_instance_timeout_and_at_once_when_known_to_be_silent() {
    for how in HANGS {
        let (cluster, redlock) = cluster_of(5).await;
        hang_first(&cluster, 3, how);
        for round in 0..4 {
            let (result, took) = timed(redlock.lock("a").try_acquire()).await;
            let Err(AcquireError::NoQuorum { needed: 3, reports }) = result else { panic!("{result:?}") };
            // The first round's acquire and its release, then the second round's acquire: that is three.
            assert_eq!(took, if round < 2 { TIMEOUT } else { Duration::ZERO }, "round {round}, {how:?}");
            let is_told = |answer: &InstanceAnswer| match answer {
                InstanceAnswer::Unknown(cause) => took == TIMEOUT && cause.kind() == ReplyKind::TimedOut,
                InstanceAnswer::NotSent(cause) => took.is_zero() && cause.kind() == ReplyKind::Silent,
                _ => false,
            };
            assert!(reports[..3].iter().all(|report| is_told(&report.answer)), "{reports:?}");
            settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_instance_is_asked_again_once_it_goes_on() {
    for in_order in [false, true] {
        let cluster = Cluster::new(3);
        let redlock = cluster.builder().order_between_clients(in_order).connect().await.unwrap();
        hang_first(&cluster, 2, Hang::Stopped);
        for _ in 0..4 {
            let _ = redlock.lock("a").try_acquire().await;
        }
        let (result, took) = timed(redlock.lock("a").try_acquire()).await;
        assert!(result.is_err() && took.is_zero());
        cluster.instances().for_each(redquorum::testing::TestInstance::resume);
        // What it held back is carried out first; the releases that are pending there follow at once. Nobody is
        // woken by these: a client does not wait for its own tries as for another's lock.
        let (guard, took) = timed(redlock.lock("a").acquire()).await;
        assert!(guard.unwrap().is_valid());
        assert!(took <= ms(300), "in order: {in_order}, {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_majority_is_an_error_at_once() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(3).for_each(redquorum::testing::TestInstance::cut_off);
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(matches!(result, Err(AcquireError::NoQuorum { needed: 3, .. })), "{result:?}");
    assert_eq!(took, Duration::ZERO);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn extend_and_release_without_a_quorum_end_with_the_instance_timeout() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    hang_first(&cluster, 3, Hang::Stopped);
    let (extended, took) = timed(guard.extend()).await;
    assert!(matches!(extended, Err(ExtendError::Unconfirmed { .. })), "{extended:?}");
    assert_eq!(took, TIMEOUT);
    assert!(guard.is_valid());
    let (released, took) = timed(guard.release()).await;
    assert!(matches!(released, Err(ReleaseError::Unconfirmed { .. })), "{released:?}");
    assert_eq!(took, TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_lost_round_does_not_wait_for_the_rest() {
    let (cluster, redlock) = cluster_of(5).await;
    for index in 0..3 {
        assert!(cluster.instance(index).set_if_absent("a", "somebody", ms(60_000)));
    }
    for index in 3..5 {
        cluster.instance(index).hang(Hang::Stopped);
    }
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(matches!(result, Err(AcquireError::Contended(_))), "{result:?}");
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_round_ends_when_too_little_of_the_ttl_would_be_left() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(120), ms(0)));
    let (result, took) = timed(redlock.lock("a").ttl(ms(100)).try_acquire()).await;
    assert!(matches!(result, Err(ref error) if error.kind() == "too_slow"), "{result:?}");
    assert_eq!(took, ms(77)); // 100 ms - 3 ms drift - 20 ms that must be left
    tokio::time::sleep(ms(120)).await; // 77 ms + 120 ms on the way
    settle().await;
    assert!(cluster.keys().is_empty(), "what was set late is released late");
}

/// Those who share a write ask in a second one who is in the way. Over a long way nobody waits for that.
#[tokio::test(start_paused = true)]
async fn over_a_long_way_those_who_share_a_write_are_refused_before_they_give_up() {
    let (cluster, redlock) = cluster_of(3).await;
    let elsewhere = cluster.builder().renew(Renewal::Off).connect().await.unwrap();
    let names: Vec<String> = (0..24).map(|name| name.to_string()).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(held(&elsewhere, name).await);
    }
    cluster.instances().for_each(|instance: &TestInstance| instance.slow_down(ms(36), ms(36)));
    for tried in join_all(names.iter().map(|name| redlock.lock(name.as_str()).try_acquire())).await {
        let error = tried.unwrap_err();
        assert!(error.is_contended(), "{error}");
    }
}

/// Counter-example: a wait for another program's key ended, now and then, with "several clients tried at the same moment".
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_between_two_rounds_of_a_try_says_what_the_try_before_has_found() {
    for access in ["write", "read"] {
        let (cluster, redlock) = cluster_of(3).await;
        cluster.instances().for_each(|instance| instance.set_other_type("a"));
        for limit in (300..900).step_by(10).map(ms) {
            let result = match access {
                "write" => redlock.lock("a").wait_at_most(limit).acquire().await.map(drop),
                _ => redlock.rw_lock("a").wait_at_most(limit).read().await.map(drop),
            };
            let failure = result.unwrap_err();
            assert!(failure.is_contended(), "{access}, {limit:?}: {failure}");
        }
    }
}
