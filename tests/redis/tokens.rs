//! P12, P13: fencing tokens that clocks have made, and for how long they are kept.

use std::time::Duration;

use redquorum::{FencingToken, Renewal};
use redquorum_testkit::{Fleet, Server};
use tokio::time::{sleep, timeout};

use crate::support::{MAX_TTL, PATIENCE, builder_of, client_of, fleet_of, held, on_each_kind, ready, with_admission};

const TOKENS: &str = "redquorum:fence";

fn stored(server: &Server) -> Option<String> {
    server.client().unwrap().command(&["ZSCORE", TOKENS, "a"]).unwrap().text()
}

fn set_on_all(fleet: &Fleet, token: &str) {
    for server in fleet.iter() {
        server.command(&["ZADD", TOKENS, token, "a"]).unwrap();
    }
}

/// One client with a clock in 2096 left it for every resource on all instances, and nothing could be locked.
#[test]
fn the_largest_token_on_all_instances_stands_in_nobodys_way() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        for redlock in [client_of(&fleet).await, ready(with_admission(&fleet)).await] {
            set_on_all(&fleet, "2251799813685247");
            let first = held(&redlock, "a").await;
            let token = first.fencing_token();
            assert!(token < FencingToken::from_number(1 << 62).unwrap(), "{token}");
            assert!(first.release().await.unwrap().was_still_held);
            assert!(held(&redlock, "b").await.fencing_token() < FencingToken::from_number(1 << 62).unwrap());
            let second = held(&redlock, "a").await;
            assert!(second.fencing_token() > token);
            second.release().await.unwrap();
        }
    });
}

/// It would be granted a smaller one than the lease has, once that was gone.
#[test]
fn a_lease_that_is_held_for_longer_than_tokens_are_kept_keeps_its_own_until_it_ends() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let retention = 2 * MAX_TTL;
        let redlock = builder_of(&fleet).renew(Renewal::Auto).ttl(MAX_TTL).max_ttl(MAX_TTL).fence_retention(retention);
        let redlock = ready(redlock).await;
        let guard = held(&redlock, "a").await;
        let token = guard.fencing_token().to_wire();
        for _ in 0..3 {
            sleep(retention / 2).await;
            let kept = fleet.iter().filter(|server| stored(server).as_deref() == Some(&token)).count();
            assert_eq!(kept, 3);
        }
        assert!(guard.release().await.unwrap().was_still_held);
        let forgotten = async {
            while fleet.iter().any(|server| stored(server).is_some()) {
                sleep(retention / 20).await;
            }
        };
        timeout(retention + PATIENCE, forgotten).await.unwrap();
    });
}

/// What `build` accepts, servers take.
#[test]
fn the_longest_times_work() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let years = |years: u64| Duration::from_secs(years * 365 * 24 * 3600);
        let builder = builder_of(&fleet).max_ttl(years(5)).ttl(years(5)).fence_retention(years(10));
        let redlock = ready(builder).await;
        for name in ["a", "b"] {
            let guard = held(&redlock, name).await;
            assert!(guard.remaining() > years(4));
            guard.extend().await.unwrap();
            assert!(guard.release().await.unwrap().was_still_held);
        }
        let several = redlock.lock_all(["a", "b"]).try_acquire().await.unwrap();
        several.extend().await.unwrap();
        assert!(several.release().await.unwrap().was_still_held);
    });
}
