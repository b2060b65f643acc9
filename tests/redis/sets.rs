//! Locks on several resources beside those on one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::{Redlock, ResourceNames};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{PATIENCE, builder_of, eventually, fleet_of, free_within, ms, on_each_kind, ready, secs, timed};

/// Locks until it is told to stop, and counts; gives the longest wait.
async fn again_and_again(
    redlock: Redlock,
    names: ResourceNames,
    times: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let (guard, took) = timed(redlock.lock(names.clone()).acquire()).await;
        longest = longest.max(took);
        times.fetch_add(1, Ordering::Relaxed);
        sleep(ms(2)).await;
        let _ = guard.unwrap().release().await;
    }
    longest
}

/// Counter-example: locks on one resource passed from one that waits in order to the next, without a moment in which
/// whoever wants both and only asks could get in. In 10 seconds none did.
#[test]
fn a_lock_on_several_resources_gets_in_beside_those_on_one_of_them() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let stop = Arc::<AtomicBool>::default();
        let (mut counts, mut tasks) = (Vec::<Arc<AtomicUsize>>::new(), JoinSet::new());
        let (singles, both) = (["a", "b"].map(ResourceNames::from), ResourceNames::from(["a", "b"]));
        for names in singles.iter().cycle().take(8).chain([&both, &both]) {
            let (redlock, times) = (ready(builder_of(&fleet)).await, Arc::default());
            tasks.spawn(again_and_again(redlock, names.clone(), Arc::clone(&times), Arc::clone(&stop)));
            counts.push(times);
        }
        let all_got_it = || counts.iter().all(|times| times.load(Ordering::Relaxed) >= 10);
        let in_time = eventually(secs(30), all_got_it).await;
        stop.store(true, Ordering::Relaxed);
        let seen = format!("{counts:?}, the last two of both; they waited {:?} at most", tasks.join_all().await);
        println!("{seen}");
        assert!(in_time, "{seen}");
    });
}

#[test]
fn whoever_waits_for_several_resources_is_woken_and_what_was_kept_for_it_goes_on_when_it_leaves() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let patient = || builder_of(&fleet).retry_delay(secs(30), secs(30));
        let clients = [ready(patient()).await, ready(patient()).await, ready(patient()).await];
        let waits = |client: usize, names: ResourceNames| {
            let redlock = clients[client].clone();
            tokio::spawn(async move { redlock.lock(names).acquire().await.unwrap() })
        };
        // One that waits for both gets them from whoever has one, and one of them goes on to whoever waits for that.
        let guard = clients[0].lock("a").acquire().await.unwrap();
        let both = waits(1, ["a", "b"].into());
        sleep(ms(50)).await;
        let (freed, took) = timed(async { guard.release().await.and(Ok(both.await)) }).await;
        assert!(freed.is_ok() && took < PATIENCE, "{took:?}");
        let guard = freed.unwrap().unwrap();
        let (one, other) = (waits(0, "a".into()), waits(2, "b".into()));
        sleep(ms(50)).await;
        guard.release().await.unwrap();
        let ((one, other), took) = timed(async { (one.await.unwrap(), other.await.unwrap()) }).await;
        assert!(one.is_valid() && other.is_valid() && took < PATIENCE, "{took:?}");

        // `a` is kept for one that waits for both, which leaves.
        let (both, next) = (waits(1, ["a", "b"].into()), waits(2, "a".into()));
        sleep(ms(50)).await;
        one.release().await.unwrap();
        both.abort();
        let (next, took) = timed(next).await;
        assert!(next.unwrap().is_valid() && took < PATIENCE, "{took:?}");
        drop(other);
        free_within(PATIENCE, &fleet).await;
    });
}
