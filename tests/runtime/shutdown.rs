//! P22: a shutdown ends everything, and nobody gets in before the work under a lock has stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::testing::Cluster;
use redquorum::{AcquireError, BuildError, Builder, ExtendError, Holder, Loss, Redlock, Renewal, RunError};
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, held, ms, renewing, secs, settle, timed};

#[tokio::test(start_paused = true)]
async fn what_is_held_ends_at_once_and_is_released_an_instance_timeout_later() {
    let (cluster, redlock) = renewing(5).await;
    let plain = held(&redlock, "a").await;
    let by_hand = redlock.lock("b").renew(Renewal::Off).acquire().await.unwrap();
    let lock = redlock.lock("c").holder(Holder::from("me"));
    let shared = [lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
    let kept = held(&redlock, "kept").await;
    kept.keep_for(secs(0)).await.unwrap();

    let shutting_down = tokio::spawn({
        let redlock = redlock.clone();
        async move { timed(redlock.shutdown(secs(5))).await }
    });
    settle().await;
    for guard in [&plain, &by_hand, &shared[0], &shared[1]] {
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(matches!(timeout(ms(0), guard.lost()).await, Ok(Loss::ShutDown)));
        assert!(matches!(guard.extend().await, Err(ExtendError::Lost { .. })));
    }
    assert_eq!(cluster.keys(), ["a", "b", "c", "kept"], "work may still be about to stop");
    let (result, took) = shutting_down.await.unwrap();
    assert_eq!(result, Ok(Vec::new()));
    assert!(took >= TIMEOUT && took < TIMEOUT + ms(20), "{took:?}");
    assert_eq!(cluster.keys(), ["kept"], "that was to stay");

    let extends = cluster.requests().extend;
    sleep(secs(60)).await;
    assert_eq!(cluster.requests().extend, extends, "nothing is renewed");
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_anybody_else_gets_in() {
    /// Says that it was dropped.
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let has_stopped = Arc::new(AtomicBool::new(false));
    let work = Work(Arc::clone(&has_stopped));
    let running = tokio::spawn(redlock.lock("a").run(async move |_| {
        let _work = work;
        std::future::pending::<()>().await;
    }));
    settle().await;
    let next = tokio::spawn(async move {
        let guard = elsewhere.lock("a").acquire().await.unwrap();
        assert!(has_stopped.load(Ordering::SeqCst));
        guard
    });
    settle().await;
    let (result, took) = timed(redlock.shutdown(secs(5))).await;
    assert!(result.is_ok() && took < ms(20), "it waits no longer than for the work: {took:?}");
    let ended = running.await.unwrap();
    assert!(matches!(ended, Err(RunError::Lost(Loss::ShutDown))), "{ended:?}");
    assert!(next.await.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_callback_is_told_of_a_shutdown() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (sender, told) = std::sync::mpsc::channel();
    guard.on_lost(move |loss| sender.send(loss).unwrap());
    redlock.shutdown(secs(1)).await.unwrap();
    assert!(matches!(told.try_recv(), Ok(Loss::ShutDown)));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_given_up_releases_all_the_same_and_the_next_one_waits_for_that() {
    for again in [false, true] {
        let (cluster, redlock) = renewing(3).await;
        let _guard = held(&redlock, "a").await;
        assert!(timeout(ms(10), redlock.shutdown(secs(5))).await.is_err());
        assert_eq!(cluster.keys(), ["a"]);
        if again {
            redlock.shutdown(secs(5)).await.unwrap();
        } else {
            sleep(TIMEOUT).await;
        }
        assert!(cluster.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_time_releases_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let _guard = held(&redlock, "a").await;
    let (_, took) = timed(redlock.shutdown(ms(0))).await;
    settle().await;
    assert!(took < ms(5) && cluster.keys().is_empty(), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_waits_for_guards_and_renews_them_meanwhile() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held(&redlock, "a").await;
    let work = tokio::spawn(async move {
        sleep(secs(45)).await;
        guard.release().await.unwrap().was_still_held
    });
    let (result, took) = timed(async {
        let refused = async {
            sleep(secs(1)).await;
            let refused = [redlock.lock("b").try_acquire().await, redlock.lock("b").acquire().await];
            (refused, elsewhere.lock("a").try_acquire().await)
        };
        tokio::join!(redlock.shutdown_gracefully(secs(60), secs(1)), refused)
    })
    .await;
    let (result, ([one, other], busy)) = result;
    let both = [one, other].map(|result| result.unwrap_err().kind());
    assert_eq!(both, ["shut_down"; 2]);
    assert!(matches!(busy, Err(AcquireError::Contended(_))));
    assert!(result.is_ok() && took >= secs(45) && took < secs(46), "{took:?}");
    assert!(work.await.unwrap());
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_ends_what_is_held_when_its_patience_is_over() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (result, took) = timed(redlock.shutdown_gracefully(secs(30), secs(5))).await;
    assert!(result.is_ok() && took >= secs(30) && took < secs(31), "{took:?}");
    assert!(matches!(guard.lost().await, Loss::ShutDown));
    assert!(cluster.keys().is_empty());
}

#[test]
fn a_client_whose_runtime_has_ended_says_so_at_once_to_every_call() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, cluster) = (runtime(), Cluster::new(3));
    let (redlock, guards, detached) = first.block_on(async {
        let redlock = cluster.builder().connect().await.unwrap();
        let guards = [held(&redlock, "a").await, held(&redlock, "b").await];
        let detached = held(&redlock, "d").await.detach();
        (redlock, guards, detached)
    });
    drop(first);
    runtime().block_on(async {
        let has_ended = |text: String| assert!(text.contains("has ended"), "{text}");
        let lock = redlock.lock("c");
        for asked in [lock.acquire().await, lock.try_acquire().await] {
            assert!(matches!(asked, Err(ref error) if error.kind() == "runtime_ended"), "{asked:?}");
        }
        assert!(
            matches!(lock.run(async |_| ()).await, Err(RunError::Acquire(error)) if error.kind() == "runtime_ended")
        );
        let tried = lock.try_run(async |_| ()).await;
        assert!(matches!(tried, Err(RunError::Acquire(error)) if error.kind() == "runtime_ended"));
        let [first, _second] = guards;
        let attached = redlock.attach(&detached).await.unwrap_err();
        assert!(!attached.is_retryable(), "{attached:?}");
        has_ended(attached.to_string());
        has_ended(first.extend().await.unwrap_err().to_string());
        has_ended(first.release().await.unwrap_err().to_string());
        has_ended(redlock.wait_connected(secs(60)).await.unwrap_err().to_string());
        let (result, took) = timed(redlock.shutdown(secs(60))).await;
        let unreleased = result.unwrap_err().unreleased;
        assert!(took < secs(1), "{took:?}");
        assert!(unreleased.len() == 3 && unreleased.iter().all(|left| left.releases >= 2), "{unreleased:?}");
    });
}

/// The clock of a paused runtime shows when it was built: a cluster that was made later began to vote some milliseconds in its
/// future, a few times of a hundred.
#[test]
fn a_cluster_that_is_younger_than_its_paused_runtime_votes_at_once() {
    for _ in 0..500 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let cluster = Cluster::new(3);
        runtime.block_on(async {
            let redlock = cluster.builder().connect().await.unwrap();
            assert!(held(&redlock, "a").await.is_valid());
        });
    }
}

#[test]
fn a_runtime_that_lacks_what_the_client_needs_is_an_error_and_no_panic() {
    let builder = || Redlock::builder().instances(["redis://127.0.0.1:1"]);
    let built_in = |runtime: &mut tokio::runtime::Builder, builder: Builder| {
        runtime.build().unwrap().block_on(async { builder.build() })
    };
    let mut bare = tokio::runtime::Builder::new_current_thread();
    assert_eq!(builder().build().unwrap_err(), BuildError::NoRuntime);
    assert_eq!(built_in(&mut bare, builder()).unwrap_err(), BuildError::NoTimers);
    assert_eq!(built_in(bare.enable_time(), builder()).unwrap_err(), BuildError::NoNetwork);
    assert!(built_in(&mut bare, Cluster::new(3).builder()).is_ok(), "instances in the process need none");
    assert!(built_in(bare.enable_io(), builder()).is_ok());
}
