//! P3, P20: timers stand still while the machine sleeps, the deciding clock does not.

use redquorum::testing::Cluster;
use redquorum::{Loss, Renewal};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::support::{held, ms, secs, timed};

/// A cluster with a runtime of its own: its clock is moved without moving anybody else's timers.
fn cluster_with_own_clock() -> (Cluster, Runtime) {
    let made = std::thread::spawn(|| {
        let clock = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        (clock.block_on(async { Cluster::new(5) }), clock)
    });
    made.join().unwrap()
}

/// The time passes for the clocks, and for no timer but `clock`'s own.
fn sleep_of_the_machine(clock: Runtime, seconds: u64) -> Runtime {
    let moved = std::thread::spawn(move || {
        clock.block_on(tokio::time::advance(secs(seconds)));
        clock
    });
    moved.join().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_while_the_machine_slept_is_not_valid_and_its_end_is_told_soon() {
    for renewal in [Renewal::Auto, Renewal::Off] {
        let (cluster, clock) = cluster_with_own_clock();
        let redlock = cluster.builder().renew(renewal).connect().await.unwrap();
        let guard = held(&redlock, "a").await;
        let view = guard.lease();
        let waiting = tokio::spawn(async move { view.lost().await });
        sleep(secs(1)).await; // by the timers; for the clock nothing has passed
        assert_eq!(guard.remaining(), ms(9_898));
        let clock = sleep_of_the_machine(clock, 9);
        assert!(guard.is_valid() && !waiting.is_finished());
        let clock = sleep_of_the_machine(clock, if renewal == Renewal::Auto { 10 } else { 1 });
        assert!(!guard.is_valid() && guard.remaining().is_zero(), "at once");
        let (loss, took) = timed(waiting).await;
        assert!(matches!(loss.unwrap(), Loss::Expired { .. }));
        assert!(took <= ms(250), "{took:?}");
        clock.shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_came_due_while_the_machine_slept_is_made_up_for() {
    let (cluster, clock) = cluster_with_own_clock();
    let redlock = cluster.builder().connect().await.unwrap();
    let guard = held(&redlock, "a").await;
    let clock = sleep_of_the_machine(clock, 9);
    sleep(ms(250)).await;
    assert_eq!((guard.remaining(), cluster.requests().extend), (ms(9_898), 5));
    clock.shutdown_background();
}
