//! P23: a holder that enters its lease again learns whether it still has it.

use redquorum::testing::TestInstance;
use redquorum::{AcquireError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, how_many_have, ms, secs, settle, timed, until_voting};

async fn try_for(redlock: &Redlock, names: &[&str]) -> Result<Guard, AcquireError> {
    redlock.lock(names.to_vec()).holder(Holder::from("me")).try_acquire().await
}

async fn mine(redlock: &Redlock) -> Guard {
    try_for(redlock, &["a"]).await.unwrap()
}

/// Counter-example: it was let into the lease that it had no more, with a token below the other's.
#[tokio::test(start_paused = true)]
async fn a_holder_that_was_granted_elsewhere_does_not_enter_the_lease_that_it_had() {
    for released in [false, true] {
        let (cluster, one) = cluster_of(5).await;
        let two = cluster.builder().renew(Renewal::Off).label("elsewhere/2").connect().await.unwrap();
        let former = mine(&one).await;
        sleep(ms(5)).await;
        let elsewhere = mine(&two).await;
        let granted = elsewhere.fencing_token();
        if released {
            elsewhere.release().await.unwrap();
            settle().await;
        } else {
            std::mem::forget(elsewhere); // its process goes on, or has died
        }
        let again = mine(&one).await;
        assert!(again.fencing_token() > granted, "released: {released}");
        let (loss, took) = timed(former.lost()).await;
        assert!(matches!(loss, Loss::ResumedElsewhere { .. } | Loss::Gone { .. }) && took == ms(0), "{loss:?}");
        drop(former);
        settle().await;
        assert!(again.is_valid() && how_many_have(&cluster, "a") == 5);
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_a_quorum_a_lease_is_not_entered_and_stays_as_it_is() {
    let (cluster, redlock) = cluster_of(5).await;
    let former = mine(&redlock).await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    sleep(secs(1)).await;
    let (valid, token) = (former.remaining(), former.fencing_token());
    let error = try_for(&redlock, &["a"]).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
    assert_eq!((former.remaining(), former.fencing_token()), (valid, token));
    cluster.instances().for_each(TestInstance::resume);
    until_voting(&redlock, 5).await;
    assert!(mine(&redlock).await.fencing_token() > token);
    assert!(former.release().await.unwrap().was_still_held);
    settle().await;
    assert!(cluster.keys().is_empty());
}

/// They may come from a client whose wall clock is ahead.
#[tokio::test(start_paused = true)]
async fn a_lease_is_entered_above_the_tokens_of_those_who_were_refused() {
    let (cluster, ahead) = cluster_of(3).await;
    let redlock = cluster.builder_with_wall_clock_behind(secs(60)).connect().await.unwrap();
    let former = mine(&redlock).await;
    for _ in 0..3 {
        // What a holder's try may have taken over is given back wherever it was asked, which leaves a mark (P6).
        assert!(ahead.lock("a").holder(Holder::from("another")).try_acquire().await.is_err());
    }
    settle().await;
    let marked = cluster.instance(0).fencing_token("a").unwrap();
    assert!(marked > former.fencing_token());
    let again = mine(&redlock).await;
    assert!(again.fencing_token() > marked && former.is_valid());
}

/// Counter-example: nothing was told, since an instance pushes nobody what he did himself.
#[tokio::test(start_paused = true)]
async fn a_lease_of_which_its_holder_takes_a_part_or_more_ends_at_once() {
    for (first, second) in [(&["a", "b"][..], &["a"][..]), (&["a"], &["a", "b"]), (&["a", "b"], &["b", "c"])] {
        let (cluster, redlock) = cluster_of(3).await;
        let former = try_for(&redlock, first).await.unwrap();
        let untouched = try_for(&redlock, &["z"]).await.unwrap();
        let later = try_for(&redlock, second).await.unwrap();
        assert!(!former.is_valid() && later.is_valid() && untouched.is_valid(), "{first:?}, {second:?}");
        let (loss, took) = timed(former.lost()).await;
        assert!(matches!(loss, Loss::ResumedElsewhere { .. }) && took == ms(0), "{loss:?}");
        drop(former);
        settle().await;
        assert!(second.iter().all(|name| how_many_have(&cluster, name) == 3));
        drop((later, untouched));
        settle().await;
        assert!(cluster.keys().is_empty());
    }
}

/// Counter-example: the round went on without a guard, and set the keys again after their release.
#[tokio::test(start_paused = true)]
async fn the_last_guard_may_let_go_while_its_holder_enters_again() {
    for let_go_after in 0..50 {
        for given_up_after in [None, Some(5), Some(15), Some(35)] {
            let (cluster, redlock) = cluster_of(3).await;
            let first = mine(&redlock).await;
            sleep(secs(9)).await; // little is left
            cluster.instances().enumerate().for_each(|(i, instance)| {
                let slow = ms(5 * (i as u64 + 1));
                instance.slow_down(slow, slow);
            });
            let enter = async {
                match given_up_after {
                    None => Some(mine(&redlock).await),
                    Some(end) => timeout(ms(end), mine(&redlock)).await.ok(),
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
