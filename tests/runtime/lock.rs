//! A lock is a description that is kept and used again; what it gives are guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redquorum::testing::TestInstance;
use redquorum::{AcquireError, Holder, Lock, ResourceNames, RunError};
use tokio::time::sleep;

use crate::support::{cluster_of, held, ms, renewing, secs, settle, timed};

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
    assert_eq!(lock.run(async |lease| lease.resources()).await.unwrap().output, "x".into());
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
    assert_eq!((run.await.unwrap().output, try_run.await.unwrap().map(|run| run.output)), (1, Some(2)));
    assert_eq!(cluster.keys(), ["a", "b"]);
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn a_guard_says_what_it_holds_below_the_namespace() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = redlock.namespace("a:").lock(["x", "b", "a:a"]);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.resources(), ["a:a", "b", "x"].into());
    assert_eq!(guard.resources().iter().collect::<Vec<_>>(), [b"a:a".as_slice(), b"b", b"x"]);
    assert_eq!(guard.lease().resources(), guard.resources());
    assert_eq!(ResourceNames::from(["é", "b"]).to_string(), "é, b");

    // The same key through another namespace: each guard shows the name that it was given.
    let holder = Holder::from("me");
    let first = redlock.namespace("n:").lock("y").holder(holder.clone()).acquire().await.unwrap();
    let second = redlock.lock("n:y").holder(holder).acquire().await.unwrap();
    assert_eq!((first.resources(), second.resources()), ("y".into(), "n:y".into()));
}

#[tokio::test(start_paused = true)]
async fn work_that_somebody_else_does_is_skipped_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let (elsewhere, lock) = (cluster.builder().connect().await.unwrap(), redlock.lock("a"));
    for holder in [&redlock, &elsewhere] {
        let guard = held(holder, "a").await;
        let (skipped, took) = timed(lock.try_run(async |_| panic!("it is held"))).await;
        assert!(skipped.unwrap().is_none() && took < ms(50), "{took:?}");
        guard.release().await.unwrap();
    }
    let run = lock.try_run(async |lease| lease.is_valid()).await.unwrap().unwrap();
    assert!(run.output && run.released.unwrap().was_still_held);
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

#[tokio::test(start_paused = true)]
async fn several_that_split_the_votes_do_not_all_skip_the_work() {
    let (cluster, redlock) = cluster_of(3).await;
    for index in 0..2 {
        cluster.instance(index).set("a", format!("another {index}"));
    }
    let lock = redlock.lock("a");
    assert!(matches!(lock.try_acquire().await, Err(AcquireError::SplitVote(_))));
    let others_give_up = async {
        sleep(ms(15)).await;
        for instance in cluster.instances() {
            instance.remove("a");
        }
    };
    let (run, ()) = tokio::join!(lock.try_run(async |_| "done"), others_give_up);
    assert_eq!(run.unwrap().unwrap().output, "done");

    cluster.instance(0).set("a", "somebody");
    cluster.instance(1).set("a", "another one");
    let error = lock.try_run(async |_| ()).await.unwrap_err();
    assert!(matches!(error, RunError::Acquire(AcquireError::SplitVote(_))), "{error:?}");
}
