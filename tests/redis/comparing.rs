//! Releases that a server compares by itself, where it has a command for that.

use redquorum::Redlock;
use redquorum_testkit::{Fleet, Kind, Program, Proxy, Server};

use crate::support::{
    PATIENCE, builder_of, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair, ready,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn compares(program: &Program) -> bool {
    program.is_at_least(Kind::Valkey, 9, 0)
}

/// How many scripts it ran, and how many releases it compared, since they were asked for last.
fn calls(server: &Server) -> (u64, u64) {
    let calls = (server.calls("evalsha").unwrap(), server.calls("delifeq").unwrap());
    server.reset_stats().unwrap();
    calls
}

fn stored_token(server: &Server, name: &str) -> f64 {
    server.command(&["ZSCORE", "redquorum:fence", name]).unwrap().text().unwrap().parse().unwrap()
}

#[test]
fn a_server_compares_a_usual_release_and_no_other() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        let redlock = client_of(&fleet).await;
        let usual = if compares(&program) { (1, 1) } else { (2, 0) };
        calls(&fleet[0]);
        pair(&redlock, "a").await;
        assert_eq!(calls(&fleet[0]), usual);
        redlock.lock(NAMES).try_acquire().await.unwrap().release().await.unwrap();
        assert_eq!(calls(&fleet[0]), (2, 0));
        let guard = held(&redlock, "a").await;
        guard.extend().await.unwrap(); // a copy that is late must find a tombstone
        guard.release().await.unwrap();
        assert_eq!(calls(&fleet[0]), (3, 0));
        free_within(PATIENCE, &fleet).await;
    });
}

/// P6: what is late finds the tombstone, also where the server compared.
#[test]
fn a_release_that_finds_another_value_or_none_leaves_its_tombstone() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        for foreign in [None, Some("other")] {
            let guard = held(&redlock, "a").await;
            assert!(eventually(PATIENCE, || fleet.iter().all(|server| server.keys().unwrap() == ["a"])).await);
            fleet[0].command(&["DEL", "a"]).unwrap();
            if let Some(value) = foreign {
                fleet[0].command(&["SET", "a", value]).unwrap();
            }
            let granted: Vec<f64> = fleet.iter().map(|server| stored_token(server, "a")).collect();
            assert!(guard.release().await.unwrap().was_still_held);
            assert!(eventually(PATIENCE, || stored_token(&fleet[0], "a") - granted[0] == 0.5).await);
            assert!(eventually(PATIENCE, || fleet[1..].iter().all(|server| server.keys().unwrap().is_empty())).await);
            assert_eq!(stored_token(&fleet[1], "a"), granted[1], "it was found there");
            assert_eq!(fleet[0].command(&["GET", "a"]).unwrap().text().as_deref(), foreign);
            fleet[0].command(&["DEL", "a"]).unwrap();
        }
    });
}

/// Of a user who may not have the server compare.
const WITHOUT_THE_RIGHT: [&str; 2] = ["~*", "-delifeq"];

/// A client of a user with these rights.
async fn client_with(fleet: &Fleet, rights: &[&str]) -> Redlock {
    fleet[0].command(&[&["ACL", "SETUSER", "locker", "on", ">pw", "&*", "+@all"], rights].concat()).unwrap();
    let address = fleet.addresses()[0].replace("redis://", "redis://locker:pw@");
    ready(builder_of(fleet).instances([address])).await
}

#[test]
fn a_user_who_may_not_have_the_server_compare_is_asked_at_the_connect_and_releases_by_script() {
    on_each_kind(async |program| {
        if !compares(&program) {
            return;
        }
        let fleet = fleet_of(&program, 1);
        let redlock = client_with(&fleet, &WITHOUT_THE_RIGHT).await;
        let commands = || fleet[0].command(&["INFO", "commandstats"]).unwrap().text().unwrap();
        let asked = commands();
        let denied = asked.lines().find(|line| line.starts_with("cmdstat_delifeq:")).unwrap();
        assert!(denied.contains("calls=0,") && denied.contains("rejected_calls=1,"), "{denied}");
        calls(&fleet[0]);
        for name in NAMES {
            pair(&redlock, name).await;
        }
        assert!(fleet[0].keys().unwrap().is_empty());
        assert!(!commands().contains("cmdstat_delifeq:"), "{}", commands());
        assert_eq!(calls(&fleet[0]).0, 2 * 3);
    });
}

/// A key that is forbidden says nothing about the command.
#[test]
fn a_release_of_a_forbidden_key_does_not_end_the_comparing_of_others() {
    on_each_kind(async |program| {
        if !compares(&program) {
            return;
        }
        let fleet = fleet_of(&program, 1);
        let redlock = client_with(&fleet, &["~a", "~redquorum:*"]).await;
        redlock.lock("forbidden").try_acquire().await.unwrap_err();
        tokio::time::sleep(ms(50)).await; // its release was denied by now
        calls(&fleet[0]);
        pair(&redlock, "a").await;
        assert_eq!(calls(&fleet[0]).1, 1);
    });
}

/// P6: where the release was denied first, its script went behind the acquire that was called after it.
#[test]
fn an_acquire_behind_the_first_release_of_a_user_who_may_not_compare_is_not_refused_by_it() {
    on_each_kind(async |program| {
        if !compares(&program) {
            return;
        }
        let fleet = fleet_of(&program, 1);
        for _ in 0..5 {
            let redlock = client_with(&fleet, &WITHOUT_THE_RIGHT).await;
            drop(held(&redlock, "a").await);
            redlock.lock("a").try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}

/// The script behind a comparison has what is left of the deadline, which over a long way is never enough.
#[test]
fn over_a_long_way_a_release_that_finds_nothing_is_confirmed_and_counts_as_no_silence() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        let proxy = Proxy::start(&fleet[0]).unwrap();
        let redlock = ready(builder_of(&fleet).instances([proxy.address()]).instance_timeout(ms(1_200))).await;
        proxy.delay(ms(700), ms(0)).unwrap(); // two of these are more than the timeout
        let guard = held(&redlock, "a").await;
        fleet[0].command(&["DEL", "a"]).unwrap();
        drop(guard);
        let is_confirmed = eventually(PATIENCE, || redlock.stats().pending_releases == 0).await;
        assert!(is_confirmed, "{:?}", redlock.instances());
        assert_eq!(redlock.instances()[0].counts.connections, 1, "{:?}", redlock.instances());
        assert!(stored_token(&fleet[0], "a").fract() > 0.0, "it left its tombstone");
    });
}
