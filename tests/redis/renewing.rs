//! P19: leases that are renewed by themselves, on real servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::Renewal;
use redquorum_testkit::Fleet;
use tokio::time::{sleep, timeout};

use crate::support::{
    MAX_TTL, PATIENCE, all_vote, alone_on_each_kind, builder_of, eventually, fleet_of, free_within, held, intrude, ms,
    on_each_kind, ready, secs, with_admission,
};

#[test]
fn a_renewed_lease_survives_a_rolling_restart_by_itself() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let ours = ready(with_admission(&fleet).renew(Renewal::Auto)).await;
        let other = ready(with_admission(&fleet)).await;
        let guard = held(&ours, "a").await;
        let token = guard.fencing_token();
        let stop = Arc::<AtomicBool>::default();
        let intruding = tokio::spawn(intrude(other, Arc::clone(&stop)));
        for server in fleet.iter() {
            server.restart().unwrap();
            // It sits out `max_ttl`, and only then is the key repaired.
            let repaired = eventually(PATIENCE, || server.keys().unwrap() == ["a"]).await;
            assert!(repaired && guard.is_valid());
        }
        assert!(timeout(MAX_TTL, guard.lost()).await.is_err());
        stop.store(true, Ordering::Relaxed);
        assert!(intruding.await.unwrap() > 20);
        assert_eq!(guard.fencing_token(), token);
        assert!(guard.release().await.unwrap().was_still_held);
        all_vote(&ours).await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn nothing_is_renewed_after_a_release() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(builder_of(&fleet).renew(Renewal::Auto).ttl(ms(300))).await;
        for round in 0..20 {
            let guard = redlock.lock("a").acquire().await.unwrap(); // a try may take longer than the ttl
            sleep(ms(90 + round)).await; // the renewal is due after 75 to 100 ms
            if round % 2 == 0 {
                drop(guard)
            } else {
                assert!(guard.release().await.is_ok())
            }
            free_within(PATIENCE, &fleet).await;
        }
        let is_confirmed = || redlock.stats().pending_releases == 0;
        assert!(eventually(PATIENCE, is_confirmed).await, "{:?}", redlock.stats());
        let calls = |fleet: &Fleet| fleet.iter().map(|server| server.calls("evalsha").unwrap()).collect::<Vec<_>>();
        let before = calls(&fleet);
        sleep(ms(700)).await;
        assert_eq!(calls(&fleet), before);
        assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()));
    });
}

const LEASES: usize = 1_000;

#[test]
fn leases_that_are_renewed_together_share_commands() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let ttl = secs(6);
        let redlock = ready(builder_of(&fleet).renew(Renewal::Auto).ttl(ttl)).await;
        let lease = |lease: usize| {
            let redlock = redlock.clone();
            tokio::spawn(async move { held(&redlock, &format!("lease:{lease}")).await })
        };
        let mut guards = Vec::new();
        for burst in (0..LEASES).step_by(50) {
            for lease in (burst..burst + 50).map(lease).collect::<Vec<_>>() {
                guards.push(lease.await.unwrap());
            }
        }
        fleet.iter().for_each(|server| server.reset_stats().unwrap());
        sleep(ttl).await;
        for server in fleet.iter() {
            let commands = server.calls("evalsha").unwrap();
            println!("{commands} commands in one ttl for {LEASES} leases");
            assert!(commands > 0 && commands <= LEASES as u64 / 8, "{commands}");
        }
        assert!(guards.iter().all(|guard| guard.is_valid()));
        drop(guards);
        free_within(PATIENCE, &fleet).await;
    });
}
