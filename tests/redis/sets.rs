//! Locks on several resources beside those on one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redquorum::{Redlock, ResourceNames};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{PATIENCE, builder_of, fleet_of, free_within, ms, on_each_kind, ready, secs, timed};

async fn again_and_again(redlock: Redlock, names: ResourceNames, stop: Arc<AtomicBool>) -> (usize, Duration) {
    let (mut times, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let (guard, took) = timed(redlock.lock(names.clone()).acquire()).await;
        longest = longest.max(took);
        times += 1;
        sleep(ms(2)).await;
        let _ = guard.unwrap().release().await;
    }
    (times, longest)
}

/// Counter-example: locks on one resource passed from one that waits in order to the next, without a moment in which
/// whoever wants both and only asks could get in. In 10 seconds none did.
#[test]
fn a_lock_on_several_resources_gets_in_beside_those_on_one_of_them() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let stop = Arc::<AtomicBool>::default();
        let (mut singles, mut sets) = (JoinSet::new(), JoinSet::new());
        for name in ["a", "b", "a", "b", "a", "b", "a", "b"] {
            singles.spawn(again_and_again(ready(builder_of(&fleet)).await, name.into(), Arc::clone(&stop)));
        }
        for _ in 0..2 {
            sets.spawn(again_and_again(ready(builder_of(&fleet)).await, ["a", "b"].into(), Arc::clone(&stop)));
        }
        sleep(secs(4)).await;
        stop.store(true, Ordering::Relaxed);
        let (singles, sets) = (singles.join_all().await, sets.join_all().await);
        println!("one: {singles:?}, both: {sets:?}");
        assert!(singles.iter().chain(&sets).all(|(times, _)| *times >= 10), "{singles:?} {sets:?}");
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
