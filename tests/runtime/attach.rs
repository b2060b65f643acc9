//! P32: a lease is moved by its value.

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{DetachedLease, ExtendError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, held, how_many_have, ms, renewing, secs, settle};

async fn attached(redlock: &Redlock, lease: &DetachedLease) -> Guard {
    redlock.attach(lease).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_on_elsewhere_under_its_token_and_is_renewed_and_released_there() {
    let (cluster, one) = renewing(5).await;
    let two = cluster.builder().connect().await.unwrap();
    let guard = one.lock("a").holder(Holder::from("me")).acquire().await.unwrap();
    let (token, view) = (guard.fencing_token(), guard.lease());
    sleep(secs(5)).await;
    let lease = guard.detach();
    assert!(!view.is_valid() && matches!(view.lost().await, Loss::GivenUp));
    assert_eq!((lease.fencing_token(), lease.ttl()), (token, secs(10)));
    sleep(secs(6)).await;
    assert_eq!((cluster.keys(), cluster.requests().release), (vec!["a".to_owned()], 0));
    let sent = cluster.requests().acquire;
    let guard = attached(&two, &lease).await;
    assert_eq!((guard.fencing_token(), guard.remaining()), (token, ms(9_898)));
    assert_eq!((guard.resource(), cluster.requests().acquire), ("a".into(), sent));
    assert!(one.lock("a").try_acquire().await.unwrap_err().is_contended());
    // Its holder enters it there.
    let again = two.lock("a").holder(Holder::from("me")).try_acquire().await.unwrap();
    drop(again);
    assert!(timeout(secs(60), guard.lost()).await.is_err(), "renewed");
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
    assert!(held(&one, "a").await.fencing_token() > token);
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_over_goes_on_under_its_own_token() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let first = held(&one, "a").await;
    let next = tokio::spawn({
        let one = one.clone();
        async move { one.lock("a").acquire().await.unwrap() }
    });
    settle().await;
    let granted = first.fencing_token();
    drop(first);
    let second = next.await.unwrap();
    let token = second.fencing_token();
    assert!(token > granted);
    let guard = attached(&two, &second.detach()).await;
    assert_eq!(guard.fencing_token(), token);
    drop(guard);
    settle().await;
    assert!(held(&one, "a").await.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_no_quorum_has_is_not_attached_and_no_key_of_it_is_set() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = one.lock("b").acquire().await.unwrap().detach();
    cluster.instances().take(2).for_each(|instance| assert!(instance.remove("b")));
    let refused = two.attach(&lease).await;
    assert!(matches!(refused, Err(ExtendError::Lost { .. })), "{refused:?}");
    settle().await;
    assert_eq!(how_many_have(&cluster, "b"), 1, "nothing is set or deleted");

    let lease = held(&one, "c").await.detach();
    assert!(cluster.instance(0).remove("c"));
    let guard = attached(&two, &lease).await;
    assert_eq!(how_many_have(&cluster, "c"), 2, "not by this round");
    guard.extend().await.unwrap();
    assert_eq!(how_many_have(&cluster, "c"), 3);
    drop(guard);

    let lease = held(&one, "d").await.detach();
    sleep(secs(10)).await;
    let next = held(&one, "d").await;
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::Lost { .. })));
    assert!(next.is_valid() && next.release().await.unwrap().was_still_held);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_too_few_can_tell_of_stays_and_may_be_attached_again() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    settle().await;
    let error = two.attach(&lease).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error:?}");
    assert!(!error.to_string().contains("still valid"), "{error}");
    cluster.instances().for_each(TestInstance::resume);
    sleep(secs(1)).await;
    assert!(attached(&two, &lease).await.is_valid());
}

#[tokio::test(start_paused = true)]
async fn copies_in_one_client_share_the_lease_and_others_end_with_the_first_release() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    let (first, second) = (attached(&one, &lease).await, attached(&one, &lease).await);
    let elsewhere = attached(&two, &lease).await;
    assert_eq!((first.fencing_token(), elsewhere.fencing_token()), (lease.fencing_token(), lease.fencing_token()));
    drop(first);
    sleep(secs(30)).await;
    assert!(second.is_valid() && elsewhere.is_valid() && how_many_have(&cluster, "a") == 3);
    assert!(second.release().await.unwrap().was_still_held);
    assert!(matches!(timeout(secs(5), elsewhere.lost()).await, Ok(Loss::Gone { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_nobody_waits_for_leaves_the_lease_as_it_is() {
    let cluster = Cluster::new(3);
    let client = async || cluster.builder().renew(Renewal::Off).connect().await.unwrap();
    let (one, two) = (client().await, client().await);
    let lease = held(&one, "a").await.detach();
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    assert!(timeout(ms(30), two.attach(&lease)).await.is_err());
    sleep(ms(100)).await;
    assert_eq!((how_many_have(&cluster, "a"), cluster.requests().release), (3, 0));
    assert!(one.lock("a").try_acquire().await.unwrap_err().is_contended());
    let guard = attached(&two, &lease).await;
    two.shutdown(secs(1)).await.unwrap();
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::Unconfirmed { .. })));
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_ttl_above_the_longest_is_refused() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().ttl(secs(2)).max_ttl(secs(5)).quarantine(secs(10)).connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::BadRequest(_))));
}
