//! P12, P13: fencing tokens that clocks have made, and for how long they are kept.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redquorum::FencingToken;
use redquorum_testkit::Fleet;

use crate::support::{
    PATIENCE, builder_of, client_of, eventually, fleet_of, held, on_each_kind, ready, with_admission,
};

const TOKENS: &str = "redquorum:fence";
const FLOOR: &str = "redquorum:floor";

#[expect(clippy::disallowed_methods, reason = "real servers go by the machine's clock")]
fn wall_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
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

/// P13: also that of a lock that is held; the floor is above it, so that no smaller one is granted.
#[test]
fn old_tokens_are_forgotten_and_none_below_the_floor_is_granted() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let minutes_ago = |minutes: u64| FencingToken::propose(wall_us() - minutes * 60_000_000, None).to_wire();
        for (server, number) in fleet.iter().flat_map(|server| (0..1_000).map(move |number| (server, number))) {
            server.command(&["ZADD", TOKENS, &minutes_ago(2 + number % 3), &format!("old {number}")]).unwrap();
        }
        let redlock = client_of(&fleet).await;
        let forgotten = || fleet.iter().all(|server| server.command(&["ZCARD", TOKENS]).unwrap().int() == Some(1));
        assert!(eventually(PATIENCE, forgotten).await, "all but the name that is no lock's");
        let floor = || fleet.iter().map(|server| server.command(&["GET", FLOOR]).unwrap().text()).collect::<Vec<_>>();
        for floor in floor() {
            let floor = FencingToken::from_wire(floor.unwrap().as_bytes()).unwrap();
            assert!(floor.to_wire() > minutes_ago(2) && floor.to_wire() <= minutes_ago(1), "{floor}");
        }
        // In the future, as behind a quarantine.
        let ahead = FencingToken::propose(
            FencingToken::from_wire(minutes_ago(0).as_bytes()).unwrap().clock_us() + 10_000_000,
            None,
        );
        fleet.iter().for_each(|server| _ = server.command(&["SET", FLOOR, &ahead.to_wire()]).unwrap());
        let guard = held(&redlock, "a").await;
        assert!(guard.fencing_token() > ahead);
        guard.release().await.unwrap();
    });
}

/// What `build` accepts, servers take.
#[test]
fn the_longest_times_work() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let builder = builder_of(&fleet).max_ttl(hours(24)).ttl(hours(24));
        let redlock = ready(builder).await;
        for name in ["a", "b"] {
            let guard = held(&redlock, name).await;
            assert!(guard.remaining() > hours(23));
            guard.extend().await.unwrap();
            assert!(guard.release().await.unwrap().was_still_held);
        }
        let several = redlock.lock_all(["a", "b"]).try_acquire().await.unwrap();
        several.extend().await.unwrap();
        assert!(several.release().await.unwrap().was_still_held);
    });
}
