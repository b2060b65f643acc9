//! Semaphores on real servers.
#![expect(clippy::disallowed_methods, reason = "tests on real servers measure real time")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redquorum::Redlock;
use redquorum_testkit::Fleet;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{
    PATIENCE, alone_on_each_kind, builder_of, eventually, fleet_of, free_within, ms, on_each_kind, ready, secs, timed,
};

const CLIENTS: usize = 16;
const PERMITS: u32 = 3;

/// How long all of them work.
const BUSY: Duration = secs(3);

/// How long one does.
const WORK: Duration = ms(5);

async fn clients(fleet: &Fleet, count: usize) -> Vec<Redlock> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(ready(builder_of(fleet)).await);
    }
    clients
}

/// Works under permits until it is told to stop; gives how long each was waited for.
async fn work(redlock: Redlock, inside: Arc<Mutex<BTreeSet<u32>>>, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let (semaphore, mut waits) = (redlock.semaphore("a", PERMITS), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let (permit, took) = timed(semaphore.acquire()).await;
        let permit = permit.unwrap();
        waits.push(took);
        assert!(inside.lock().unwrap().insert(permit.index()), "two have the same permit");
        sleep(WORK).await;
        assert!(permit.is_valid() && inside.lock().unwrap().len() <= PERMITS as usize);
        inside.lock().unwrap().remove(&permit.index());
        assert!(permit.release().await.unwrap().was_still_held);
    }
    waits
}

#[test]
fn never_more_than_there_are_permits_among_sixteen_clients_and_nobody_starves() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (inside, stop) = (Arc::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        for redlock in clients(&fleet, CLIENTS).await {
            tasks.spawn(work(redlock, Arc::clone(&inside), Arc::clone(&stop)));
        }
        sleep(BUSY).await;
        stop.store(true, Ordering::Relaxed);
        let each = timeout(secs(20), tasks.join_all()).await.expect("nobody waits for ever");
        let counts: Vec<usize> = each.iter().map(Vec::len).collect();
        let mut waits: Vec<Duration> = each.into_iter().flatten().collect();
        waits.sort_unstable();
        let at = |part: usize| waits[(waits.len() - 1) * part / 100];
        let seen = format!(
            "{} sections, {counts:?} each; waits p50 {:?}, p99 {:?}, longest {:?}",
            waits.len(),
            at(50),
            at(99),
            at(100)
        );
        println!("{seen}");
        assert!(counts.iter().all(|count| *count >= 5) && at(99) < secs(4), "{seen}");
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_permit_of_any_index_passes_between_clients() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let [one, other] = clients(&fleet, 2).await.try_into().unwrap();
        let mut waits = Vec::new();
        for round in 0..30 {
            let semaphore = one.semaphore("a", PERMITS);
            let mut held = Vec::new();
            for _ in 0..PERMITS {
                held.push(semaphore.acquire().await.unwrap());
            }
            let waiter = tokio::spawn(other.semaphore("a", PERMITS).acquire());
            sleep(ms(30)).await;
            let former = held.swap_remove(round % PERMITS as usize);
            let index = former.index();
            let begun = Instant::now();
            assert!(former.release().await.unwrap().was_still_held);
            let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
            waits.push(begun.elapsed());
            assert_eq!(next.index(), index);
            drop((next, held));
            free_within(PATIENCE, &fleet).await;
        }
        waits.sort_unstable();
        println!("30 times, the longest {:?}", waits[29]);
        assert!(waits[27] < ms(150), "all but two, as the machine may stand still: {waits:?}");
    });
}

#[test]
fn futures_that_are_dropped_leave_no_key() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let clients = clients(&fleet, 4).await;
        let won = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for (number, redlock) in (0_u64..).zip(clients) {
            let won = Arc::clone(&won);
            tasks.spawn(async move {
                for round in 0..150_u64 {
                    let patience = Duration::from_micros((round * 97 + number * 31) % 4_000);
                    if let Ok(Ok(permit)) = timeout(patience, redlock.semaphore("a", 2).acquire()).await {
                        won.fetch_add(1, Ordering::Relaxed);
                        sleep(ms(1)).await;
                        drop(permit);
                    }
                }
                assert!(eventually(PATIENCE, || redlock.stats().waiting == 0).await);
            });
        }
        tasks.join_all().await;
        println!("{} of 600 were won", won.load(Ordering::Relaxed));
        free_within(PATIENCE, &fleet).await;
    });
}
