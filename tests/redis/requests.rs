//! Many requests at once for many keys, by several clients: each checks and inserts what others insert too.

use redquorum::Redlock;
use redquorum_testkit::{Client, Server};
use tokio::task::{JoinSet, spawn_blocking};

use crate::support::{PATIENCE, client_of, fleet_of, free_within, on_each_kind, release_on_a_bad_day, secs};

const KEYS: usize = 30;
const REQUESTS_PER_KEY: usize = 10;

/// Adds an entry to the row that the lock protects, read and written back by separate commands: of two at
/// once, one would be lost. Gives the entries that were there.
fn insert(mut storage: Client, row: &str, entry: usize) -> Vec<usize> {
    let text = storage.command(&["GET", row]).unwrap().text().unwrap_or_default();
    let before: Vec<usize> = text.split_terminator(',').map(|entry| entry.parse().unwrap()).collect();
    assert!(!before.contains(&entry), "{row} has {entry} already: {before:?}");
    storage.command(&["SET", row, &format!("{text}{entry},")]).unwrap();
    before
}

async fn request(redlock: Redlock, storage: Client, number: usize) -> usize {
    let row = format!("row:{}", number % KEYS);
    let guard = redlock.lock(row.as_str()).wait_at_most(secs(80)).acquire().await.unwrap();
    let before = spawn_blocking(move || insert(storage, &row, number)).await.unwrap();
    assert!(guard.is_valid(), "the machine stood still for a whole ttl");
    release_on_a_bad_day(guard).await;
    before.len()
}

#[test]
fn three_hundred_requests_at_once_for_thirty_keys_each_insert_once_and_nothing_is_lost() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let storage = Server::start(&program).unwrap();
        let clients = [client_of(&fleet).await, client_of(&fleet).await, client_of(&fleet).await];
        let mut requests = JoinSet::new();
        for number in 0..KEYS * REQUESTS_PER_KEY {
            let redlock = clients[number / KEYS % clients.len()].clone(); // each key is wanted by all clients
            requests.spawn(request(redlock, storage.client().unwrap(), number));
        }
        let mut were_there = requests.join_all().await;
        were_there.sort_unstable();
        // In each row one found nothing, one found one entry, and so on.
        let expected: Vec<_> = (0..KEYS * REQUESTS_PER_KEY).map(|number| number / KEYS).collect();
        assert_eq!(were_there, expected);
        free_within(PATIENCE, &fleet).await;
    });
}
