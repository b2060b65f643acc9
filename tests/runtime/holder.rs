//! P23: the same holder is let in again.

use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, cluster_of, hang_first, how_many_have, ms, renewing, secs, settle, timed, until_voting};

async fn try_as(redlock: &Redlock, holder: &str, name: &str) -> Result<Guard, AcquireError> {
    redlock.lock(name).holder(Holder::from(holder)).try_acquire().await
}

async fn held_by(redlock: &Redlock, holder: &str, name: &str) -> Guard {
    try_as(redlock, holder, name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn entering_again_takes_a_round_and_shares_the_lease_under_a_larger_token() {
    let (cluster, redlock) = renewing(5).await;
    let first = held_by(&redlock, "me", "a").await;
    let mut last = first.fencing_token();
    sleep(secs(1)).await;
    let guards = [held_by(&redlock, "me", "a").await, held_by(&redlock.clone(), "me", "a").await];
    for guard in &guards {
        assert_eq!((guard.remaining(), first.remaining()), (ms(9_898), ms(9_898)));
    }
    assert_eq!((cluster.requests().acquire, cluster.requests().extend), (5, 10));
    let third = held_by(&redlock, "me", "a").await;
    assert!(third.fencing_token() > last);
    last = third.fencing_token();
    assert!(guards.iter().all(|guard| guard.fencing_token() == last), "the latest counts for all");
    assert_eq!(first.fencing_token(), last);
    assert!(cluster.instances().all(|instance| instance.fencing_token("a") == Some(last)));

    for guard in guards {
        assert!(guard.release().await.unwrap().was_still_held);
    }
    drop(first);
    sleep(secs(30)).await;
    assert!(third.is_valid());
    assert_eq!((how_many_have(&cluster, "a"), cluster.requests().release), (5, 0));
    assert!(third.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
    assert!(held_by(&redlock, "me", "a").await.fencing_token() > last, "a new lease");
}

/// Counter-example: when the tokens between two grants were used up, the holder took its own lease
/// over as if from elsewhere, and its other guards lost theirs.
#[tokio::test(start_paused = true)]
async fn entering_ever_again_does_not_end_the_lease() {
    let (cluster, redlock) = renewing(3).await;
    let first = held_by(&redlock, "me", "a").await;
    let mut last = first.fencing_token();
    for round in 0..5_000 {
        let again = held_by(&redlock, "me", "a").await;
        assert!(again.fencing_token() > last, "round {round}");
        last = again.fencing_token();
    }
    assert!(timeout(secs(30), first.lost()).await.is_err());
    assert_eq!(cluster.requests().acquire, 3);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_holder_that_race_get_one_lease() {
    let (cluster, redlock) = renewing(5).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(10), ms(10)));
    let enter = |_| {
        let redlock = redlock.clone();
        tokio::spawn(async move { timed(try_as(&redlock, "me", "a")).await })
    };
    let racing: Vec<_> = (0..8).map(enter).collect();
    let mut guards = Vec::new();
    for (place, racing) in racing.into_iter().enumerate() {
        let (guard, took) = racing.await.unwrap();
        assert_eq!(took, ms(20) * (1 + u32::try_from(place).unwrap()), "one after the other");
        guards.push(guard.unwrap());
    }
    assert_eq!(cluster.requests().acquire, 5);
    drop(guards);
    sleep(ms(20)).await;
    assert!(cluster.keys().is_empty());
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
async fn the_same_holder_elsewhere_resumes_and_the_former_is_told() {
    let (cluster, one) = renewing(5).await;
    let two = cluster.builder().label("elsewhere/2").connect().await.unwrap();
    let former = held_by(&one, "me", "a").await;
    let resumed = held_by(&two, "me", "a").await;
    assert!(resumed.fencing_token() > former.fencing_token());
    let (loss, took) = timed(former.lost()).await;
    let Loss::ResumedElsewhere { by, instances } = &loss else { panic!("{loss:?}") };
    assert_eq!((by.holder.as_deref(), by.label.as_deref()), (Some("me"), Some("elsewhere/2")));
    assert!(instances.len() >= 3 && took.is_zero(), "{instances:?} after {took:?}");
    assert!(!former.release().await.unwrap().was_still_held);
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 5);
    assert!(timeout(secs(30), resumed.lost()).await.is_err());

    // And back again, to the client that has lost it.
    let back = held_by(&one, "me", "a").await;
    assert!(back.fencing_token() > resumed.fencing_token());
    assert!(matches!(resumed.lost().await, Loss::ResumedElsewhere { .. }));
}

#[tokio::test(start_paused = true)]
async fn another_holder_is_refused_and_sees_who_it_is() {
    let (cluster, redlock) = renewing(5).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held_by(&redlock, "me", "a").await;
    for client in [&redlock, &elsewhere] {
        for holder in ["you", "", "m", "mee", "ME", "me:", "me%", ":me", "me:0"] {
            let error = try_as(client, holder, "a").await.unwrap_err();
            let AcquireError::Contended(held_by) = error else { panic!("{error:?}") };
            assert_eq!(held_by.by.holder.as_deref(), Some("me"), "{holder:?}");
        }
    }
    settle().await;
    assert!(timeout(secs(30), guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn names_of_holders_do_not_mix_up() {
    let names = ["a", "a:", "a:b", "a%", "a%3A", "a%3Ab", "%", ":", "::", "%25", "%253A", "é", "*", "a b\n"];
    let (cluster, one) = cluster_of(3).await;
    let two = cluster.builder().connect().await.unwrap();
    for holder in names {
        let guard = held_by(&one, holder, "a").await;
        for other in names.iter().filter(|other| **other != holder) {
            let error = try_as(&two, other, "a").await.unwrap_err();
            let AcquireError::Contended(held_by) = error else { panic!("{other:?} for {holder:?}: {error:?}") };
            assert_eq!(held_by.by.holder.as_deref(), Some(holder));
        }
        let resumed = held_by(&two, holder, "a").await;
        assert!(!guard.release().await.unwrap().was_still_held);
        assert!(resumed.release().await.unwrap().was_still_held);
        assert!(cluster.keys().is_empty());
    }
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
async fn several_resources_are_entered_again_in_any_order() {
    let (cluster, redlock) = renewing(3).await;
    let lock = |names: [&str; 3]| redlock.lock(names).holder(Holder::from("me"));
    let first = lock(["a", "b", "c"]).try_acquire().await.unwrap();
    let again = lock(["c", "a", "b"]).try_acquire().await.unwrap();
    assert_eq!(cluster.requests().acquire, 3);
    assert_eq!(first.fencing_token(), again.fencing_token());
    drop(first);
    settle().await;
    assert_eq!(cluster.keys(), ["a", "b", "c"]);
    drop(again);
    settle().await;
    assert!(cluster.keys().is_empty());
}

/// A lease is of all its resources: a part of them is another lease, and takes over.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_resources_is_a_lease_of_its_own() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = redlock.lock(["a", "b"]).holder(Holder::from("me"));
    let both = lock.try_acquire().await.unwrap();
    let part = held_by(&redlock, "me", "a").await;
    assert!(part.fencing_token() > both.fencing_token());
    drop(both);
    assert!(timeout(secs(30), part.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_whose_request_arrived_the_same_holder_goes_on() {
    for elsewhere in [false, true] {
        let (cluster, redlock) = renewing(5).await;
        let other = cluster.builder().connect().await.unwrap();
        let hanging = cluster.clone();
        hang_first(&cluster, 3, Hang::RepliesLost);
        tokio::spawn(async move {
            sleep(TIMEOUT / 2).await;
            hang_first(&hanging, 3, Hang::RequestsLost); // the releases that follow
        });
        let error = try_as(&redlock, "me", "a").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
        cluster.instances().for_each(TestInstance::resume);
        // Releases are sent again a little after the connections are there again.
        until_voting(&redlock, 5).await;
        until_voting(&other, 5).await;
        assert_eq!(how_many_have(&cluster, "a"), 3);
        let error = try_as(&other, "you", "a").await.unwrap_err();
        assert!(matches!(error, AcquireError::Contended(_)), "{error:?}");
        let guard = held_by(if elsewhere { &other } else { &redlock }, "me", "a").await;
        sleep(secs(1)).await;
        assert_eq!(how_many_have(&cluster, "a"), 5, "late releases spare it");
        assert!(timeout(secs(30), guard.lost()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_without_a_quorum_does_not_end_the_lease_of_the_former() {
    let (cluster, one) = renewing(5).await;
    let two = cluster.builder().connect().await.unwrap();
    let former = held_by(&one, "me", "a").await;
    for round in 0..3 {
        sleep(ms(1)).await; // for a larger token
        cluster.instances().skip(2).for_each(TestInstance::cut_off);
        let error = try_as(&two, "me", "a").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
        cluster.instances().for_each(TestInstance::resume);
        settle().await;
        assert_eq!(how_many_have(&cluster, "a"), 5, "round {round}: it was given back");
        assert!(timeout(ms(3_330), former.lost()).await.is_err(), "round {round}");
    }
    assert!(former.release().await.unwrap().was_still_held);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_little_left_is_extended_before_it_is_entered_again() {
    let (cluster, redlock) = cluster_of(3).await;
    let first = held_by(&redlock, "me", "a").await;
    sleep(secs(9)).await;
    let again = held_by(&redlock, "me", "a").await;
    assert_eq!((again.remaining(), first.remaining()), (ms(9_898), ms(9_898)));
    assert_eq!(cluster.requests().acquire, 3);
}

/// Counter-example: the extend was refused because it would shorten, so the holder took its own
/// lease over as if from elsewhere, and the first guard lost it.
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

/// Counter-example: the second guard's lease was kept as the first had asked, and ended under it.
#[tokio::test(start_paused = true)]
async fn a_shared_lease_is_kept_for_the_guard_that_needs_it_longest() {
    for first_longest in [None, Some(secs(5))] {
        let (cluster, redlock) = renewing(3).await;
        let lock = redlock.lock("a").holder(Holder::from("me"));
        let lock = match first_longest {
            Some(longest) => lock.max_hold(longest),
            None => lock.renew(Renewal::Off),
        };
        let first = lock.try_acquire().await.unwrap();
        sleep(secs(7)).await;
        let second = held_by(&redlock, "me", "a").await;
        let lock = redlock.lock("a").holder(Holder::from("me")).renew(Renewal::Off);
        let third = lock.try_acquire().await.unwrap();
        assert!(timeout(secs(60), second.lost()).await.is_err(), "{first_longest:?}");
        drop((first, second));
        sleep(secs(60)).await;
        assert!(third.release().await.unwrap().was_still_held);
        assert!(cluster.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_lease_has_ended_gets_a_new_one() {
    let (cluster, redlock) = renewing(3).await;
    let gone = held_by(&redlock, "me", "a").await;
    cluster.instances().for_each(|instance| assert!(instance.remove("a")));
    gone.lost().await;
    let next = held_by(&redlock, "me", "a").await;
    assert!(next.fencing_token() > gone.fencing_token());
    assert!(next.is_valid() && !gone.is_valid());
    drop(gone);
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 3);
    let lock = redlock.lock("b").holder(Holder::from("me")).renew(Renewal::Off);
    let expired = lock.try_acquire().await.unwrap();
    expired.lost().await;
    assert!(held_by(&redlock, "me", "b").await.is_valid());
}

#[tokio::test]
async fn an_identity_that_is_too_long_is_refused() {
    let (cluster, redlock) = renewing(3).await;
    drop(held_by(&redlock, &"x".repeat(200), "a").await);
    let error = try_as(&redlock, &"x".repeat(201), "b").await.unwrap_err();
    assert!(error.to_string().contains("201 bytes; at most 200") && !error.is_retryable(), "{error}");
    assert_eq!(how_many_have(&cluster, "b"), 0);
}
