//! P20: a loss is known, once, and with its cause.

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{ExtendError, Guard, Loss, Redlock};
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, held, how_many_have, ms, renewing, secs, settle, timed};

/// The first renewal of a lease of 10 s.
const FIRST: u64 = 3_325;

async fn five() -> (Cluster, Redlock, Guard) {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    (cluster, redlock, guard)
}

fn addresses(indices: impl IntoIterator<Item = usize>) -> Vec<String> {
    indices.into_iter().map(|index| format!("memory:{index}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_deleted_on_a_quorum_is_known_to_be_gone_at_once_and_unwatched_by_the_next_renewal() {
    for is_watched in [true, false] {
        let cluster = Cluster::new(5);
        let builder = cluster.builder();
        let redlock = if is_watched { builder } else { builder.without_watched_keys() }.connect().await.unwrap();
        let guard = held(&redlock, "a").await;
        let view = guard.lease();
        let waiting = tokio::spawn(async move { timed(view.lost()).await });
        sleep(secs(1)).await;
        cluster.instances().take(3).for_each(|instance| assert!(instance.remove("a")));
        let (loss, took) = waiting.await.unwrap();
        assert_eq!(took, if is_watched { secs(1) } else { ms(FIRST) });
        assert!(matches!(&loss, Loss::Gone { instances } if *instances == addresses(0..3)), "{loss:?}");
        assert!(!guard.is_valid() && guard.remaining().is_zero());
    }
}

/// What changed meanwhile was pushed to nobody.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_deleted_while_its_instance_was_cut_off_is_set_again_before_the_next_renewal() {
    let (cluster, _redlock, guard) = five().await;
    let view = guard.lease();
    let waiting = tokio::spawn(async move { view.lost().await }); // who waits has the keys watched
    sleep(ms(500)).await;
    let instance = cluster.instance(0);
    instance.cut_off();
    assert!(instance.remove("a"));
    instance.resume();
    sleep(ms(FIRST) / 2).await;
    assert!(instance.value("a").is_some() && guard.is_valid() && !waiting.is_finished());
}

/// Its guard is not dropped yet, and nobody would get in for a ttl.
#[tokio::test(start_paused = true)]
async fn what_a_lost_lease_has_left_is_released_beside_its_guard() {
    let (cluster, redlock, guard) = five().await;
    let view = guard.lease();
    let waiting = tokio::spawn(async move { view.lost().await });
    sleep(secs(1)).await;
    cluster.instances().take(3).for_each(|instance| assert!(instance.remove("a")));
    assert!(matches!(waiting.await.unwrap(), Loss::Gone { .. }));
    settle().await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
    assert!(held(&redlock, "a").await.is_valid() && !guard.is_valid());
}

/// What an extend writes ends the watch of the keys.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_deleted_after_an_extend_is_known_to_be_gone_at_once() {
    let (cluster, _redlock, guard) = five().await;
    let view = guard.lease();
    let waiting = tokio::spawn(async move { timed(view.lost()).await }); // who waits has the keys watched
    sleep(secs(1)).await;
    guard.extend().await.unwrap();
    sleep(secs(1)).await;
    cluster.instances().take(3).for_each(|instance| assert!(instance.remove("a")));
    let (loss, took) = waiting.await.unwrap();
    assert!(matches!(loss, Loss::Gone { .. }) && took == secs(2), "{loss:?} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_deleted_on_a_minority_is_repaired_and_goes_on() {
    let (cluster, _redlock, guard) = five().await;
    for round in 0..10 {
        for index in [round % 5, (round + 2) % 5] {
            assert!(cluster.instance(index).remove("a"));
        }
        assert!(timeout(ms(FIRST + 1), guard.lost()).await.is_err(), "round {round}");
        assert_eq!(how_many_have(&cluster, "a"), 5, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn instances_that_are_flushed_one_after_another_do_not_end_a_renewed_lease() {
    let (cluster, _redlock, guard) = five().await;
    for instance in cluster.instances() {
        instance.start(Data::Nothing);
        // After 10 s it may vote again, and is told.
        assert!(timeout(secs(20), guard.lost()).await.is_err());
        assert!(instance.floor() > Some(guard.fencing_token()), "no smaller one is granted there");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_others_have_taken_over_names_them() {
    let (cluster, _redlock, guard) = five().await;
    let other = cluster.builder().label("another-host/7").connect().await.unwrap();
    cluster.instances().for_each(|instance| assert!(instance.remove("a")));
    let _theirs = held(&other, "a").await;
    let loss = guard.lost().await;
    let Loss::TakenOver { by, instances } = &loss else { panic!("{loss:?}") };
    assert_eq!(by.label.as_deref(), Some("another-host/7"));
    assert!(instances.len() >= 3, "{instances:?}");
    assert!(loss.to_string().contains("another-host/7"), "{loss}");
    drop(guard);
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 5, "theirs stays");

    let (cluster, _redlock, guard) = five().await;
    cluster.instances().skip(2).for_each(|instance| instance.set("a", "foreign"));
    let loss = guard.lost().await;
    let Loss::TakenOver { by, instances } = &loss else { panic!("{loss:?}") };
    assert_eq!((by.to_string().as_str(), instances), ("a client of another kind", &addresses(2..5)));
}

/// A minority had refused the acquire, and the keys on the others are deleted.
#[tokio::test(start_paused = true)]
async fn keys_that_are_gone_are_not_taken_over_by_what_a_minority_had_before() {
    for is_renewed in [false, true] {
        let (cluster, redlock) = renewing(3).await;
        cluster.instance(2).set("a", "foreign");
        let guard = held(&redlock, "a").await;
        // The renewal is refused by the same value.
        sleep(if is_renewed { secs(5) } else { secs(1) }).await;
        cluster.instances().take(2).for_each(TestInstance::flush);
        let loss = guard.lost().await;
        let Loss::Gone { instances } = &loss else { panic!("renewed: {is_renewed}; {loss:?}") };
        assert!(instances.len() >= 2 && instances.contains(&"memory:2".to_owned()), "{instances:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_from_most_is_not_taken_over_by_what_one_instance_has() {
    for (foreign_on, is_takeover) in [(1, false), (2, true), (3, true)] {
        let (cluster, redlock) = cluster_of(5).await;
        let guard = held(&redlock, "a").await;
        sleep(secs(1)).await;
        for (index, instance) in cluster.instances().take(3).enumerate() {
            if index < foreign_on { instance.set("a", "foreign") } else { assert!(instance.remove("a")) }
        }
        let loss = guard.lost().await;
        assert_eq!(matches!(loss, Loss::TakenOver { .. }), is_takeover, "{loss:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_others_on_a_minority_do_not_end_a_lease() {
    let (cluster, _redlock, guard) = five().await;
    cluster.instances().take(2).for_each(|instance| instance.set("a", "foreign"));
    assert!(timeout(secs(60), guard.lost()).await.is_err());
    cluster.instance(2).set("a", "foreign");
    assert!(matches!(guard.lost().await, Loss::TakenOver { .. }));
}

#[tokio::test(start_paused = true)]
async fn several_who_wait_are_all_told_the_same_and_so_is_who_asks_later() {
    let (cluster, _redlock, guard) = five().await;
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let lease = guard.lease();
            tokio::spawn(async move { timed(lease.lost()).await })
        })
        .collect();
    sleep(ms(1)).await;
    cluster.instances().for_each(TestInstance::flush);
    for waiting in waiting {
        let (loss, took) = waiting.await.unwrap();
        assert!(matches!(&loss, Loss::Gone { instances } if instances.len() >= 3), "{loss:?}");
        assert_eq!(took, ms(1), "at once");
    }
    let (loss, took) = timed(guard.lost()).await;
    assert!(matches!(loss, Loss::Gone { .. }) && took.is_zero(), "{loss:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_never_comes_back_although_its_keys_do() {
    let (cluster, _redlock, guard) = five().await;
    let value = cluster.instance(0).value("a").unwrap();
    cluster.instances().for_each(TestInstance::flush);
    assert!(matches!(guard.lost().await, Loss::Gone { .. }));
    let sent = cluster.requests().extend;
    cluster.instances().for_each(|instance| instance.set("a", &value));
    for _ in 0..20 {
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(matches!(guard.extend().await, Err(ExtendError::Lost { .. })));
        sleep(secs(1)).await;
    }
    assert!(matches!(guard.lost().await, Loss::Gone { .. }), "the cause stays, too");
    assert_eq!(cluster.requests().extend, sent, "what is lost is not renewed");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_expires_and_has_no_reports() {
    let (_cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    let (loss, took) = timed(guard.lost()).await;
    assert!(matches!(&loss, Loss::Expired { reports } if reports.is_empty()), "{loss:?}");
    assert_eq!(took, ms(9_898));
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_says_what_each_instance_answered_to_the_last_renewal() {
    let (cluster, _redlock, guard) = five().await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    let loss = guard.lost().await;
    let Loss::Expired { reports } = &loss else { panic!("{loss:?}") };
    assert_eq!(reports.len(), 5);
    assert!(loss.to_string().contains("memory:0") && loss.to_string().contains("unreachable"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn a_view_outlives_its_guard_and_its_client_and_says_that_the_lease_was_given_up() {
    for by_drop in [false, true] {
        let (_cluster, redlock, guard) = five().await;
        let view = guard.lease();
        let waiting = tokio::spawn({
            let view = view.clone();
            async move { timed(view.lost()).await }
        });
        sleep(secs(20)).await;
        assert!(view.is_valid() && view.fencing_token() == guard.fencing_token());
        if by_drop {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        drop(redlock);
        assert!(!view.is_valid() && view.remaining().is_zero());
        let (loss, took) = waiting.await.unwrap();
        assert!(matches!(loss, Loss::GivenUp) && took == secs(20), "{loss:?} after {took:?}");
        assert!(matches!(view.lost().await, Loss::GivenUp));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_before_it_was_released_stays_lost_for_its_views() {
    let (cluster, _redlock, guard) = five().await;
    let view = guard.lease();
    cluster.instances().for_each(|instance| assert!(instance.remove("a")));
    sleep(secs(4)).await;
    assert!(!guard.release().await.unwrap().was_still_held);
    assert!(matches!(view.lost().await, Loss::Gone { .. }));
}

#[tokio::test(start_paused = true)]
async fn an_extend_by_hand_finds_a_loss_out_and_wakes_waits_for_it() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    let view = guard.lease();
    let waiting = tokio::spawn(async move { timed(view.lost()).await });
    sleep(secs(1)).await;
    cluster.instances().take(3).for_each(|instance| assert!(instance.remove("a")));
    assert!(matches!(guard.extend().await, Err(ExtendError::Lost { .. })));
    let (loss, took) = waiting.await.unwrap();
    assert!(matches!(loss, Loss::Gone { .. }) && took == secs(1), "{loss:?} after {took:?}");
}
