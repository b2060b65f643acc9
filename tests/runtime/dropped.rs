//! P22: dropping never blocks and never panics, wherever it happens.

use redquorum::testing::{Cluster, Hang};
use redquorum::{Guard, Redlock};
use tokio::runtime::{Builder, Runtime};

use crate::support::{cluster_of, hang_first, held, ms, renewing, secs, settle, until_voting};

fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Five instances, two of them slow, and a guard.
async fn guard_on_a_mixed_cluster() -> (Cluster, Redlock, Guard) {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instance(0).slow_down(ms(20), ms(20));
    cluster.instance(1).slow_down(ms(0), ms(50));
    let guard = held(&redlock, "a").await;
    (cluster, redlock, guard)
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_by_another_thread_is_released() {
    let (cluster, _redlock, guard) = guard_on_a_mixed_cluster().await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    tokio::time::sleep(ms(40)).await;
    assert!(cluster.keys().is_empty());
}

#[test]
fn a_guard_dropped_outside_the_runtime_is_released() {
    let runtime = paused_runtime();
    let (cluster, _redlock, guard) = runtime.block_on(guard_on_a_mixed_cluster());
    drop(guard);
    runtime.block_on(async { tokio::time::sleep(ms(40)).await });
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_by_a_panic_is_released() {
    let (cluster, _redlock, guard) = guard_on_a_mixed_cluster().await;
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        panic!("as planned");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    tokio::time::sleep(ms(40)).await;
    assert!(cluster.keys().is_empty());
}

#[test]
fn a_guard_dropped_while_the_runtime_shuts_down_or_after_is_harmless() {
    let runtime = paused_runtime();
    let (cluster, redlock, outlives) = runtime.block_on(async {
        let (cluster, redlock) = cluster_of(3).await;
        let dropped_by_shutdown = held(&redlock, "a").await;
        tokio::spawn(async move {
            let _guard = dropped_by_shutdown;
            std::future::pending::<()>().await;
        });
        tokio::spawn(redlock.lock("a").acquire());
        settle().await;
        let outlives = held(&redlock, "b").await;
        (cluster, redlock, outlives)
    });
    drop(runtime);
    drop(outlives);
    drop(redlock);
    assert_eq!(cluster.keys(), ["a", "b"], "nobody can release them any more: they expire");
}

#[test]
fn an_acquire_dropped_outside_the_runtime_is_released() {
    let runtime = paused_runtime();
    let (cluster, redlock) = runtime.block_on(async { cluster_of(5).await });
    hang_first(&cluster, 3, Hang::RepliesLost);
    let mut acquire = Box::pin(redlock.lock("a").acquire());
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = &mut acquire => unreachable!("three of five hang"),
            () = settle() => {}
        }
    });
    assert_eq!(cluster.keys(), ["a"]);
    drop(acquire);
    runtime.block_on(async { tokio::time::sleep(ms(5)).await }); // behind an answer that does not come it is sent a moment later
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_does_not_drop_what_its_guards_owe() {
    let (cluster, redlock, guard) = guard_on_a_mixed_cluster().await;
    cluster.instance(2).cut_off();
    drop(redlock);
    drop(guard);
    tokio::time::sleep(ms(500)).await;
    cluster.instance(2).resume();
    tokio::time::sleep(secs(2)).await; // until it is connected again
    assert!(cluster.keys().is_empty());
}

/// A guard of a lease whose first renewal is on its way to three slow instances.
async fn guard_in_the_midst_of_a_renewal() -> (Cluster, Redlock, Guard) {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    tokio::time::sleep(ms(3_335)).await;
    assert_eq!(cluster.requests().extend, 0, "on its way");
    (cluster, redlock, guard)
}

async fn released_and_not_renewed(cluster: &Cluster) {
    tokio::time::sleep(ms(60)).await;
    for _ in 0..30 {
        assert!(cluster.keys().is_empty());
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(cluster.requests().extend, 3);
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_elsewhere_in_the_midst_of_a_renewal_is_released_behind_it() {
    let (cluster, _redlock, guard) = guard_in_the_midst_of_a_renewal().await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    released_and_not_renewed(&cluster).await;

    let (cluster, _redlock, guard) = guard_in_the_midst_of_a_renewal().await;
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        panic!("as planned");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    released_and_not_renewed(&cluster).await;

    let (cluster, redlock, guard) = guard_in_the_midst_of_a_renewal().await;
    drop(redlock);
    drop(guard);
    released_and_not_renewed(&cluster).await;
}

#[test]
fn a_guard_dropped_outside_the_runtime_is_not_renewed_when_that_goes_on() {
    let runtime = paused_runtime();
    let (cluster, redlock, guard) = runtime.block_on(guard_in_the_midst_of_a_renewal());
    drop(guard);
    runtime.block_on(released_and_not_renewed(&cluster));
    drop(redlock);
}

#[test]
fn a_runtime_that_ends_in_the_midst_of_a_renewal_ends_the_renewals_and_nothing_panics() {
    let runtime = paused_runtime();
    let (cluster, redlock, guard) = runtime.block_on(guard_in_the_midst_of_a_renewal());
    let view = guard.lease();
    drop(runtime);
    assert!(guard.is_valid(), "for as long as it was");
    drop(guard);
    drop(redlock);
    assert!(!view.is_valid());
    assert_eq!(cluster.keys(), ["a"], "nobody can release it any more: it expires");
}

#[tokio::test(start_paused = true)]
async fn the_release_of_what_is_held_across_a_shutdown_is_followed() {
    let (cluster, redlock) = renewing(5).await;
    let _guards = [held(&redlock, "a").await, held(&redlock, "b").await];
    cluster.instance(0).cut_off();
    let unreleased = redlock.shutdown(secs(1)).await.unwrap();
    let [left] = &*unreleased else { panic!("{unreleased:?}") };
    assert_eq!((left.address.as_str(), left.releases), ("memory:0", 2));
    cluster.instance(0).resume();
    until_voting(&redlock, 5).await; // those out of reach are not waited for
    assert_eq!(redlock.shutdown(secs(1)).await, Ok(Vec::new()));
    assert!(cluster.keys().is_empty());
}
