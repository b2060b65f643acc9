//! Looking at a lock, and taking it away.

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{BadRequest, Holder, Loss, Redlock, Renewal, ReplyKind};
use tokio::time::{sleep, timeout};
use tracing::Level;

use crate::events::{listen, told};
use crate::support::{held, ms, renewing, secs, settle};

async fn two_clients() -> (Cluster, Redlock, Redlock) {
    let (cluster, ours) = renewing(5).await;
    let other = cluster.builder().label("bank/7").connect().await.unwrap();
    (cluster, ours, other)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_shown_with_its_holder_its_token_and_where_it_is() {
    let (cluster, ours, other) = two_clients().await;
    let free = ours.inspect("a").await.unwrap();
    assert!(free.holder().is_none() && free.holders.is_empty() && free.free_on.len() == 5);

    let lock = other.namespace("n:").lock("a").holder(Holder::from("me"));
    let guard = lock.acquire().await.unwrap();
    settle().await;
    cluster.instance(3).remove("n:a");
    cluster.instance(4).cut_off();
    let requests = cluster.requests();
    let seen = ours.namespace("n:").inspect("a").await.unwrap();
    assert_eq!((seen.resource.as_str(), seen.quorum), ("n:a", 3));
    let holder = seen.holder().unwrap();
    assert_eq!((holder.by.label.as_deref(), holder.by.holder.as_deref()), (Some("bank/7"), Some("me")));
    assert_eq!(holder.by.client.as_deref(), Some(&*other.client_id()));
    assert!((holder.other_type.as_deref(), holder.is_mark) == (None, false) && !seen.holders.is_empty());
    assert_eq!(seen.largest_token, Some(guard.fencing_token()));
    assert!(holder.expires_in > Some(secs(9)) && holder.expires_in <= Some(secs(10)));
    assert_eq!(holder.on, ["memory:0", "memory:1", "memory:2"]);
    assert_eq!((seen.free_on.as_slice(), seen.unknown.len()), (&["memory:3".to_owned()][..], 1));
    let unknown = &seen.unknown[0];
    assert!(unknown.address == "memory:4" && unknown.cause.kind() == ReplyKind::NotConnected, "{unknown}");
    assert_eq!(cluster.requests(), requests, "nothing was asked for");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_client_with_too_few_instances_is_shown_and_is_no_holder() {
    let (cluster, ours, _other) = two_clients().await;
    cluster.instances().take(2).for_each(|instance| instance.set("a", "a client of another library"));
    let seen = ours.inspect("a").await.unwrap();
    assert!(seen.holder().is_none());
    let found = &seen.holders[0];
    assert_eq!((found.on.len(), found.expires_in, found.other_type.as_deref()), (2, None, Some("string")));
    let forced = ours.force_release("a", &found.by).await.unwrap();
    assert_eq!((forced.released_on.len(), forced.not_theirs_on.len()), (0, 5), "it may be another program's data");
    assert_eq!(cluster.keys(), ["a"]);
    assert!(matches!(ours.inspect("").await, Err(BadRequest::Resource(_))));
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_told_from_a_holder_and_tokens_of_refused_attempts_are_nobodys() {
    let (_cluster, ours, other) = two_clients().await;
    let (kept, held) = (held(&other, "a").await, held(&other, "b").await);
    let token = held.fencing_token();
    kept.keep_for(secs(60)).await.unwrap();
    sleep(secs(1)).await; // so that later attempts propose larger tokens
    for name in ["a", "b"] {
        assert!(ours.lock(name).try_acquire().await.is_err());
        let seen = ours.inspect(name).await.unwrap();
        assert_eq!(seen.holder().unwrap().is_mark, name == "a", "{seen:?}");
        assert!(seen.largest_token > Some(token), "of the attempt that was refused: {seen:?}");
    }
}

/// P13: it is below the floor, which is no token of the lock.
#[tokio::test(start_paused = true)]
async fn of_a_lock_that_is_held_for_longer_than_tokens_are_kept_no_token_is_shown() {
    let (_cluster, ours, other) = two_clients().await;
    let guard = held(&other, "a").await;
    sleep(secs(120)).await;
    let seen = ours.inspect("a").await.unwrap();
    assert!(guard.is_valid() && seen.holder().is_some(), "{seen:?}");
    assert_eq!(seen.largest_token, None, "a renewal stores none below the floor");
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(held(&ours, "a").await.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn tries_that_look_alike_are_not_counted_together() {
    let (cluster, ours, _other) = two_clients().await;
    cluster.instances().take(2).for_each(|instance| instance.set("a", "a client of another library"));
    cluster.instances().skip(2).for_each(|instance| instance.set("a", "one more of another library"));
    let seen = ours.inspect("a").await.unwrap();
    assert_eq!(seen.holders.iter().map(|holder| holder.on.len()).collect::<Vec<_>>(), [3, 2]);
    cluster.instances().take(2).for_each(|instance| instance.set("a", "a third one"));
    cluster.instance(2).remove("a");
    assert!(ours.inspect("a").await.unwrap().holder().is_none(), "two have it on two each");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_away_is_free_and_its_holder_is_told() {
    let (_cluster, ours, other) = two_clients().await;
    for lock in [other.lock("a"), other.lock("a").holder(Holder::from("me"))] {
        let guard = lock.acquire().await.unwrap();
        settle().await;
        let seen = ours.inspect("a").await.unwrap();
        let expected = &seen.holder().unwrap().by;
        assert_eq!(ours.force_release("b", expected).await.unwrap().not_theirs_on.len(), 5, "another lock");
        assert!(guard.is_valid());
        let forced = ours.force_release("a", expected).await.unwrap();
        assert!(forced.is_complete() && forced.released_on.len() == 5, "{forced:?}");
        let next = held(&ours, "a").await;
        assert!(next.fencing_token() > guard.fencing_token());
        assert!(matches!(timeout(secs(4), guard.lost()).await, Ok(Loss::Gone { .. } | Loss::TakenOver { .. })));
        drop(guard);
        settle().await;
        assert!(next.is_valid(), "the former holder's release is not for it");
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_not_taken_away_from_another_holder() {
    let (cluster, ours, other) = two_clients().await;
    let first = held(&other, "a").await;
    settle().await;
    let seen = ours.inspect("a").await.unwrap();
    first.release().await.unwrap();
    let next = held(&ours, "a").await;
    let forced = other.force_release("a", &seen.holder().unwrap().by).await.unwrap();
    assert!(forced.is_complete() && forced.released_on.is_empty());
    assert!(next.is_valid() && next.extend().await.is_ok());

    cluster.instances().take(3).for_each(TestInstance::cut_off);
    let forced = other.force_release("a", &seen.holder().unwrap().by).await.unwrap();
    assert!(!forced.is_complete() && forced.unknown.len() == 3);
    assert!(timeout(ms(1), ours.inspect("a")).await.is_ok(), "nobody waits for those out of reach");
}

#[tokio::test(start_paused = true)]
async fn a_warning_says_that_a_lock_was_taken_away_only_where_it_was() {
    let (_cluster, ours, other) = two_clients().await;
    let _guard = held(&other, "a").await;
    let by = ours.inspect("a").await.unwrap().holder().unwrap().by.clone();
    listen(Level::WARN);
    for (name, expected) in [("b", 0), ("a", 1), ("a", 0)] {
        ours.force_release(name, &by).await.unwrap();
        let warnings = told();
        assert_eq!(warnings.iter().filter(|line| line.contains("by force")).count(), expected, "{warnings:?}");
    }
}

/// As documented: who neither renews nor waits is not told.
#[tokio::test(start_paused = true)]
async fn a_lock_without_renewal_that_is_taken_away_is_noticed_by_who_waits_for_the_loss_or_else_at_its_end() {
    for waits in [true, false] {
        let (_cluster, ours, other) = two_clients().await;
        let guard = other.lock("a").renew(Renewal::Off).acquire().await.unwrap();
        let view = guard.lease();
        let waiting = waits.then(|| tokio::spawn(async move { view.lost().await }));
        sleep(secs(1)).await;
        let by = ours.inspect("a").await.unwrap().holder().unwrap().by.clone();
        assert!(ours.force_release("a", &by).await.unwrap().is_complete());
        sleep(secs(1)).await;
        assert_eq!(guard.is_valid(), !waits);
        sleep(secs(8)).await;
        assert!(!guard.is_valid());
        drop(waiting);
    }
}

#[tokio::test(start_paused = true)]
async fn instances_that_are_read_and_cannot_delete_are_unknown_and_not_free() {
    let (cluster, ours, other) = two_clients().await;
    let _guard = held(&ours, "a").await;
    settle().await;
    cluster.instances().for_each(TestInstance::forget_scripts);
    let by = ours.inspect("a").await.unwrap().holder().unwrap().by.clone();
    let forced = other.force_release("a", &by).await.unwrap();
    assert!(!forced.is_complete() && forced.not_theirs_on.is_empty(), "{forced:?}");
    let forced = other.force_release("a", &by).await.unwrap();
    assert!(forced.is_complete() && forced.unknown.is_empty(), "{forced:?}");
}
