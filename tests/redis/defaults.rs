//! As a service uses it: with every default but the addresses. Admission is on, leases are renewed, an instance has 200 ms.
//!
//! The servers are opened first, as operators do with new ones; one of five is hung while the clients work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use redquorum::{AcquireError, Admission, FencingToken, Redlock};
use redquorum_testkit::{Fleet, Program};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, eventually, fleet_of, free_within, ms, on_each_kind, secs, votes};

const CLIENTS: usize = 3;

/// Five servers, and clients with which all of them vote.
async fn clients(program: &Program) -> (Fleet, Vec<Redlock>) {
    let fleet = fleet_of(program, 5);
    let operator = Redlock::builder().instances(fleet.addresses()).admission(Admission::AsRecorded);
    let opened = operator.connect().await.unwrap().admission_records().open(secs(10)).await;
    assert!(opened.is_ok(), "{opened:?}");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let redlock = Redlock::builder().instances(fleet.addresses()).connect().await.unwrap();
        redlock.want_locks();
        assert!(eventually(PATIENCE, || redlock.instances().iter().all(votes)).await, "{:?}", redlock.instances());
        clients.push(redlock);
    }
    (fleet, clients)
}

#[test]
fn tasks_of_several_clients_lose_no_increment_while_an_instance_hangs() {
    on_each_kind(async |program| {
        let (fleet, clients) = clients(&program).await;
        fleet[4].hang().unwrap();
        let (counter, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..60 {
            let (redlock, counter, last) = (clients[number % CLIENTS].clone(), Arc::clone(&counter), Arc::clone(&last));
            tasks.spawn(async move {
                let guard = redlock.lock("hot").acquire().await.unwrap();
                let read = counter.load(Ordering::Relaxed);
                sleep(ms(1)).await;
                counter.store(read + 1, Ordering::Relaxed);
                let token = guard.fencing_token().get();
                assert!(last.swap(token, Ordering::Relaxed) < token && guard.is_valid());
                guard.release().await.unwrap();
            });
        }
        while let Some(done) = timeout(secs(30), tasks.join_next()).await.unwrap() {
            done.unwrap();
        }
        assert_eq!(counter.load(Ordering::Relaxed), 60);
        fleet[4].resume().unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn of_clients_that_try_at_once_one_gets_it_and_the_others_are_told_who() {
    on_each_kind(async |program| {
        let (_fleet, clients) = clients(&program).await;
        for turn in 0..20 {
            let barrier = Arc::new(Barrier::new(CLIENTS));
            let mut tries = JoinSet::new();
            for redlock in &clients {
                let (lock, barrier) = (redlock.lock(format!("free:{turn}")), Arc::clone(&barrier));
                tries.spawn(async move {
                    barrier.wait().await;
                    lock.try_acquire().await
                });
            }
            let ended = timeout(PATIENCE, tries.join_all()).await.unwrap();
            assert_eq!(ended.iter().filter(|tried| tried.is_ok()).count(), 1, "{ended:?}");
            let lost = ended.iter().filter_map(|tried| tried.as_ref().err());
            assert!(lost.into_iter().all(AcquireError::is_contended), "{ended:?}");
        }
    });
}

#[test]
fn never_more_permits_are_held_than_there_are_and_all_get_one() {
    on_each_kind(async |program| {
        let (fleet, clients) = clients(&program).await;
        let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..12 {
            let semaphore = clients[number % CLIENTS].semaphore("pool", 2);
            let (held, most) = (Arc::clone(&held), Arc::clone(&most));
            tasks.spawn(async move {
                let permit = semaphore.acquire().await.unwrap();
                most.fetch_max(held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                sleep(ms(20)).await;
                held.fetch_sub(1, Ordering::Relaxed);
                permit.release().await.unwrap();
            });
        }
        while let Some(done) = timeout(secs(30), tasks.join_next()).await.unwrap() {
            done.unwrap();
        }
        assert_eq!(most.load(Ordering::Relaxed), 2);
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn leaders_follow_each_other_under_larger_tokens_and_an_observer_sees_them() {
    on_each_kind(async |program| {
        let (_fleet, clients) = clients(&program).await;
        let mut leaders = clients[2].election("scheduler").observe().unwrap();
        let mut before: Option<FencingToken> = None;
        for (number, redlock) in clients[..2].iter().enumerate() {
            let info = format!("candidate {number}");
            let leadership = redlock.election("scheduler").campaign(&info).await.unwrap();
            let seen = timeout(secs(10), leaders.next()).await.unwrap();
            assert_eq!((seen.info.as_str(), seen.token), (info.as_str(), leadership.fencing_token()));
            assert!(before.is_none_or(|before| before < seen.token));
            before = Some(seen.token);
            leadership.resign().await.unwrap();
        }
    });
}

#[test]
fn acquires_that_are_dropped_at_any_moment_leave_no_key() {
    on_each_kind(async |program| {
        let (fleet, clients) = clients(&program).await;
        for micros in (0..2_000).step_by(50) {
            let acquire = clients[0].lock(format!("dropped:{micros}")).acquire();
            drop(timeout(std::time::Duration::from_micros(micros), acquire).await);
        }
        free_within(PATIENCE, &fleet).await; // far below the ttl
    });
}

#[test]
fn a_lease_outlives_its_ttl_while_its_guard_is_held() {
    on_each_kind(async |program| {
        let (fleet, clients) = clients(&program).await;
        let guard = clients[0].lock("long").acquire().await.unwrap();
        fleet[0].kill().unwrap();
        for _ in 0..12 {
            sleep(secs(1)).await;
            assert!(guard.is_valid(), "{guard:?}");
            assert!(clients[1].lock("long").try_acquire().await.is_err_and(|error| error.is_contended()));
        }
        assert!(guard.release().await.unwrap().was_still_held);
    });
}
