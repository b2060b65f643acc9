//! P7: releasing.

use redquorum::testing::{Hang, TestInstance};
use redquorum::{InstanceAnswer, ReleaseError};

use crate::support::{cluster_of, hang_first, held, how_many_have, ms, secs, settle, timed};

#[tokio::test(start_paused = true)]
async fn a_release_leaves_nothing_behind() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    assert_eq!(cluster.keys(), ["a"]);
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn releasing_an_expired_or_lost_lock_is_no_error_and_deletes_nobody_elses() {
    let (cluster, redlock) = cluster_of(3).await;
    let old = held(&redlock, "a").await;
    tokio::time::sleep(secs(10)).await;
    let new = held(&redlock, "a").await;
    assert!(!old.release().await.unwrap().was_still_held);
    assert_eq!(how_many_have(&cluster, "a"), 3);
    assert!(new.release().await.unwrap().was_still_held);

    let flushed = held(&redlock, "a").await;
    cluster.instances().for_each(TestInstance::flush);
    assert!(!flushed.release().await.unwrap().was_still_held);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrived_after_the_win_is_released_with_the_lease() {
    let (cluster, redlock) = cluster_of(5).await;
    hang_first(&cluster, 2, Hang::RepliesLost);
    let guard = held(&redlock, "a").await;
    assert_eq!(how_many_have(&cluster, "a"), 5);
    guard.release().await.unwrap();
    tokio::time::sleep(ms(5)).await; // behind an answer that does not come it is sent a moment later
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hung_instance_that_goes_on_carries_the_release_out_behind_the_acquire() {
    let (cluster, redlock) = cluster_of(5).await;
    hang_first(&cluster, 2, Hang::Stopped);
    let guard = held(&redlock, "a").await;
    guard.release().await.unwrap();
    assert_eq!(how_many_have(&cluster, "a"), 0);
    cluster.instances().for_each(TestInstance::resume);
    settle().await;
    assert!(cluster.keys().is_empty());
    assert_eq!(cluster.instance(0).requests().acquire, 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lacks_one_answer_is_unconfirmed_and_not_a_loss() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(2).for_each(|instance| assert!(instance.set_if_absent("a", "foreign", ms(100))));
    let guard = held(&redlock, "a").await; // by the other three
    cluster.instance(4).cut_off();
    let Err(ReleaseError::Unconfirmed { reports }) = guard.release().await else {
        panic!("two deleted, one may have had it");
    };
    let said = |wanted| reports.iter().filter(|report| report.answer == wanted).count();
    assert_eq!((said(InstanceAnswer::Deleted), said(InstanceAnswer::Absent)), (2, 2), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_with_most_instances_down_is_unconfirmed_also_while_others_have_not_answered() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    cluster.instances().skip(3).for_each(|instance| instance.slow_down(ms(10), ms(10)));
    let (result, took) = timed(guard.release()).await;
    assert!(matches!(result, Err(ReleaseError::Unconfirmed { .. })), "{result:?}");
    assert_eq!(took, ms(0));
}

/// It is sent again where the scripts were missing, and nowhere else.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_for_scripts_counts_what_it_has_deleted() {
    for (count, without_scripts) in [(2, 1), (4, 2), (3, 1)] {
        let (cluster, redlock) = cluster_of(count).await;
        let guard = held(&redlock, "a").await;
        settle().await;
        cluster.instances().take(without_scripts).for_each(TestInstance::forget_scripts);
        if count == 3 {
            cluster.instances().skip(2).for_each(|instance| assert!(instance.remove("a")));
        }
        assert!(guard.release().await.unwrap().was_still_held, "{count}");
        assert!(cluster.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_for_scripts_does_not_deny_what_an_instance_did_not_tell_in_time() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    guard.extend().await.unwrap();
    settle().await;
    cluster.instance(0).forget_scripts();
    assert!(cluster.instance(0).remove("a"));
    cluster.instance(2).hang(Hang::Stopped);
    let resumed = async {
        tokio::time::sleep(ms(300)).await;
        cluster.instance(2).resume();
    };
    let (released, ()) = tokio::join!(guard.release(), resumed);
    assert!(matches!(released, Err(ReleaseError::Unconfirmed { .. })), "{released:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_repeated_for_scripts_waits_for_what_an_outstanding_answer_may_say() {
    let (cluster, redlock) = cluster_of(4).await;
    let guard = held(&redlock, "a").await;
    guard.extend().await.unwrap();
    settle().await;
    cluster.instances().take(2).for_each(TestInstance::forget_scripts);
    cluster.instances().skip(2).for_each(|instance| instance.slow_down(ms(20), ms(20)));
    let (released, took) = timed(guard.release()).await;
    assert!(released.unwrap().was_still_held);
    assert_eq!(took, ms(40), "two are no quorum of four");
    tokio::time::sleep(ms(40)).await;
    assert!(cluster.keys().is_empty());
}
