//! P32: a lease is moved by its value.

use futures_util::future::FutureExt;
use redquorum::testing::{Cluster, TestInstance};
use redquorum::{DetachedLease, ExtendError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, held, how_many_have, ms, renewing, secs, settle, timed, until_voting};

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
async fn what_was_attached_is_released_also_where_only_its_former_client_has_sent_something() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().connect().await.unwrap();
    until_voting(&two, 3).await;
    let lease = held(&one, "a").await.detach();
    cluster.instance(0).cut_off();
    settle().await;
    attached(&two, &lease).await.release().await.unwrap();
    assert_eq!(how_many_have(&cluster, "a"), 1);
    cluster.instance(0).resume();
    sleep(secs(3)).await; // far below the ttl
    assert!(cluster.keys().is_empty());
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
    drop(guard);
    two.shutdown(secs(1)).await.unwrap();
}

/// An operator who reads it looks for what ended the client, and a loop that tries again while that helps ends.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_says_so_when_it_is_to_attach_a_lease() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let guard = held(&one, "a").await;
    let lease = held(&one, "b").await.detach();
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    let under_way = tokio::spawn({
        let (two, lease) = (two.clone(), lease.clone());
        async move { two.attach(&lease).await }
    });
    sleep(ms(10)).await;
    two.shutdown(secs(1)).await.unwrap();
    for refused in [under_way.await.unwrap(), two.attach(&lease).await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, ExtendError::ClientUnusable(_)) && !error.is_retryable(), "{error:?}");
        assert_eq!(error.to_string(), "the client was shut down");
    }
    assert!(attached(&one, &lease).await.is_valid(), "it is as it was");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_ttl_above_the_longest_is_refused() {
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().ttl(secs(2)).max_ttl(secs(5)).quarantine(secs(10)).connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::BadRequest(_))));
}

/// Counter-example: the copy shared the lease with the waiter, or was valid in another client beside it, with an older token.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_attached_is_not_handed_over_so_that_its_copies_end_with_it() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    let guard = attached(&one, &lease).await;
    let waiter = tokio::spawn({
        let one = one.clone();
        async move { one.lock("a").acquire().await.unwrap() }
    });
    settle().await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap();
    for client in [&one, &two] {
        let refused = client.attach(&lease).await;
        assert!(matches!(refused, Err(ExtendError::Lost { .. })), "{refused:?}");
    }
    assert!(next.fencing_token() > lease.fencing_token());
    assert!(next.release().await.unwrap().was_still_held);
}

/// Counter-example: each was a lease of its own, and when one was released the other was valid without keys for seconds.
#[tokio::test(start_paused = true)]
async fn copies_that_are_attached_at_once_in_one_client_share_the_lease() {
    let (cluster, one) = renewing(3).await;
    let lease = held(&one, "a").await.detach();
    let (first, second) = tokio::join!(attached(&one, &lease), attached(&one, &lease));
    assert!(first.release().await.unwrap().was_still_held);
    settle().await;
    assert!(second.is_valid() && how_many_have(&cluster, "a") == 3);
    assert!(second.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_attached_while_another_one_is_released_is_not_valid_without_keys() {
    for pause in 0..8 {
        let (cluster, one) = renewing(3).await;
        let lease = held(&one, "a").await.detach();
        cluster.instances().for_each(|instance| instance.slow_down(ms(3), ms(3)));
        let released = async { attached(&one, &lease).await.release().await.unwrap() };
        let second = async {
            sleep(ms(2 * pause)).await;
            one.attach(&lease).await
        };
        let (_, second) = tokio::join!(released, second);
        settle().await;
        let is_valid = second.is_ok_and(|guard| guard.is_valid());
        assert_eq!(is_valid, how_many_have(&cluster, "a") > 0, "after {} ms", 2 * pause);
    }
}

/// Counter-example: the former attempt was won behind its repetition, and took the place of that one's lease in the client.
#[tokio::test(start_paused = true)]
async fn an_attach_that_was_given_up_does_not_take_the_place_of_its_repetition() {
    let cluster = Cluster::new(3);
    let one = cluster.builder().instance_timeout(secs(2)).connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    cluster.instance(1).cut_off();
    cluster.instance(2).slow_down(ms(500), ms(500));
    settle().await;
    assert!(timeout(ms(10), one.attach(&lease)).await.is_err());
    cluster.instance(1).resume();
    until_voting(&one, 3).await;
    let (repeated, took) = timed(attached(&one, &lease)).await;
    assert!(took < ms(500), "won by the other two, after {took:?}");
    sleep(secs(1)).await; // for the answer to the first
    let third = attached(&one, &lease).await;
    assert!(third.release().await.unwrap().was_still_held);
    settle().await;
    assert!(repeated.is_valid() && how_many_have(&cluster, "a") == 3);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_attached_behind_a_mark_has_the_lock_again_and_its_release_ends_the_mark() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    attached(&one, &lease).await.keep_for(secs(3600)).await.unwrap();
    sleep(secs(60)).await;
    let guard = attached(&two, &lease).await;
    assert_eq!((guard.fencing_token(), how_many_have(&cluster, "a")), (lease.fencing_token(), 3));
    assert!(timeout(secs(60), guard.lost()).await.is_err(), "renewed");
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(held(&one, "a").await.fencing_token() > lease.fencing_token());
}

/// Counter-example: an extend that came late had set its keys again, another client attached it, and the release of the client that
/// had lost it deleted them: a third client got the lock beside it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_over_when_it_was_detached_is_released_and_not_attached() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let guard = held(&one, "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(secs(12), ms(0)));
    assert!(matches!(timeout(secs(15), guard.lost()).await, Ok(Loss::Expired { .. })));
    let lease = guard.detach();
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
    for pause in [0, 1_000, 3_000] {
        sleep(ms(pause)).await;
        let attached = two.attach(&lease).await;
        assert!(matches!(attached, Err(ExtendError::Lost { .. })), "{attached:?}");
    }
    sleep(secs(10)).await;
    assert!(cluster.keys().is_empty());

    // So is one that the client's shutdown has ended.
    let guard = held(&one, "b").await;
    let shut_down = tokio::spawn({
        let one = one.clone();
        async move { one.shutdown(secs(1)).await }
    });
    settle().await;
    let lease = guard.detach();
    shut_down.await.unwrap().unwrap();
    assert!(cluster.keys().is_empty());
    assert!(matches!(two.attach(&lease).await, Err(ExtendError::Lost { .. })));
}

/// Counter-example: it was said to be lost for good, and its keys were there.
#[tokio::test(start_paused = true)]
async fn an_attach_that_is_polled_too_late_attaches_anew() {
    let (cluster, one) = renewing(3).await;
    let two = cluster.builder().connect().await.unwrap();
    let lease = held(&one, "a").await.detach();
    let mut attaching = Box::pin(two.attach(&lease));
    assert!((&mut attaching).now_or_never().is_none());
    sleep(ms(8_500)).await;
    let guard = attaching.await.unwrap();
    assert!(guard.remaining() > secs(9), "{:?}", guard.remaining());
}

/// P32: its release is not queued yet, and would delete the keys of the copy.
#[tokio::test(start_paused = true)]
async fn a_copy_of_one_of_many_locks_whose_release_waits_for_others_is_not_attached() {
    let (cluster, one) = renewing(3).await;
    let names: Vec<String> = (0..17).map(|number| format!("n{number:02}")).collect();
    let holder = || Holder::from("me");
    let all = one.lock_all(&names).holder(holder()).acquire().await.unwrap();
    let lease = one.lock("n16").holder(holder()).acquire().await.unwrap().detach();
    drop(attached(&one, &lease).await);
    cluster.instances().for_each(|instance| instance.slow_down(ms(5), ms(5)));
    tokio::spawn(all.release());
    settle().await;
    let copy = one.attach(&lease).await;
    assert!(matches!(copy, Err(ExtendError::Lost { .. })), "{copy:?}");
}
