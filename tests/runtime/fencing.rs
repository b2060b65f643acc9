//! P12: fencing tokens.

use redquorum::testing::TestInstance;
use redquorum::{AcquireError, FencingToken};

use crate::support::{cluster_of, held, ms, secs, settle};

#[tokio::test(start_paused = true)]
async fn a_client_whose_wall_clock_is_behind_takes_exactly_one_more_round_and_only_once() {
    let (cluster, ahead) = cluster_of(5);
    let behind = cluster.builder_with_wall_clock_behind(secs(3600)).build().unwrap();
    let first = held(&ahead, "a").await;
    let token = first.fencing_token();
    first.release().await.unwrap();
    assert_eq!(cluster.requests().acquire, 5);

    let second = held(&behind, "a").await;
    assert_eq!(cluster.requests().acquire, 15);
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
    assert_eq!(cluster.requests().acquire, 15);

    let third = held(&behind, "a").await;
    assert_eq!(cluster.requests().acquire, 20, "it has learnt");
    assert!(third.fencing_token() > token);
    drop(third);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stale_minority_costs_no_second_round() {
    let (cluster, redlock) = cluster_of(5);
    let far = FencingToken::from_number(1 << 62).unwrap();
    for index in 0..2 {
        cluster.instance(index).set("redquorum:fence:a", far.to_wire());
    }
    let guard = held(&redlock, "a").await;
    assert_eq!(cluster.requests().acquire, 5);
    assert!(guard.fencing_token() < far);
}

#[tokio::test(start_paused = true)]
async fn every_instance_stores_the_token_of_the_won_round() {
    let (cluster, redlock) = cluster_of(5);
    let guard = held(&redlock, "a").await;
    let stored = |instance: &TestInstance| instance.fencing_token("a") == Some(guard.fencing_token());
    assert!(cluster.instances().all(stored));
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_holders_and_clients_and_restarts_that_keep_a_quorum() {
    let (cluster, one) = cluster_of(5);
    let two = cluster.builder_with_wall_clock_behind(secs(60)).build().unwrap();
    let mut last = None;
    for step in 0..20 {
        let client = if step % 2 == 0 { &one } else { &two };
        let guard = held(client, "a").await;
        assert!(Some(guard.fencing_token()) > last, "step {step}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        // One instance forgets, the next holder's grants tell it again.
        cluster.instance(step % 5).start_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_with_the_largest_possible_token_stays_refused_without_a_panic() {
    let (cluster, redlock) = cluster_of(3);
    for instance in cluster.instances() {
        instance.set("redquorum:fence:a", "9223372036854775807");
    }
    let result = redlock.lock("a").try_acquire().await;
    assert!(matches!(result, Err(AcquireError::Stale)), "{result:?}");
    settle().await;
    assert!(cluster.keys().is_empty());
}

/// The first send sets the key on an instance that is down at the repeat, which is then won or lost.
#[tokio::test(start_paused = true)]
async fn an_instance_that_only_the_first_send_reached_is_released_too() {
    for repeat_is_won in [true, false] {
        let (cluster, ahead) = cluster_of(3);
        let behind = cluster.builder_with_wall_clock_behind(secs(60)).build().unwrap();
        let only_once = cluster.instance(0);
        only_once.stop();
        held(&ahead, "a").await.release().await.unwrap();
        only_once.start();
        cluster.instances().skip(1).for_each(|instance| instance.slow_down(ms(50), ms(0)));
        let breaking = cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(20)).await;
            breaking.instance(0).stop();
            if !repeat_is_won {
                tokio::time::sleep(ms(40)).await;
                breaking.instance(1).stop();
            }
        });
        let result = behind.lock("a").try_acquire().await;
        assert_eq!(result.is_ok(), repeat_is_won);
        drop(result);
        tokio::time::sleep(ms(500)).await;
        cluster.instances().for_each(TestInstance::start);
        assert_eq!(only_once.keys(), ["a"]);
        tokio::time::sleep(ms(300)).await;
        assert!(cluster.keys().is_empty(), "repeat won: {repeat_is_won}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_refused_has_learnt_the_holders_token() {
    let (cluster, ahead) = cluster_of(3);
    let behind = cluster.builder_with_wall_clock_behind(secs(60)).build().unwrap();
    let guard = held(&ahead, "a").await;
    assert!(behind.lock("a").try_acquire().await.is_err());
    guard.release().await.unwrap();
    let asked = cluster.requests().acquire;
    let _guard = held(&behind, "a").await;
    assert_eq!(cluster.requests().acquire - asked, 3, "one round");
}
