//! P8, P9, P10: extending.

use redquorum::ExtendError;
use redquorum::testing::{Data, Hang, TestInstance};

use crate::support::{TIMEOUT, cluster_of, hang_first, held, how_many_have, ms, secs, settle, timed, until_voting};

#[tokio::test(start_paused = true)]
async fn an_extend_moves_the_validity_forward_from_its_own_start() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    tokio::time::sleep(secs(4)).await;
    assert_eq!(guard.extend().await.unwrap(), ms(9_898));
    assert!(cluster.instances().all(|instance| instance.expires_in("a") == Some(secs(10))));
}

#[tokio::test(start_paused = true)]
async fn a_failed_extend_deletes_nothing_and_may_be_tried_again() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    hang_first(&cluster, 3, Hang::RequestsLost);
    let result = guard.extend().await;
    let Err(ExtendError::Unconfirmed { remaining, .. }) = result else { panic!("{result:?}") };
    assert_eq!(remaining, ms(9_898) - TIMEOUT);
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 5);
    cluster.instances().for_each(TestInstance::resume);
    until_voting(&redlock, 5).await;
    assert_eq!(guard.extend().await.unwrap(), ms(9_898));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_validity_has_passed_never_comes_back_although_its_keys_are_still_there() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    tokio::time::sleep(ms(9_898)).await;
    assert_eq!(how_many_have(&cluster, "a"), 5);
    assert!(!guard.is_valid());
    let asked = cluster.requests().extend;
    assert!(matches!(guard.extend().await, Err(ExtendError::Lost { .. })));
    assert_eq!(cluster.requests().extend, asked);
    assert!(!guard.is_valid());
    assert!(guard.release().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_extend_that_is_answered_after_the_validity_has_passed_is_lost() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    tokio::time::sleep(ms(9_800)).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(150)));
    let (result, took) = timed(guard.extend()).await;
    assert!(matches!(result, Err(ExtendError::Lost { .. })), "{result:?}");
    assert_eq!(took, ms(98)); // P9: by the former validity, not by the answers
    assert!(!guard.is_valid());
    tokio::time::sleep(ms(200)).await;
    assert!(!guard.is_valid(), "late grants do not bring it back");
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_every_instance_does_not_end_an_extended_lease() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    for instance in cluster.instances() {
        instance.start(Data::Nothing);
        for _ in 0..4 {
            tokio::time::sleep(secs(3)).await; // after 10 s it may vote again
            assert!(guard.extend().await.is_ok());
        }
        assert_eq!(how_many_have(&cluster, "a"), 5);
    }
    let token = guard.fencing_token();
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(held(&redlock, "a").await.fencing_token() > token, "each instance has forgotten it, and grants none below");
}

#[tokio::test(start_paused = true)]
async fn an_extend_leaves_the_key_of_another_owner_alone() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    for index in 0..2 {
        cluster.instance(index).set("a", "foreign");
    }
    let result = guard.extend().await;
    assert!(matches!(result, Err(ExtendError::Lost { .. })), "two of three have it for somebody else: {result:?}");
    assert!(!guard.is_valid());
    drop(guard);
    settle().await;
    assert_eq!(cluster.instance(0).value("a").as_deref(), Some(b"foreign".as_slice()));
    assert_eq!(how_many_have(&cluster, "a"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_extend_never_shortens() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = redlock.lock("a").ttl(secs(5)).try_acquire().await.unwrap();
    assert!(matches!(guard.extend_to(secs(4)).await, Err(ExtendError::WouldShorten)));
    assert!(matches!(guard.extend_to(secs(11)).await, Err(ExtendError::BadRequest(_))));
    assert_eq!(cluster.requests().extend, 0);
    assert_eq!(guard.extend_to(secs(6)).await.unwrap(), ms(5_938));
    assert!(matches!(guard.extend_to(secs(5)).await, Err(ExtendError::WouldShorten)));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_an_extend_set_again_is_released_with_the_lease() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instance(0).cut_off();
    let guard = held(&redlock, "a").await;
    assert_eq!(how_many_have(&cluster, "a"), 4);
    cluster.instance(0).resume();
    until_voting(&redlock, 5).await;
    guard.extend().await.unwrap();
    assert_eq!(how_many_have(&cluster, "a"), 5);
    guard.release().await.unwrap();
    settle().await;
    assert!(cluster.keys().is_empty());
}
