//! P6: futures that are dropped at random points leave nothing behind.

use std::thread;
use std::time::Duration;

use redquorum::Redlock;
use tokio::task::spawn_blocking;

use crate::support::{PATIENCE, client_of, eventually, fleet_of, free_within, on_each_kind, pair};

const TASKS: usize = 8;
const CANCELLATIONS: usize = 1000;

/// Does one thing over and over until it is cancelled.
async fn work(redlock: Redlock, kind: usize, name: String) {
    let acquire = || redlock.lock(&name).acquire();
    match kind {
        0 => loop {
            let _ = redlock.lock(&name).try_acquire().await;
        },
        1 => {
            let guard = acquire().await.unwrap();
            loop {
                guard.extend().await.unwrap();
            }
        }
        2 => loop {
            acquire().await.unwrap().release().await.unwrap();
        },
        3 => {
            let _guard = acquire().await.unwrap();
            let _never = acquire().await; // waits for the guard above
        }
        _ => {
            let _guard = redlock.lock_all([name.as_str(), "another"]).acquire().await.unwrap();
            tokio::task::yield_now().await;
        }
    }
}

async fn cancel_at_random(redlock: Redlock, task: usize) {
    for round in 0..CANCELLATIONS / TASKS {
        let name = format!("name-{}", (task + round) % 4);
        let working = tokio::spawn(work(redlock.clone(), round % 5, name));
        let micros = rand::random_range(0..4000);
        // The runtime's timers are too coarse.
        spawn_blocking(move || thread::sleep(Duration::from_micros(micros))).await.unwrap();
        working.abort();
        // It may have ended by itself, but not in a panic.
        assert!(working.await.map_or_else(|error| error.is_cancelled(), |()| true));
    }
}

#[test]
fn a_thousand_cancellations_leave_no_lock() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let clients = [client_of(&fleet).await, client_of(&fleet).await];
        let task = |task: usize| tokio::spawn(cancel_at_random(clients[task % 2].clone(), task));
        for task in (0..TASKS).map(task).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        free_within(PATIENCE, &fleet).await; // the ttl is twice that
        for redlock in clients {
            pair(&redlock, "name-0").await;
            assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
        }
    });
}

#[test]
fn cancellations_while_an_instance_hangs_leave_no_lock_when_it_is_back() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        fleet[1].hang().unwrap();
        let task = |task: usize| tokio::spawn(cancel_at_random(redlock.clone(), task));
        // Before it is known to be silent, and after.
        for _ in 0..2 {
            for task in (0..TASKS / 2).map(task).collect::<Vec<_>>() {
                task.await.unwrap();
            }
            assert!(eventually(PATIENCE, || !redlock.instances()[1].connected).await, "silence is known");
        }
        fleet[1].resume().unwrap();
        // It reconnects first, which takes up to a second.
        free_within(PATIENCE, &fleet).await;
        assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
    });
}

#[test]
fn dropped_guards_are_released() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let mut guards = Vec::new();
        for number in 0..100 {
            guards.push(redlock.lock(format!("name-{number}")).try_acquire().await.unwrap());
        }
        let elsewhere = guards.split_off(50);
        drop(guards);
        thread::spawn(move || drop(elsewhere)).join().unwrap(); // outside of the runtime
        free_within(PATIENCE, &fleet).await; // the ttl is twice that
    });
}
