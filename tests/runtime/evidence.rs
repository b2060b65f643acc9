//! P20: all that instances say of a lease counts together, whatever asked them and however late they answer.

use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{ExtendError, Guard, Loss, Redlock};
use tokio::time::sleep;

use crate::support::{cluster_of, held, ms, renewing, secs, until_voting};

async fn five_for_a_second() -> (Cluster, Redlock, Guard) {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(1)).await;
    (cluster, redlock, guard)
}

async fn takes_over(instances: &[&TestInstance]) {
    instances.iter().for_each(|instance| instance.set("a", "foreign"));
    sleep(ms(1)).await;
}

/// Counter-example: seven extends in a row said that the lease is valid still, 139 ms of it beside another
/// holder; each round was looked at alone.
#[tokio::test(start_paused = true)]
async fn refusals_of_rounds_that_were_not_won_count_together() {
    let (cluster, redlock, guard) = five_for_a_second().await;
    takes_over(&[cluster.instance(0), cluster.instance(1)]).await;
    cluster.instance(4).hang(Hang::RequestsLost);
    cluster.instance(3).hang(Hang::RequestsLost);
    let result = guard.extend().await;
    assert!(matches!(result, Err(ExtendError::Unconfirmed { .. })), "{result:?}");
    cluster.instances().for_each(TestInstance::resume);
    cluster.instance(0).cut_off();
    cluster.instance(1).cut_off();
    until_voting(&redlock, 3).await;
    takes_over(&[cluster.instance(2)]).await;
    let result = guard.extend().await;
    assert!(matches!(result, Err(ExtendError::Lost { .. })), "{result:?}");
    assert!(!guard.is_valid());
    let Loss::TakenOver { instances, .. } = guard.lost().await else { panic!("taken over") };
    assert_eq!(instances.len(), 3, "{instances:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_replies_of_an_extend_are_followed() {
    let (cluster, _redlock, guard) = five_for_a_second().await;
    cluster.instances().skip(2).for_each(|instance| assert!(instance.remove("a")));
    cluster.instances().skip(3).for_each(|instance| instance.slow_down(ms(25), ms(25)));
    assert!(guard.extend().await.is_ok(), "two had it and one was repaired");
    assert!(guard.is_valid());
    sleep(ms(51)).await;
    assert!(!guard.is_valid(), "three did not have it");
    assert!(matches!(guard.lost().await, Loss::Gone { .. }));
}

#[tokio::test(start_paused = true)]
async fn the_last_replies_of_an_extend_whose_caller_is_gone_are_followed() {
    let (cluster, _redlock, guard) = five_for_a_second().await;
    cluster.instances().skip(2).for_each(|instance| assert!(instance.remove("a")));
    cluster.instances().for_each(|instance| instance.slow_down(ms(25), ms(25)));
    assert!(tokio::time::timeout(ms(10), guard.extend()).await.is_err());
    sleep(ms(41)).await;
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_acquire_itself_count_however_late_they_come() {
    for late in [ms(0), ms(30)] {
        let (cluster, redlock) = renewing(5).await;
        cluster.instances().take(2).for_each(|instance| {
            instance.set("a", "foreign");
            instance.slow_down(late, ms(0));
        });
        let guard = held(&redlock, "a").await;
        sleep(secs(1)).await;
        assert!(guard.is_valid());
        assert_eq!(guard.redundancy().held_on, 3);
        cluster.instances().take(2).for_each(TestInstance::cut_off); // they say no more
        assert!(cluster.instance(2).remove("a"));
        sleep(ms(2_400)).await;
        assert!(!guard.is_valid(), "{late:?}: the lease rested on three, and one of them has lost it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_says_on_how_many_instances_it_rests() {
    let (cluster, redlock) = renewing(5).await;
    cluster.instance(0).cut_off();
    cluster.instance(1).slow_down(ms(20), ms(20));
    let guard = held(&redlock, "a").await;
    let redundancy = guard.redundancy();
    assert_eq!((redundancy.held_on, redundancy.instances, redundancy.quorum, redundancy.spare()), (3, 5, 3, 0));
    sleep(ms(41)).await;
    assert_eq!((guard.redundancy().held_on, guard.lease().redundancy().spare()), (4, 1));
    cluster.instance(0).resume();
    sleep(secs(4)).await;
    assert_eq!(guard.redundancy().held_on, 5, "the renewal has set it there");
    cluster.instance(2).cut_off();
    sleep(secs(4)).await;
    assert_eq!(guard.redundancy().held_on, 4);
}

/// Until the others are asked again, they may have lost the key before the one that was repaired had it.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_set_again_is_followed_by_a_renewal_soon_so_that_the_next_instance_may_lose_it() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().without_watched_keys().connect().await.unwrap();
    cluster.instances().for_each(|instance| instance.slow_down(ms(5), ms(5)));
    let guard = held(&redlock, "a").await;
    for instance in (0..9).map(|turn| cluster.instance(turn % 3)) {
        assert!(instance.remove("a"));
        sleep(ms(3_325 + 1_000 + 25)).await; // a renewal, and the one that follows
        assert!(guard.is_valid() && instance.value("a").is_some());
    }
}

/// Where keys are watched, which those of a lease are that is renewed.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_set_again_is_followed_by_a_check_of_all_so_that_the_next_instance_may_lose_it_at_once() {
    let (cluster, redlock) = renewing(3).await;
    for (instance, way) in cluster.instances().zip([20, 5, 10]) {
        instance.slow_down(ms(way), ms(way));
    }
    let guard = held(&redlock, "a").await;
    sleep(secs(4)).await;
    for instance in (0..9).map(|turn| cluster.instance(turn % 3)) {
        assert!(instance.remove("a"));
        while instance.value("a").is_none() {
            assert!(guard.is_valid());
            sleep(ms(1)).await;
        }
        sleep(ms(80)).await; // the answer, and what the others say then
        assert!(guard.is_valid());
    }
}
