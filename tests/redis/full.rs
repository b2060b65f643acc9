//! Servers at their `maxmemory`: what is held is kept, and nothing is added.

use redquorum::{AcquireError, Redlock, Renewal};
use redquorum_testkit::Fleet;
use tokio::time::sleep;

use crate::support::{
    MAX_TTL, PATIENCE, eventually, fleet_of, free_within, held, ms, on_each_kind, ready, reports, with_admission,
};

fn set_memory(fleet: &Fleet, bytes: &str) {
    fleet.iter().for_each(|server| drop(server.command(&["CONFIG", "SET", "maxmemory", bytes]).unwrap()));
}

/// Two clients whose leases are renewed.
async fn renewing(fleet: &Fleet) -> [Redlock; 2] {
    let builder = || with_admission(fleet).renew(Renewal::Auto);
    [ready(builder()).await, ready(builder()).await]
}

/// Whether a quorum of the three said so.
fn is_full(error: AcquireError) -> bool {
    reports(error).iter().filter(|report| report.to_string().contains("maxmemory")).count() >= 2
}

#[test]
fn a_full_instance_keeps_what_is_held_and_lets_in_nothing_new() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let [ours, other] = renewing(&fleet).await;
        let mut readers = Vec::new();
        for number in 0..40 {
            readers.push(ours.rw_lock(format!("r{number}")).try_read().await.unwrap());
        }
        let (one, second) =
            (ours.rw_lock("both").try_read().await.unwrap(), other.rw_lock("both").try_read().await.unwrap());
        let (lock, mark) = (held(&ours, "lock").await, held(&ours, "mark").await);
        let permit = ours.semaphore("permits", 3).try_acquire().await.unwrap();
        let leader = ours.election("leader").campaign("x").await.unwrap();
        set_memory(&fleet, "1");

        sleep(MAX_TTL * 2 / 3).await;
        let keys = || fleet.iter().map(|server| server.keys().unwrap().len()).collect::<Vec<_>>();
        let before = keys();
        for client in [&ours, &other] {
            let names = (0..64).map(|number| format!("new{number}"));
            let tries = futures_util::future::join_all(names.map(|name| client.rw_lock(name).try_read())).await;
            assert!(tries.into_iter().all(|error| is_full(error.unwrap_err())), "a new set");
            assert!(is_full(client.rw_lock("both").try_read().await.unwrap_err()), "a new reader in a set");
            assert!(is_full(client.lock("new").try_acquire().await.unwrap_err()));
            assert!(is_full(client.rw_lock("both").wait_at_most(ms(50)).write().await.map_err(last).unwrap_err()));
        }
        assert_eq!(keys(), before);

        // What one instance has lost is put back among what is renewed with it.
        for name in ["r7", "lock"] {
            fleet[0].command(&["DEL", name]).unwrap();
        }
        let is_back = |name: &str| fleet[0].keys().unwrap().iter().any(|key| key == name);
        assert!(eventually(PATIENCE, || is_back("r7") && is_back("lock")).await, "{:?}", fleet[0].keys());
        mark.keep_for(MAX_TTL).await.unwrap();
        sleep(MAX_TTL * 3 / 2).await;
        assert!(readers.iter().all(|guard| guard.is_valid()), "{readers:?}");
        assert!(one.is_valid() && second.is_valid() && lock.is_valid() && permit.is_valid() && leader.is_valid());
        assert!(second.extend().await.is_ok() && lock.extend().await.is_ok());
        for released in [one.release().await, second.release().await] {
            assert!(released.unwrap().was_still_held);
        }
        assert!(lock.release().await.unwrap().was_still_held && permit.release().await.unwrap().was_still_held);
        assert!(leader.resign().await.unwrap().was_still_held);
        for reader in readers {
            assert!(reader.release().await.unwrap().was_still_held);
        }
        free_within(PATIENCE, &fleet).await;
        set_memory(&fleet, "0");
        drop(ours.rw_lock("both").try_read().await.unwrap());
    });
}

fn last(error: AcquireError) -> AcquireError {
    match error {
        AcquireError::DeadlinePassed { last, .. } => *last,
        other => other,
    }
}

/// Its record is written anew, without which no instance may keep a lease.
#[test]
fn a_full_instance_keeps_its_leases_when_another_of_its_databases_is_flushed() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let [ours, _] = renewing(&fleet).await;
        let (reader, lock) = (ours.rw_lock("a").try_read().await.unwrap(), held(&ours, "b").await);
        sleep(MAX_TTL).await; // each instance has them
        set_memory(&fleet, "1");
        for server in fleet.iter() {
            server.command(&["EVAL", "redis.call('SELECT', 7); return redis.call('FLUSHDB')", "0"]).unwrap();
            sleep(MAX_TTL * 2).await;
            assert!(reader.is_valid() && lock.is_valid(), "{reader:?} {lock:?} {:?}", ours.instances());
        }
    });
}
