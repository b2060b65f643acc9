//! Several locks that are held together, on real servers.
#![expect(clippy::disallowed_methods, reason = "tests on real servers measure real time")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::Redlock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    PATIENCE, alone_on_each_kind, builder_of, fleet_of, free_within, ms, on_each_kind, ready, secs, timed,
};

/// How often two callers meet in each of the first tests; more often where this is set: `REDQUORUM_ROUNDS=1000`.
fn rounds() -> usize {
    std::env::var("REDQUORUM_ROUNDS").ok().map_or(50, |rounds| rounds.parse().unwrap())
}

/// So many circles are waited for at once: each lasts for a second.
const CIRCLES: usize = 50;

/// How long those who are busy are.
const BUSY: Duration = Duration::from_secs(4);

#[test]
fn two_in_opposite_orders_get_both_again_and_again() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (mut tasks, inside) = (JoinSet::new(), Arc::<Mutex<()>>::default());
        for names in [["a", "b"], ["b", "a"]] {
            let (redlock, inside) = (ready(builder_of(&fleet)).await, Arc::clone(&inside));
            tasks.spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..rounds() {
                    let (all, took) = timed(redlock.lock_all(names).acquire()).await;
                    longest = longest.max(took);
                    let alone = inside.try_lock().is_ok(); // never held across the release
                    assert!(alone && all.unwrap().release().await.unwrap().was_still_held);
                }
                longest
            });
        }
        let longest = timeout(secs(60), tasks.join_all()).await.expect("they wait for each other");
        println!("{} times each, the longest wait {longest:?}", rounds());
        free_within(PATIENCE, &fleet).await;
    });
}

/// One that has `b` and waits for `a`, which no order of names rules out.
#[test]
fn a_circle_with_one_that_holds_on_does_not_last() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (one, other) = (ready(builder_of(&fleet)).await, ready(builder_of(&fleet)).await);
        let mut tasks = JoinSet::new();
        for circle in 0..CIRCLES {
            let (one, other) = (one.clone(), other.clone());
            let [first, second] = [format!("a{circle}"), format!("b{circle}")];
            tasks.spawn(async move {
                let mut longest = [Duration::ZERO; 2];
                for round in 0..rounds().div_ceil(CIRCLES) {
                    let b = other.lock(second.as_str()).acquire().await.unwrap();
                    let all = tokio::spawn(timed(one.lock_all([first.as_str(), second.as_str()]).acquire()));
                    sleep(ms((7 * (circle + round) % 40) as u64)).await;
                    let (a, took) = timed(timeout(secs(10), other.lock(first.as_str()).acquire())).await;
                    drop((a.expect("in a circle").unwrap(), b));
                    let (all, of_all) = timeout(secs(10), all).await.expect("it begins again").unwrap();
                    all.unwrap().release().await.unwrap();
                    longest = [longest[0].max(took), longest[1].max(of_all)];
                }
                longest
            });
        }
        let longest = tasks.join_all().await.into_iter().reduce(|[a, all], [b, others]| [a.max(b), all.max(others)]);
        println!("{} circles, the longest wait for `a` and for both {longest:?}", rounds());
        assert!(longest.is_some_and(|longest| longest[0] < secs(8)), "{longest:?}");
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
        let [of_one, of_both] = [&counts[..8], &counts[8..]]
            .map(|counts| counts.iter().map(|times| times.load(Ordering::Relaxed)).sum::<usize>());
        let seen = format!(
            "{of_one} sections of one and {of_both} of both in {took:?}: {counts:?}, the last two of both; longest waits {:?}",
            tasks.join_all().await
        );
        println!("{seen}");
        assert!(all_got_it(), "{seen}");
    });
}
