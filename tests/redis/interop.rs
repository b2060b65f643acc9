//! Locks of other libraries, which are plain `SET key value NX PX ttl`, and ours.

use redquorum::{AcquireError, ExtendError, Holder};
use redquorum_testkit::{Reply, Server};

use crate::support::{PATIENCE, client_of, eventually, fleet_of, free_within, held, ms, on_each_kind, secs};

fn set_nx(server: &Server, key: &str, value: &str) -> Reply {
    server.command(&["SET", key, value, "NX", "PX", "5000"]).unwrap()
}

fn value_of(server: &Server, key: &str) -> Option<String> {
    server.command(&["GET", key]).unwrap().text()
}

#[test]
fn a_lock_of_another_library_excludes_ours() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        for server in fleet.iter().take(3) {
            assert_eq!(set_nx(server, "a", "theirs"), Reply::Status("OK".to_owned()));
        }
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        assert!(error.to_string().contains("a client of another kind"), "{error}");
        let AcquireError::Contended(held_by) = error else { panic!("{error}") };
        assert_eq!((held_by.resource.as_str(), held_by.instances), ("a", 5));
        assert_eq!((held_by.by.holder, held_by.by.label), (None, None));
        assert!(held_by.refused_by <= 3);
        assert!(held_by.earliest_expiry.is_some_and(|left| left <= secs(5) && left > ms(500)));
        free_within(PATIENCE, &fleet[3..]).await; // where it was free
        assert!(fleet.iter().take(3).all(|server| value_of(server, "a").as_deref() == Some("theirs")));
        for server in fleet.iter().take(3) {
            server.command(&["DEL", "a"]).unwrap();
        }
        held(&redlock, "a").await.release().await.unwrap();
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_random_value_that_begins_as_a_holder_is_not_taken_over() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        for (name, foreign) in [("a", "7:what another library drew"), ("b", "7:"), ("c", "7:0123456789abcdef")] {
            fleet.iter().for_each(|server| assert_eq!(set_nx(server, name, foreign), Reply::Status("OK".to_owned())));
            let tried = redlock.lock(name).holder(Holder::from("7")).try_acquire().await;
            assert!(matches!(tried, Err(AcquireError::Contended(_))), "{tried:?}");
            assert!(fleet.iter().all(|server| value_of(server, name).as_deref() == Some(foreign)));
        }
    });
}

#[test]
fn our_lock_excludes_another_library() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || fleet.iter().all(|server| value_of(server, "a").is_some())).await);
        assert!(fleet.iter().all(|server| set_nx(server, "a", "theirs") == Reply::Nil));
        assert!(guard.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet).await;
        assert!(fleet.iter().all(|server| set_nx(server, "a", "theirs") != Reply::Nil));
    });
}

#[test]
fn our_own_holder_is_named_to_others() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        let _guard = held(&ours, "a").await;
        let AcquireError::Contended(held_by) = other.lock("a").try_acquire().await.unwrap_err() else { panic!() };
        assert_eq!(held_by.by.label.as_deref(), Some("ours"));
        assert!(held_by.earliest_expiry.is_some_and(|left| left <= secs(10) && left > secs(5)));
    });
}

#[test]
fn a_key_of_another_type_is_in_the_way_and_stays() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        for server in fleet.iter() {
            server.command(&["RPUSH", "a", "x"]).unwrap();
        }
        for together in [false].into_iter().chain([true; 60]) {
            let error = match together {
                false => redlock.lock("a").try_acquire().await.unwrap_err(),
                true => redlock.lock_all(["0", "a"]).try_acquire().await.unwrap_err(),
            };
            let AcquireError::Contended(held_by) = error else { panic!("{error}") };
            assert_eq!((held_by.resource.as_str(), held_by.earliest_expiry), ("a", None));
            assert!(held_by.never_expires && held_by.to_string().contains("the key never expires"), "{held_by}");
        }
        let seen = redlock.inspect("a").await.unwrap();
        let found = seen.holder().unwrap();
        assert_eq!(
            (found.on.len(), found.other_type.as_deref(), found.expires_in),
            (5, Some("list"), None),
            "{seen:?}"
        );
        assert_eq!(redlock.force_release("a", &found.by).await.unwrap().not_theirs_on.len(), 5);
        let only_the_list = || fleet.iter().all(|server| server.keys().unwrap() == ["a"]);
        assert!(eventually(PATIENCE, only_the_list).await);
    });
}

#[test]
fn what_others_put_under_our_key_is_neither_extended_nor_deleted() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || fleet.iter().all(|server| value_of(server, "a").is_some())).await);
        for server in fleet.iter().take(3) {
            server.command(&["SET", "a", "theirs", "PX", "5000"]).unwrap();
        }
        let error = guard.extend().await.unwrap_err();
        assert!(matches!(error, ExtendError::Lost { .. }), "P20, a quorum has it for somebody else: {error}");
        assert!(!guard.is_valid());
        assert!(!guard.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet[3..]).await;
        for server in fleet.iter().take(3) {
            assert_eq!(value_of(server, "a").as_deref(), Some("theirs"));
            assert!(server.command(&["PTTL", "a"]).unwrap().int().is_some_and(|left| left <= 5000));
        }
    });
}
