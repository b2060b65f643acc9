//! Several locks that are held together, on real servers.
#![expect(clippy::disallowed_methods, reason = "tests on real servers measure real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::Redlock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    PATIENCE, alone_on_each_kind, builder_of, fleet_of, free_within, ms, on_each_kind, ready, secs, timed,
};

/// How often two callers meet.
const TIMES: usize = 50;

/// How long those who are busy are.
const BUSY: Duration = Duration::from_secs(2);

#[test]
fn two_in_opposite_orders_get_both_again_and_again() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let mut tasks = JoinSet::new();
        for names in [["a", "b"], ["b", "a"]] {
            let redlock = ready(builder_of(&fleet)).await;
            tasks.spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..TIMES {
                    let (all, took) = timed(redlock.lock_all(names).acquire()).await;
                    longest = longest.max(took);
                    all.unwrap().release().await.unwrap();
                }
                longest
            });
        }
        let longest = timeout(secs(60), tasks.join_all()).await.expect("they wait for each other");
        println!("{TIMES} times each, the longest wait {longest:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

/// One that has `b` and waits for `a`, which no order of names rules out.
#[test]
fn a_circle_with_one_that_holds_on_does_not_last() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (one, other) = (ready(builder_of(&fleet)).await, ready(builder_of(&fleet)).await);
        let mut longest = Duration::ZERO;
        for time in 0..5_u64 {
            let b = other.lock("b").acquire().await.unwrap();
            let all = tokio::spawn(one.lock_all(["a", "b"]).acquire());
            sleep(ms(10 * time)).await;
            let (a, took) = timed(timeout(secs(10), other.lock("a").acquire())).await;
            longest = longest.max(took);
            drop((a.expect("in a circle").unwrap(), b));
            let all = timeout(secs(10), all).await.expect("it begins again").unwrap();
            all.unwrap().release().await.unwrap();
        }
        println!("the longest circle lasted {longest:?}");
        assert!(longest < secs(3), "{longest:?}");
    });
}

/// Locks until it is told to stop, and counts; gives the longest wait.
async fn again_and_again(
    redlock: Redlock,
    names: &'static [&'static str],
    times: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let (all, took) = timed(redlock.lock_all(names).acquire()).await;
        longest = longest.max(took);
        times.fetch_add(1, Ordering::Relaxed);
        sleep(ms(2)).await;
        let _ = all.unwrap().release().await;
    }
    longest
}

/// Locks on one name pass from one waiter to the next, without a moment in which both are free.
#[test]
fn who_wants_two_gets_them_beside_busy_queues_for_each() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let stop = Arc::<AtomicBool>::default();
        let (mut counts, mut tasks) = (Vec::<Arc<AtomicUsize>>::new(), JoinSet::new());
        let singles: [&[&str]; 2] = [&["a"], &["b"]];
        let both: &[&str] = &["a", "b"];
        for names in singles.into_iter().cycle().take(8).chain([both, both]) {
            let (redlock, times) = (ready(builder_of(&fleet)).await, Arc::default());
            tasks.spawn(again_and_again(redlock, names, Arc::clone(&times), Arc::clone(&stop)));
            counts.push(times);
        }
        let begun = Instant::now();
        let all_got_it = || counts.iter().all(|times| times.load(Ordering::Relaxed) >= 10);
        while begun.elapsed() < BUSY || (begun.elapsed() < secs(30) && !all_got_it()) {
            sleep(ms(20)).await;
        }
        stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed();
        let seen = format!("{counts:?} in {took:?}, the last two of both; longest waits {:?}", tasks.join_all().await);
        println!("{seen}");
        assert!(all_got_it(), "{seen}");
    });
}
