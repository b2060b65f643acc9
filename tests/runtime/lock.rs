//! A lock is a description that is kept and used again; what it gives are guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, Holder, Lock, RunError};
use tokio::time::sleep;

use crate::support::{TIMEOUT, cluster_of, held, ms, renewing, secs, settle, timed};

#[tokio::test(start_paused = true)]
async fn a_lock_is_acquired_again_and_again_also_through_its_clones() {
    let (cluster, redlock) = renewing(3).await;
    let lock = redlock.namespace("a:").lock("x").ttl(secs(2));
    drop(redlock); // the lock keeps the client
    for lock in [&lock, &lock.clone(), &lock] {
        let guard = lock.acquire().await.unwrap();
        assert!(guard.remaining() < secs(2));
        assert_eq!(cluster.keys(), ["a:x"]);
        assert!(matches!(lock.try_acquire().await, Err(AcquireError::Contended(_))));
        guard.release().await.unwrap();
    }
    assert_eq!(lock.run(async |lease| lease.resource()).await.unwrap(), "x".into());
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_share_a_lock_exclude_each_other() {
    struct Service {
        lock: Lock,
        inside: AtomicUsize,
    }
    let (_cluster, redlock) = renewing(3).await;
    let service = Arc::new(Service { lock: redlock.lock("a"), inside: AtomicUsize::new(0) });
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let service = Arc::clone(&service);
            tokio::spawn(async move {
                let guard = service.lock.acquire().await.unwrap();
                assert_eq!(service.inside.fetch_add(1, Ordering::SeqCst), 0);
                sleep(ms(10)).await;
                service.inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn futures_of_a_lock_outlive_it_and_the_client() {
    let (cluster, redlock) = renewing(3).await;
    let (acquire, try_acquire) = (redlock.lock("a").acquire(), redlock.lock("b").try_acquire());
    let (run, try_run) = (redlock.lock("c").run(async |_| 1), redlock.lock("d").try_run(async |_| 2));
    drop(redlock);
    assert_eq!(cluster.keys(), [""; 0], "nothing is sent before they are polled");
    let (a, b) = (tokio::spawn(acquire).await.unwrap().unwrap(), tokio::spawn(try_acquire).await.unwrap().unwrap());
    assert_eq!((run.await.unwrap(), try_run.await.unwrap()), (1, Some(2)));
    assert_eq!(cluster.keys(), ["a", "b"]);
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn a_guard_says_what_it_holds_below_the_namespace() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = redlock.namespace("a:").lock("a:a");
    let guard = lock.acquire().await.unwrap();
    assert_eq!((guard.resource(), guard.resource().as_bytes()), ("a:a".into(), b"a:a".as_slice()));
    assert_eq!(guard.lease().resource(), guard.resource());

    // The same key through another namespace: each guard shows the name that it was given.
    let holder = Holder::from("me");
    let first = redlock.namespace("n:").lock("y").holder(holder.clone()).acquire().await.unwrap();
    let second = redlock.lock("n:y").holder(holder).acquire().await.unwrap();
    assert_eq!((first.resource(), second.resource()), ("y".into(), "n:y".into()));
}

#[tokio::test(start_paused = true)]
async fn work_that_another_process_does_is_skipped_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let (elsewhere, lock) = (cluster.builder().connect().await.unwrap(), redlock.lock("a"));
    for holder in [&redlock, &elsewhere] {
        let guard = held(holder, "a").await;
        let (skipped, took) = timed(lock.try_run(async |_| panic!("it is held"))).await;
        assert!(skipped.unwrap().is_none() && took < ms(50), "{took:?}");
        guard.release().await.unwrap();
    }
    assert_eq!(lock.try_run(async |lease| lease.is_valid()).await.unwrap(), Some(true));
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_is_not_skipped_because_of_the_instances() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    let error = redlock.lock("a").try_run(async |_| ()).await.unwrap_err();
    assert!(matches!(error, RunError::Acquire(AcquireError::NoQuorum { .. })), "{error:?}");
}

/// The others have lost as well, and let go within a round trip.
#[tokio::test(start_paused = true)]
async fn a_try_that_nobody_has_won_asks_again_until_it_gets_the_lock() {
    let (cluster, redlock) = cluster_of(3).await;
    for index in 0..2 {
        cluster.instance(index).set("a", format!("another {index}"));
    }
    let others_let_go = async {
        sleep(ms(1)).await; // before the second round: no pause is shorter
        for instance in cluster.instances() {
            instance.remove("a");
        }
    };
    let lock = redlock.lock("a");
    let (run, ()) = tokio::join!(lock.try_run(async |_| "done"), others_let_go);
    assert_eq!(run.unwrap(), Some("done"));
}

/// A rival that has lost would have let go meanwhile.
#[tokio::test(start_paused = true)]
async fn what_does_not_let_go_of_a_minority_holds_the_lock() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    settle().await;
    cluster.instance(2).set("a", "somebody");
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(matches!(result, Err(AcquireError::Contended(_))), "{result:?}");
    assert!(took >= TIMEOUT / 8 && took < TIMEOUT / 2, "{took:?}");
    settle().await;
    assert!(cluster.instances().skip(3).all(|instance| instance.keys().is_empty()), "nothing stays behind");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_ends_undecided_says_so_and_is_not_contended() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instance(2).cut_off();
    settle().await;
    let next = AtomicUsize::new(0);
    let rivals = async {
        loop {
            // Always another one: each has lost, and lets go.
            cluster.instance(0).set("a", format!("rival {}", next.fetch_add(1, Ordering::SeqCst)));
            sleep(ms(1)).await;
        }
    };
    let lock = redlock.lock("a");
    let error = tokio::select! {
        result = lock.try_acquire() => result.unwrap_err(),
        () = rivals => unreachable!(),
    };
    assert!(matches!(error, AcquireError::SplitVote { .. }), "{error:?}");
    assert!(!error.is_contended() && error.held_by().is_none() && error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("no holder is known; try again") && !text.contains("held by"), "{text}");
}

/// Each has a vote, and would wait for the silent instance until the instance timeout.
#[tokio::test(start_paused = true)]
async fn two_that_try_beside_a_hung_instance_do_not_wait_for_it() {
    let (cluster, redlock) = cluster_of(3).await;
    let hung = cluster.instance(2);
    hung.hang(Hang::Stopped);
    cluster.instance(0).set("a", "rival");
    let lets_go = async {
        sleep(ms(1)).await;
        cluster.instance(0).remove("a");
    };
    let (result, took) = timed(async { tokio::join!(redlock.lock("a").try_acquire(), lets_go).0 }).await;
    assert!(result.is_ok() && took < ms(20), "{took:?} {result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_try_that_asks_again() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instance(2).cut_off();
    settle().await;
    cluster.instance(0).set("a", "rival");
    let lock = redlock.lock("a");
    let shut_down = async {
        settle().await;
        timed(redlock.shutdown(secs(1))).await.1
    };
    let (result, took) = tokio::join!(lock.try_acquire(), shut_down);
    assert!(matches!(result, Err(ref error) if error.kind() == "shut_down"), "{result:?}");
    assert!(took < ms(1), "{took:?}");
}
