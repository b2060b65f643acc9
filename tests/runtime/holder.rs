//! P23: a holder enters the lease that it has in its client; everywhere else it is refused like anybody.

use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, ExtendError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{
    TIMEOUT, cluster_of, hang_first, held, how_many_have, ms, renewing, secs, settle, timed, until_voting,
};

async fn try_as(redlock: &Redlock, holder: &str, name: &str) -> Result<Guard, AcquireError> {
    redlock.lock(name).holder(Holder::from(holder)).try_acquire().await
}

async fn held_by(redlock: &Redlock, holder: &str, name: &str) -> Guard {
    try_as(redlock, holder, name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn entering_again_takes_no_request_and_shares_the_lease_and_its_token() {
    let (cluster, redlock) = renewing(5).await;
    let first = held_by(&redlock, "me", "a").await;
    let token = first.fencing_token();
    sleep(secs(1)).await;
    cluster.instances().for_each(TestInstance::cut_off);
    let waits = redlock.lock("a").holder(Holder::from("me")).acquire();
    let (guards, took) = timed(async { [held_by(&redlock.clone(), "me", "a").await, waits.await.unwrap()] }).await;
    assert!(took.is_zero(), "{took:?}");
    cluster.instances().for_each(TestInstance::resume);
    for guard in &guards {
        assert_eq!((guard.remaining(), guard.fencing_token()), (first.remaining(), token));
    }
    assert_eq!((cluster.requests().acquire, cluster.requests().extend), (5, 0));
    until_voting(&redlock, 5).await;
    for guard in guards {
        let view = guard.lease();
        assert!(guard.release().await.unwrap().was_still_held);
        assert!(!view.is_valid() && matches!(view.lost().await, Loss::GivenUp), "its guard is gone");
    }
    let third = held_by(&redlock, "me", "a").await;
    drop(first);
    sleep(secs(30)).await;
    assert!(third.is_valid());
    assert_eq!((how_many_have(&cluster, "a"), cluster.requests().release), (5, 0));
    assert!(third.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
    assert!(held_by(&redlock, "me", "a").await.fencing_token() > token, "a new lease");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_holder_that_race_get_one_lease() {
    let (cluster, redlock) = renewing(5).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(10), ms(10)));
    for waits in [false, true] {
        let before = cluster.requests().acquire;
        let enter = |_| {
            let lock = redlock.lock("a").holder(Holder::from("me"));
            tokio::spawn(async move {
                timed(async { if waits { lock.acquire().await } else { lock.try_acquire().await } }).await
            })
        };
        let racing: Vec<_> = (0..8).map(enter).collect();
        let mut guards = Vec::new();
        for racing in racing {
            let (guard, took) = racing.await.unwrap();
            assert_eq!(took, ms(20), "all with the first");
            guards.push(guard.unwrap());
        }
        assert_eq!(cluster.requests().acquire - before, 5);
        assert!(guards.iter().all(|guard| guard.fencing_token() == guards[0].fencing_token()));
        drop(guards);
        sleep(ms(40)).await;
        assert!(cluster.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn those_of_a_holder_that_wait_share_as_soon_as_one_of_them_has_it() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let theirs = held(&elsewhere, "a").await;
    let wait = |holder: &str| {
        let lock = redlock.lock("a").holder(Holder::from(holder));
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let (first, stranger, second, third) = (wait("me"), wait("you"), wait("me"), wait("me"));
    sleep(secs(5)).await;
    drop(theirs);
    let mut guards = Vec::new();
    for mine in [first, second, third] {
        let (guard, took) = timed(mine).await;
        assert!(took < ms(20), "{took:?}");
        guards.push(guard.unwrap());
    }
    assert!(guards.iter().all(|guard| guard.fencing_token() == guards[0].fencing_token()));
    sleep(secs(30)).await;
    assert!(!stranger.is_finished());
    drop(guards);
    let (theirs, took) = timed(stranger).await;
    assert!(took < ms(20) && theirs.unwrap().is_valid(), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_try_of_a_holder_does_not_keep_its_others_out() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(50)));
    for _ in 0..5 {
        assert!(timeout(ms(30), try_as(&redlock, "me", "a")).await.is_err());
    }
    let guard = held_by(&redlock, "me", "a").await;
    sleep(secs(1)).await;
    assert_eq!(how_many_have(&cluster, "a"), 3, "the releases of the cancelled ones spare it");
    assert!(timeout(secs(30), guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn everybody_else_is_refused_and_sees_who_it_is() {
    let (cluster, redlock) = renewing(5).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held_by(&redlock, "me", "a").await;
    let others = ["you", "", "m", "mee", "ME", "me:", "me%", ":me", "me:0"].map(|holder| (&redlock, holder));
    // In another client its own name is a name like any other.
    let all = others.into_iter().chain(others.map(|(_, holder)| (&elsewhere, holder))).chain([(&elsewhere, "me")]);
    for (client, holder) in all {
        let error = try_as(client, holder, "a").await.unwrap_err();
        let AcquireError::Contended(held_by) = error else { panic!("{error:?}") };
        assert_eq!(held_by.by.holder.as_deref(), Some("me"), "{holder:?}");
    }
    settle().await;
    assert!(timeout(secs(30), guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_crashed_waits_for_the_ttl() {
    let (cluster, crashed) = cluster_of(3).await;
    let redlock = cluster.builder().connect().await.unwrap();
    std::mem::forget(held_by(&crashed, "me", "a").await);
    let (guard, took) = timed(redlock.lock("a").holder(Holder::from("me")).acquire()).await;
    assert!(guard.unwrap().is_valid() && took > ms(9_000) && took < secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_text_is_no_identity() {
    let (_cluster, redlock) = renewing(3).await;
    let _guard = held_by(&redlock, "", "a").await;
    let error = try_as(&redlock, "", "a").await.unwrap_err();
    let AcquireError::Contended(held_by) = error else { panic!("{error:?}") };
    assert_eq!(held_by.by.holder, None);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_timeout_whose_request_arrived_succeeds() {
    for holder in ["", "me"] {
        let (cluster, redlock) = renewing(5).await;
        let other = cluster.builder().connect().await.unwrap();
        let hanging = cluster.clone();
        hang_first(&cluster, 3, Hang::RepliesLost);
        tokio::spawn(async move {
            sleep(TIMEOUT / 2).await;
            hang_first(&hanging, 3, Hang::RequestsLost); // the releases that follow
        });
        let error = try_as(&redlock, holder, "a").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
        cluster.instances().for_each(TestInstance::resume);
        // Releases are sent again a little after the connections are there again, or ahead of the next acquire.
        until_voting(&redlock, 5).await;
        until_voting(&other, 5).await;
        assert_eq!(how_many_have(&cluster, "a"), 3);
        assert!(try_as(&other, "you", "a").await.unwrap_err().is_contended());
        let guard = held_by(&redlock, holder, "a").await;
        sleep(secs(1)).await;
        assert_eq!(how_many_have(&cluster, "a"), 5, "late releases spare it");
        assert!(timeout(secs(30), guard.lost()).await.is_err());
    }
}

/// The release of a try that is lost waits for slow answers, which may show that it is needless; the next try does not.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_lost_try_goes_ahead_of_the_next_one() {
    let (cluster, redlock) = cluster_of(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let theirs = held(&elsewhere, "a").await;
    cluster.instance(2).remove("a");
    cluster.instance(2).slow_down(ms(4), ms(4));
    assert!(held_nothing(&redlock).await);
    theirs.release().await.unwrap();
    sleep(ms(1)).await;
    cluster.instance(0).cut_off();
    assert!(held(&redlock, "a").await.is_valid(), "two of three, and one of them the slow one");
}

async fn held_nothing(redlock: &Redlock) -> bool {
    redlock.lock("a").try_acquire().await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_little_left_is_extended_before_it_is_entered_again() {
    let (cluster, redlock) = cluster_of(3).await;
    let first = held_by(&redlock, "me", "a").await;
    sleep(secs(7)).await;
    drop(held_by(&redlock, "me", "a").await);
    assert_eq!(cluster.requests().extend, 0);
    sleep(secs(2)).await;
    let again = held_by(&redlock, "me", "a").await;
    assert_eq!((again.remaining(), first.remaining()), (ms(9_898), ms(9_898)));
    assert_eq!((cluster.requests().acquire, cluster.requests().extend), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_extended_is_not_entered_and_stays_as_it_is() {
    let (cluster, redlock) = cluster_of(5).await;
    let former = held_by(&redlock, "me", "a").await;
    sleep(secs(9)).await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    let (valid, token) = (former.remaining(), former.fencing_token());
    let error = try_as(&redlock, "me", "a").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
    let lock = redlock.lock("a").holder(Holder::from("me"));
    let error = lock.wait_at_most(ms(100)).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::DeadlinePassed { .. }), "{error:?}");
    assert_eq!((former.remaining(), former.fencing_token()), (valid - ms(100), token));
    let waiting = tokio::spawn({
        let lock = redlock.lock("a").holder(Holder::from("me"));
        async move { lock.acquire().await.unwrap() }
    });
    settle().await;
    cluster.instances().for_each(TestInstance::resume);
    let entered = waiting.await.unwrap();
    assert_eq!(entered.fencing_token(), token);
    assert!(former.is_valid());
}

#[tokio::test(start_paused = true)]
async fn entering_again_with_a_shorter_ttl_does_not_end_the_lease() {
    let (cluster, redlock) = cluster_of(3).await;
    let first = held_by(&redlock, "me", "a").await;
    sleep(ms(9_500)).await;
    let lock = redlock.lock("a").holder(Holder::from("me")).ttl(secs(5));
    let again = lock.try_acquire().await.unwrap();
    assert_eq!(cluster.requests().acquire, 3);
    assert!(first.is_valid() && first.remaining() == again.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_shared_lease_is_renewed_with_the_longest_ttl() {
    // Of the first too little is left for the second guard, which extends it at once; of the other enough until its next renewal.
    for ttl in [secs(2), secs(5)] {
        let (cluster, redlock) = renewing(3).await;
        let short = redlock.lock("a").holder(Holder::from("me")).ttl(ttl).try_acquire().await.unwrap();
        let _long = held_by(&redlock, "me", "a").await;
        sleep(ms(1_800)).await;
        assert!(short.remaining() > secs(8), "{ttl:?}: {:?}", short.remaining());
        assert!(cluster.instances().all(|instance| instance.expires_in("a") > Some(secs(8))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_lease_is_renewed_while_one_guard_wants_that() {
    let (cluster, redlock) = renewing(3).await;
    let lock = || redlock.lock("a").holder(Holder::from("me"));
    let first = lock().renew(Renewal::Off).try_acquire().await.unwrap();
    sleep(secs(7)).await;
    let second = held_by(&redlock, "me", "a").await;
    let third = lock().renew(Renewal::Off).try_acquire().await.unwrap();
    assert!(timeout(secs(60), second.lost()).await.is_err());
    drop(first);
    sleep(secs(60)).await;
    assert!(third.is_valid());
    drop(second);
    assert!(matches!(timeout(secs(11), third.lost()).await, Ok(Loss::Expired { .. })));
    drop(third);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_longest_time_of_one_guard_ends_that_guard_alone() {
    let (cluster, redlock) = renewing(3).await;
    let lock = || redlock.lock("a").holder(Holder::from("me"));
    let bounded = lock().max_hold(secs(5)).try_acquire().await.unwrap();
    let other = held_by(&redlock, "me", "a").await;
    let (loss, took) = timed(bounded.lost()).await;
    assert!(matches!(loss, Loss::MaxHold), "{loss:?}");
    assert!(took > ms(14_890) && took < ms(14_900), "five seconds and what a ttl is valid for: {took:?}");
    assert!(!bounded.is_valid() && bounded.remaining().is_zero());
    assert!(matches!(bounded.extend().await, Err(ExtendError::Lost { .. })));
    sleep(secs(60)).await;
    assert!(other.is_valid());
    assert_eq!((redlock.stats().lost_by_expiry, redlock.stats().lost_by_max_hold), (0, 0));
    assert!(!bounded.release().await.unwrap().was_still_held);
    assert!(other.is_valid() && how_many_have(&cluster, "a") == 3);

    // Alone, it ends the lease; and a client that extends it by hand has it for longer.
    drop(other);
    let bounded = lock().max_hold(secs(5)).try_acquire().await.unwrap();
    sleep(secs(10)).await;
    bounded.extend().await.unwrap();
    let again = lock().max_hold(secs(1)).try_acquire().await.unwrap();
    let (_, took) = timed(bounded.lost()).await;
    assert!(took > ms(9_890) && took < ms(9_900), "{took:?}");
    assert!(!again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_a_loss_for_all_guards_and_the_holder_gets_a_new_lease() {
    let (cluster, redlock) = renewing(3).await;
    let gone = [held_by(&redlock, "me", "a").await, held_by(&redlock, "me", "a").await];
    cluster.instances().for_each(|instance| assert!(instance.remove("a")));
    for guard in &gone {
        assert!(matches!(guard.lost().await, Loss::Gone { .. }));
    }
    let next = held_by(&redlock, "me", "a").await;
    assert!(next.fencing_token() > gone[0].fencing_token());
    assert!(next.is_valid() && gone.iter().all(|guard| !guard.is_valid()));
    drop(gone);
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 3);
    let lock = redlock.lock("b").holder(Holder::from("me")).renew(Renewal::Off);
    let expired = lock.try_acquire().await.unwrap();
    expired.lost().await;
    assert!(redlock.lock("b").holder(Holder::from("me")).acquire().await.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn the_last_guard_may_let_go_while_its_holder_enters_again() {
    for let_go_after in 0..50 {
        for given_up_after in [None, Some(5), Some(15), Some(35)] {
            let (cluster, redlock) = cluster_of(3).await;
            let first = held_by(&redlock, "me", "a").await;
            sleep(secs(9)).await; // little is left
            cluster.instances().enumerate().for_each(|(i, instance)| {
                let slow = ms(5 * (i as u64 + 1));
                instance.slow_down(slow, slow);
            });
            let enter = async {
                match given_up_after {
                    None => Some(held_by(&redlock, "me", "a").await),
                    Some(end) => timeout(ms(end), held_by(&redlock, "me", "a")).await.ok(),
                }
            };
            let let_go = async {
                sleep(ms(let_go_after)).await;
                drop(first);
            };
            let (entered, ()) = tokio::join!(enter, let_go);
            sleep(ms(100)).await;
            let at = format!("let go after {let_go_after} ms, given up after {given_up_after:?}");
            if let Some(entered) = entered {
                assert!(entered.is_valid() && how_many_have(&cluster, "a") == 3, "{at}");
                assert!(entered.release().await.unwrap().was_still_held, "{at}");
                sleep(ms(100)).await;
            }
            assert!(cluster.keys().is_empty(), "{at}: {:?}", cluster.keys());
        }
    }
}

#[tokio::test]
async fn an_identity_that_is_too_long_is_refused() {
    let (cluster, redlock) = renewing(3).await;
    drop(held_by(&redlock, &"x".repeat(200), "a").await);
    let error = try_as(&redlock, &"x".repeat(201), "b").await.unwrap_err();
    assert!(error.to_string().contains("201 bytes; at most 200") && !error.is_retryable(), "{error}");
    assert_eq!(how_many_have(&cluster, "b"), 0);
}
