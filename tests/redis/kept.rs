//! Servers that are restarted and still have their data.

use redquorum::AcquireError;
use redquorum_testkit::{Fleet, Reply, Server};

use crate::support::{
    PATIENCE, all_have, all_vote, builder_of, client_of, eventually, fleet_of, free_within, held, on_each_kind, pair,
    ready, secs,
};

/// Restarts every server while a lock is held: it must still exclude, be extended and be released.
/// Without admission, so that the servers vote at once.
async fn survives(fleet: &Fleet, before_the_end: fn(&Server)) {
    let ours = ready(builder_of(fleet)).await;
    let other = ready(builder_of(fleet).label("other")).await;
    let guard = held(&ours, "a").await;
    assert!(eventually(PATIENCE, || all_have(fleet)).await);
    for server in fleet.iter() {
        before_the_end(server);
        server.restart().unwrap();
        assert_eq!(server.keys().unwrap(), ["a"], "the data was kept");
    }
    for redlock in [&ours, &other] {
        all_vote(redlock).await;
    }
    let AcquireError::Contended(held_by) = other.lock("a").try_acquire().await.unwrap_err() else { panic!() };
    assert_eq!(held_by.by.label.as_deref(), Some("ours"));
    guard.extend().await.unwrap();
    assert!(guard.release().await.unwrap().was_still_held);
    pair(&other, "a").await;
    free_within(PATIENCE, fleet).await;
}

#[test]
fn a_mark_is_kept_for_longer_than_max_ttl() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (ours, other) = (client_of(&fleet).await, client_of(&fleet).await);
        held(&ours, "a").await.keep_for(secs(60)).await.unwrap();
        let left = || fleet.iter().map(|server| server.command(&["PTTL", "a"]).unwrap());
        let lives = |left| matches!(left, Reply::Int(50_000..=60_000));
        assert!(eventually(PATIENCE, || left().all(lives)).await, "{:?}", left().collect::<Vec<_>>());
        let error = other.lock("a").try_acquire().await.unwrap_err();
        assert!(error.held_by().unwrap().earliest_expiry > Some(secs(50)), "{error}");
    });
}

#[test]
fn a_lock_survives_restarts_from_an_append_only_file() {
    on_each_kind(async |program| {
        let keep =
            |_, set: redquorum_testkit::ServerBuilder| set.config("appendonly", "yes").config("appendfsync", "always");
        survives(&Fleet::start_with(&program, 3, keep).unwrap(), |_| {}).await;
    });
}

#[test]
fn a_lock_survives_restarts_from_a_snapshot() {
    on_each_kind(async |program| {
        let fleet = Fleet::start(&program, 3).unwrap();
        survives(&fleet, |server| drop(server.command(&["SAVE"]).unwrap())).await;
    });
}
