//! Servers that speak the protocol and cannot serve: full, read-only, forbidden, busy, loading. Each
//! is named, and none is taken for a grant or for contention.

use futures_util::future::join_all;
use redquorum::{AcquireError, Admission, Builder, Redlock};
use redquorum_testkit::{Client, Fleet, Program};

use crate::support::{
    MAX_TTL, PATIENCE, builder_of, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair, ready,
    with_admission,
};

/// Tries until the second and the third instance both say `words`; fails at a grant.
pub(crate) async fn refused_with(redlock: &Redlock, words: &str) {
    let mut said = String::new();
    for _ in 0..200 {
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        said = error.to_string();
        let reports = if let AcquireError::NoQuorum { reports, .. } = error { reports } else { Vec::new() };
        if reports.iter().skip(1).filter(|report| report.to_string().contains(words)).count() == 2 {
            return;
        }
        tokio::time::sleep(ms(20)).await;
    }
    panic!("{words:?} was expected: {said}");
}

/// With and without admission.
fn both(builder: &Builder) -> [Builder; 2] {
    let builder = builder.clone().max_ttl(MAX_TTL).ttl(MAX_TTL);
    [builder.clone().admission(Admission::On), builder.clone().admission(Admission::Off)]
}

/// The first instance with its own address, the others with these credentials.
fn with_credentials(fleet: &Fleet, credentials: &str) -> Builder {
    let mut addresses = fleet.addresses();
    for address in &mut addresses[1..] {
        *address = address.replace("redis://", &format!("redis://{credentials}@"));
    }
    builder_of(fleet).instances(addresses)
}

#[test]
fn a_full_server_is_named_and_serves_again_when_it_has_room() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        let guard = held(&redlock, "held").await;
        assert!(eventually(PATIENCE, || fleet.iter().all(|server| server.keys().unwrap() == ["held"])).await);
        let limit = |bytes: &str| {
            fleet.iter().skip(1).for_each(|server| {
                server.command(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();
            })
        };
        limit("1");
        refused_with(&redlock, "maxmemory").await;
        assert!(guard.release().await.unwrap().was_still_held, "a full server still deletes");
        limit("0");
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_replica_is_named_whether_it_was_one_before_or_becomes_one() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let port = fleet[0].port().to_string();
        let [admission, classic] = both(&builder_of(&fleet));
        for (builder, words) in [(admission, "replica"), (classic, "read-only replica")] {
            let redlock = ready(builder.clone()).await;
            pair(&redlock, "a").await;
            for server in fleet.iter().skip(1) {
                server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
            }
            refused_with(&redlock, words).await;
            let later = builder.build().unwrap();
            refused_with(&later, words).await;
            for server in fleet.iter().skip(1) {
                server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
            }
            // With admission, what was a replica sits out `max_ttl` before it votes again.
            let guard = redlock.lock("a").wait_at_most(2 * PATIENCE).acquire().await.unwrap();
            assert!(guard.release().await.unwrap().was_still_held);
            for server in fleet.iter() {
                server.command(&["DEL", "redquorum:admission"]).unwrap();
            }
        }
    });
}

#[test]
fn a_wrong_and_a_missing_password_are_named() {
    on_each_kind(async |program| {
        let fleet =
            Fleet::start_with(&program, 3, |number, set| if number > 0 { set.password("right") } else { set }).unwrap();
        for builder in both(&with_credentials(&fleet, ":wrong")) {
            refused_with(&builder.build().unwrap(), "WRONGPASS").await;
        }
        for builder in both(&builder_of(&fleet)) {
            refused_with(&builder.build().unwrap(), "NOAUTH").await;
        }
        let redlock = ready(with_credentials(&fleet, ":right")).await;
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_user_who_may_not_run_what_is_needed_is_told_where_that_is_written() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let allow = |rule: &str| {
            fleet.iter().skip(1).for_each(|server| {
                server.command(&["ACL", "SETUSER", "locker", "reset", "on", ">pw", "~*", "&*", "+@all", rule]).unwrap();
            })
        };
        for builder in both(&with_credentials(&fleet, "locker:pw")) {
            for rule in ["-evalsha", "-set", "-script"] {
                allow(rule);
                let redlock = builder.clone().build().unwrap();
                refused_with(&redlock, "redquorum::guide::operations").await;
                allow("+evalsha");
                pair(&redlock, "a").await;
            }
        }
        allow("-info");
        refused_with(
            &with_credentials(&fleet, "locker:pw").admission(Admission::On).build().unwrap(),
            "Admission::Off",
        )
        .await;
        allow("+info");
        free_within(PATIENCE, &fleet).await;
    });
}

/// A command that a server refuses for one of its requests fails them all.
#[test]
fn requests_beside_others_that_are_always_refused_are_granted() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        let user = ["ACL", "SETUSER", "locker", "reset", "on", ">pw", "~mine:*", "~redquorum:*", "&*", "+@all"];
        fleet[0].command(&user).unwrap();
        let addresses = fleet.addresses().into_iter().map(|address| address.replace("//", "//locker:pw@"));
        let redlock = ready(builder_of(&fleet).instances(addresses).instance_timeout(PATIENCE)).await;
        let mut granted = Vec::new();
        for turn in 0..5 {
            let names = (0..20).map(|number| format!("{}:{turn}:{number}", ["mine", "others"][number % 2]));
            let tries = names.map(|name| {
                let lock = redlock.lock(name);
                async move { lock.try_acquire().await.ok() }
            });
            let guards: Vec<_> = join_all(tries).await.into_iter().flatten().collect();
            granted.push(guards.len());
        }
        // After each command that failed for one of them they are sent singly, for ever longer. How many turns that are
        // depends on how many share the first; else it is none.
        assert!(granted.contains(&10), "{granted:?}");
        free_within(PATIENCE, &fleet).await;
    });
}

/// Counter-example: the tries that waited to be sent were told that there is no quorum, and of a key that they had not named.
#[test]
fn a_lock_that_is_always_refused_is_no_reason_to_refuse_thousands_of_others() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let user = ["ACL", "SETUSER", "locker", "reset", "on", ">pw", "~mine:*", "~redquorum:*", "&*", "+@all"];
        fleet.iter().for_each(|server| _ = server.command(&user).unwrap());
        let addresses = fleet.addresses().into_iter().map(|address| address.replace("//", "//locker:pw@"));
        let redlock = ready(with_admission(&fleet).instances(addresses).instance_timeout(PATIENCE)).await;
        let names = (0..2_000).map(|number| format!("{}:{number}", if number % 100 == 99 { "others" } else { "mine" }));
        let refused = join_all(names.map(|name| redlock.lock(name).try_acquire())).await;
        let refused: Vec<_> = refused.into_iter().filter_map(Result::err).map(|error| error.kind()).collect();
        assert_eq!((refused.len(), refused[0]), (20, "no_quorum"));
        free_within(PATIENCE, &fleet).await;
    });
}

fn is_lenient(program: &Program) -> Fleet {
    Fleet::start_with(program, 3, |_, set| set.config("busy-reply-threshold", "50")).unwrap()
}

#[test]
fn a_server_in_a_long_script_is_named_and_serves_again_afterwards() {
    on_each_kind(async |program| {
        let fleet = is_lenient(&program);
        let redlock = client_of(&fleet).await;
        for server in fleet.iter().skip(1) {
            let mut client = Client::connect(server.port(), ms(20)).unwrap();
            assert!(client.command(&["EVAL", "while true do end", "0"]).is_err());
            assert!(eventually(PATIENCE, || server.command(&["PING"]).is_err()).await, "it has begun");
        }
        refused_with(&redlock, "busy").await;
        for server in fleet.iter().skip(1) {
            server.command(&["SCRIPT", "KILL"]).unwrap();
            assert!(eventually(PATIENCE, || server.command(&["PING"]).is_ok()).await);
        }
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_server_that_loads_its_data_is_named() {
    on_each_kind(async |program| {
        let slow = |_, set: redquorum_testkit::ServerBuilder| {
            set.config("key-load-delay", "600").config("loading-process-events-interval-bytes", "1024")
        };
        let fleet = Fleet::start_with(&program, 3, slow).unwrap();
        let redlock = ready(builder_of(&fleet)).await;
        let fill = "for i = 1, 5000 do redis.call('SET', 'data-' .. i, string.rep('x', 100)) end";
        for server in fleet.iter().skip(1) {
            server.command(&["EVAL", fill, "0"]).unwrap();
            server.command(&["SAVE"]).unwrap();
        }
        std::thread::scope(|scope| {
            for server in fleet.iter().skip(1) {
                server.kill().unwrap();
                scope.spawn(|| server.restart().unwrap());
            }
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(refused_with(&redlock, "oading"));
            });
        });
        pair(&redlock, "a").await;
    });
}

/// rustls panicked at the first connection, as nobody had chosen its cryptography.
#[cfg(feature = "tls-rustls")]
#[test]
fn tls_to_a_server_that_has_none_is_a_cause_like_any_other() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let mut addresses = fleet.addresses();
        addresses[2] = addresses[2].replacen("redis://", "rediss://", 1);
        let redlock = builder_of(&fleet).instances(addresses).build().unwrap();
        pair(&redlock, "a").await;
        let first = "connecting for the first time";
        let told = || redlock.instances()[2].last_error.clone().is_some_and(|error| !error.contains(first));
        assert!(eventually(PATIENCE, told).await, "{:?}", redlock.instances()[2]);
        assert!(!redlock.instances()[2].connected);
    });
}
