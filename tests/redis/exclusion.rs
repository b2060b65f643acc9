//! One holder at a time, with larger and larger tokens, by many tasks of several clients.

use std::sync::{Arc, Mutex};

use redquorum::{AllGuard, FencingToken, Redlock};
use redquorum_testkit::{Client, Server};
use tokio::task::{spawn_blocking, yield_now};

use crate::support::{PATIENCE, client_of, fleet_of, free_within, ms, on_each_kind, release_on_a_bad_day, secs};

const TASKS: usize = 200;

/// What the lock protects: a number in a sixth server that is read, changed and written back by
/// separate commands, so that two holders at once lose an increment.
async fn increment(storage: Client) -> Client {
    let read = |mut storage: Client| {
        let value = storage.command(&["GET", "counter"]).unwrap().int().unwrap_or(0);
        (storage, value)
    };
    let (mut storage, value) = spawn_blocking(move || read(storage)).await.unwrap();
    yield_now().await;
    let write = move || {
        storage.command(&["SET", "counter", &(value + 1).to_string()]).unwrap();
        storage
    };
    spawn_blocking(write).await.unwrap()
}

async fn acquire(redlock: &Redlock, names: &[&str]) -> AllGuard {
    redlock.lock_all(names).wait_at_most(secs(80)).acquire().await.unwrap()
}

async fn work(redlock: Redlock, storage: Client, tokens: Arc<Mutex<Vec<FencingToken>>>) {
    let guard = redlock.lock("counter").wait_at_most(secs(80)).acquire().await.unwrap();
    tokens.lock().unwrap().push(guard.fencing_token());
    increment(storage).await;
    assert!(guard.is_valid(), "the machine stood still for a whole ttl");
    release_on_a_bad_day(guard).await; // so many tasks may make an instance miss its timeout
}

#[test]
fn two_hundred_tasks_of_three_clients_lose_no_increment_and_tokens_only_grow() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let storage = Server::start(&program).unwrap();
        let tokens = Arc::<Mutex<Vec<FencingToken>>>::default();
        let mut tasks = Vec::new();
        let clients = [client_of(&fleet).await, client_of(&fleet).await, client_of(&fleet).await];
        for redlock in clients.iter().cycle().take(TASKS) {
            tasks.push(tokio::spawn(work(redlock.clone(), storage.client().unwrap(), Arc::clone(&tokens))));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let count = storage.command(&["GET", "counter"]).unwrap().int();
        assert_eq!(count, Some(TASKS as i64));
        let tokens = tokens.lock().unwrap().clone();
        assert_eq!(tokens.len(), TASKS);
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn locks_that_are_held_together_exclude_each_of_them() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        let guard = acquire(&ours, &["left", "right"]).await;
        for names in [&["left"] as &[&str], &["right"], &["right", "third"]] {
            assert!(other.lock_all(names).try_acquire().await.is_err(), "{names:?}");
        }
        acquire(&other, &["third"]).await.release().await.unwrap(); // nothing stayed behind
        guard.release().await.unwrap();
        tokio::time::sleep(ms(20)).await;
        acquire(&other, &["right", "third"]).await.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}
