//! P22: dropping never blocks and never panics, wherever it happens.

use redquorum::testing::{Cluster, Hang};
use redquorum::{Guard, Redlock};
use tokio::runtime::{Builder, Runtime};

use crate::support::{cluster_of, hang_first, held, ms, settle};

fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Five instances, two of them slow, and a guard.
async fn guard_on_a_mixed_cluster() -> (Cluster, Redlock, Guard) {
    let (cluster, redlock) = cluster_of(5);
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
        let (cluster, redlock) = cluster_of(3);
        let dropped_by_shutdown = held(&redlock, "a").await;
        tokio::spawn(async move {
            let _guard = dropped_by_shutdown;
            std::future::pending::<()>().await;
        });
        let waiting = redlock.clone();
        tokio::spawn(async move { waiting.lock("a").acquire().await });
        settle().await;
        let outlives = held(&redlock, "b").await;
        (cluster, redlock, outlives)
    });
    drop(runtime);
    assert_eq!(cluster.keys(), ["b"]);
    drop(outlives);
    drop(redlock);
    assert!(cluster.keys().is_empty());
}

#[test]
fn an_acquire_dropped_outside_the_runtime_is_released() {
    let runtime = paused_runtime();
    let (cluster, redlock) = runtime.block_on(async { cluster_of(5) });
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
    runtime.block_on(settle());
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_does_not_drop_what_its_guards_owe() {
    let (cluster, redlock, guard) = guard_on_a_mixed_cluster().await;
    cluster.instance(2).stop();
    drop(redlock);
    drop(guard);
    tokio::time::sleep(ms(500)).await;
    cluster.instance(2).start();
    tokio::time::sleep(ms(200)).await;
    assert!(cluster.keys().is_empty());
}
