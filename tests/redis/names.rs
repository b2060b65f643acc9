//! Names at their limits: any bytes, the longest, the most.

use redquorum::{AcquireError, Redlock};
use redquorum_testkit::{Fleet, Reply};

use crate::support::{PATIENCE, client_of, eventually, fleet_of, free_within, on_each_kind};

fn has(fleet: &Fleet, key: &[u8]) -> bool {
    fleet.iter().all(|server| server.command(&[b"EXISTS" as &[u8], key]).unwrap() == Reply::Int(1))
}

/// Locks, finds every key under its own name, is in another client's way, extends and releases.
async fn round_trip(fleet: &Fleet, (ours, other): (&Redlock, &Redlock), names: &[Vec<u8>]) {
    let guard = ours.lock_all(names).try_acquire().await.unwrap();
    assert!(eventually(PATIENCE, || names.iter().all(|name| has(fleet, name))).await);
    assert!(matches!(other.lock_all(names).try_acquire().await, Err(AcquireError::Contended(_))));
    guard.extend().await.unwrap();
    assert!(guard.release().await.unwrap().was_still_held);
    free_within(PATIENCE, fleet).await;
}

#[test]
fn names_of_any_bytes_and_of_every_length_are_locked() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        let every_byte: Vec<u8> = (0..=255).collect();
        let longest = |byte: u8| vec![byte; 64 * 1024];
        for names in [
            vec![vec![0]],
            vec![b"\r\n*1\r\n".to_vec(), b"\xff\xfe".to_vec()],
            vec![every_byte],
            vec![longest(b'n')],
            vec![longest(0), longest(255)],
        ] {
            round_trip(&fleet, (&ours, &other), &names).await;
        }
        let too_long = ours.lock(vec![b'n'; 64 * 1024 + 1]).try_acquire().await;
        assert!(matches!(too_long, Err(AcquireError::BadRequest(_))));
    });
}

#[test]
fn two_hundred_and_fifty_six_names_are_locked_together() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        let names = |count: usize| (0..count).map(|number| format!("name-{number}").into_bytes()).collect::<Vec<_>>();
        round_trip(&fleet, (&ours, &other), &names(256)).await;
        assert!(matches!(ours.lock_all(names(257)).try_acquire().await, Err(AcquireError::BadRequest(_))));

        // The last of them is taken: none of the others stays.
        let last = names(256).pop().unwrap();
        let taken = other.lock(&last).try_acquire().await.unwrap();
        assert!(eventually(PATIENCE, || has(&fleet, &last)).await);
        assert!(matches!(ours.lock_all(names(256)).try_acquire().await, Err(AcquireError::Contended(_))));
        let only_that = || fleet.iter().all(|server| server.keys().unwrap().len() == 1);
        assert!(eventually(PATIENCE, only_that).await);
        taken.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}
