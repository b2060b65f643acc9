//! Looking at a lock, and taking it away.

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{BadRequest, Holder, Loss, Redlock, ReplyKind};
use tokio::time::timeout;

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
    assert_eq!(holder.token, Some(guard.fencing_token()));
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
    assert_eq!((seen.holders[0].on.len(), seen.holders[0].expires_in, seen.holders[0].token), (2, None, None));
    assert!(matches!(ours.inspect("").await, Err(BadRequest::Resource(_))));
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
