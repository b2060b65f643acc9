//! P14 to P17: instances that may have forgotten locks do not vote, whatever made them forget.

use std::time::Duration;

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{AcquireError, Admission, AdmissionStatus, ExtendError, Loss, Redlock, Renewal};
use tokio::time::sleep;

use crate::support::{OUT_OF_MEMORY, cluster_of, held, how_many_have, ms, renewing, secs, settle, timed, until_voting};

const ADMISSION_KEY: &str = "redquorum:admission";

/// As long as an instance sits out that may have forgotten something, with what it takes to connect again.
const QUARANTINE: Duration = secs(12);

fn first_three(cluster: &Cluster, happens: impl Fn(&TestInstance)) {
    cluster.instances().take(3).for_each(happens);
}

/// How many instances vote by what the client knows.
fn voting(redlock: &Redlock) -> usize {
    redlock.instances().iter().filter(|known| known.admission == AdmissionStatus::Admitted).count()
}

/// A majority forgets a lock that is held: nobody else gets it while it is valid, and a client does afterwards.
async fn lets_no_second_holder_in(what: &str, forgets: impl Fn(&TestInstance)) {
    let (cluster, one) = cluster_of(5).await;
    let two = cluster.builder().connect().await.unwrap();
    cluster.instances().for_each(TestInstance::save);
    let guard = held(&one, "a").await;
    first_three(&cluster, forgets);
    while guard.is_valid() {
        for client in [&one, &two] {
            let result = client.lock("a").try_acquire().await;
            assert!(result.is_err(), "{what}: two holders, for {:?} more", guard.remaining());
        }
        sleep(ms(250)).await;
    }
    sleep(QUARANTINE).await;
    assert_eq!((voting(&one), voting(&two)), (5, 5), "{what}");
    assert!(two.lock("a").try_acquire().await.is_ok(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_restarted_empty_on_three_of_five_lets_no_second_holder_in() {
    lets_no_second_holder_in("restarted empty", |instance| instance.start(Data::Nothing)).await;
}

#[tokio::test(start_paused = true)]
async fn instances_restarted_with_old_data_let_no_second_holder_in() {
    lets_no_second_holder_in("restarted with old data", |instance| instance.start(Data::Saved)).await;
}

#[tokio::test(start_paused = true)]
async fn instances_that_are_flushed_let_no_second_holder_in() {
    lets_no_second_holder_in("flushed", TestInstance::flush).await;
}

/// Which database it was is not told.
#[tokio::test(start_paused = true)]
async fn a_flush_of_another_database_is_a_quarantine_that_status_and_errors_explain() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instance(0).flush_another_database();
    settle().await;
    assert_eq!(voting(&redlock), 4);
    assert_eq!(redlock.instances()[0].flushed_ago.map(|ago| ago < secs(1)), Some(true));
    drop(held(&redlock, "a").await);
    first_three(&cluster, TestInstance::flush_another_database);
    sleep(secs(2)).await;
    let told = redlock.lock("b").try_acquire().await.unwrap_err().to_string();
    assert!(told.contains("in quarantine, a database of it was flushed 2.") && told.contains("s left"), "{told}");
    sleep(QUARANTINE).await;
    assert_eq!(voting(&redlock), 5);
    drop(held(&redlock, "b").await);
}

/// The record is still there, and the instance grants; the push arrives together with its answer.
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_heard_behind_a_flush_does_not_count_before_the_quarantine_has_begun() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(5)));
    cluster.instances().for_each(TestInstance::flush_another_database);
    let tried = redlock.lock("a").try_acquire().await;
    assert!(matches!(tried, Err(AcquireError::InQuarantine { .. })), "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_promoted_let_no_second_holder_in() {
    for data in [Data::Nothing, Data::Saved] {
        lets_no_second_holder_in("promoted", |instance| instance.promote(data)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn instances_that_were_replicas_for_a_moment_let_no_second_holder_in() {
    lets_no_second_holder_in("resynchronised", |instance| instance.resynchronise(Data::Saved)).await;
}

#[tokio::test(start_paused = true)]
async fn instances_that_load_old_data_while_they_run_let_no_second_holder_in() {
    lets_no_second_holder_in("restored", |instance| instance.restore(Data::Saved)).await;
}

#[tokio::test(start_paused = true)]
async fn instances_whose_clocks_step_forward_let_no_second_holder_in() {
    lets_no_second_holder_in("stepped", |instance| instance.set_clock_forward(secs(11))).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_is_no_loss() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instance(0).set_clock_back(secs(5));
    sleep(secs(30)).await;
    assert!(guard.is_valid());
    assert_eq!(how_many_have(&cluster, "a"), 3);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_vote_yet_is_told_as_in_quarantine() {
    let (cluster, redlock) = cluster_of(5).await;
    first_three(&cluster, |instance| instance.start(Data::Nothing));
    sleep(secs(1)).await;
    let (error, took) = timed(redlock.lock("a").try_acquire()).await;
    let Err(AcquireError::InQuarantine { remaining: Some(remaining), .. }) = error else { panic!("{error:?}") };
    assert!(took.is_zero() && remaining > secs(8) && remaining <= secs(10), "{remaining:?}");
    assert_eq!(voting(&redlock), 2);
    let (guard, took) = timed(redlock.lock("a").acquire()).await;
    assert!(guard.is_ok() && took >= remaining && took <= remaining + secs(1), "{took:?} for {remaining:?}");
}

#[tokio::test(start_paused = true)]
async fn without_admission_a_lock_that_was_forgotten_is_granted_again() {
    let cluster = Cluster::new(5);
    let redlock = cluster.builder().admission(Admission::Off).renew(Renewal::Off).connect().await.unwrap();
    let former = held(&redlock, "a").await;
    first_three(&cluster, |instance| instance.start(Data::Nothing));
    sleep(secs(2)).await; // until they are connected again
    let other = cluster.builder().admission(Admission::Off).connect().await.unwrap();
    assert!(other.lock("a").try_acquire().await.is_ok(), "classic Redlock");
    assert!(former.is_valid());
    assert!(redlock.instances().iter().all(|known| known.admission == AdmissionStatus::Off));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_outlives_restarts_with_all_data_one_after_the_other() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    for instance in cluster.instances() {
        instance.stop();
        sleep(secs(1)).await;
        instance.start(Data::Present);
        sleep(QUARANTINE + secs(4)).await; // until the next renewal
        assert!(guard.is_valid());
        assert_eq!((how_many_have(&cluster, "a"), voting(&redlock)), (3, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_dropped_on_a_majority_ends_the_lease_at_once() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    let view = guard.lease();
    let waiting = tokio::spawn(async move { timed(view.lost()).await });
    sleep(secs(1)).await;
    first_three(&cluster, |instance| assert!(instance.remove("a")));
    let (loss, took) = waiting.await.unwrap();
    assert!(matches!(loss, Loss::Gone { .. }) && took == secs(1), "{loss:?} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_became_a_replica_is_not_used_until_another_is_promoted() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instance(0).demote();
    sleep(secs(4)).await; // a renewal finds out
    let known = redlock.instances().swap_remove(0);
    assert!(!known.connected && known.last_error.is_some_and(|error| error.contains("replica")));
    cluster.instance(0).promote(Data::Present);
    sleep(QUARANTINE + secs(4)).await; // until the next renewal
    assert!(guard.is_valid());
    assert_eq!((how_many_have(&cluster, "a"), voting(&redlock)), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_memory_is_full_gives_no_vote_and_is_used_again() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().skip(1).for_each(|instance| instance.refuse(OUT_OF_MEMORY));
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }) && error.to_string().contains("maxmemory"), "{error}");
    cluster.instances().for_each(TestInstance::resume);
    assert!(redlock.lock("a").acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn scripts_that_were_forgotten_are_loaded_again_and_the_try_is_won() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(TestInstance::forget_scripts);
    let (guard, took) = timed(redlock.lock("a").acquire()).await;
    assert!(guard.is_ok() && took <= ms(100), "{took:?}");
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 3);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_nobody_can_reach_forgets_nothing() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().skip(1).for_each(TestInstance::cut_off);
    assert!(matches!(guard.extend().await, Err(ExtendError::Unconfirmed { .. })));
    cluster.instances().for_each(TestInstance::resume);
    until_voting(&redlock, 3).await;
    assert!(guard.extend().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_a_test_vote_at_once_for_any_first_client() {
    for (max_ttl, admission) in [(secs(10), Admission::On), (ms(500), Admission::On), (secs(60), Admission::Off)] {
        let cluster = Cluster::new(3);
        let builder = cluster.builder().max_ttl(max_ttl).ttl(max_ttl).admission(admission);
        let (redlock, took) = timed(builder.connect()).await;
        let (guard, then) = timed(redlock.unwrap().lock("a").acquire()).await;
        assert!(guard.is_ok() && took + then < secs(1), "{max_ttl:?}, {admission:?}: {took:?}, {then:?}");
    }
}

/// While it was not connected, another client has put the instance into quarantine, and it has voted since.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_older_than_one_that_was_met_when_connecting_lets_nobody_vote() {
    let (cluster, redlock) = cluster_of(1).await;
    let instance = cluster.instance(0);
    instance.save();
    let record = String::from_utf8(instance.value(ADMISSION_KEY).unwrap()).unwrap();
    instance.cut_off();
    settle().await;
    let (written, order) = record.rsplit_once(' ').unwrap();
    instance.set(ADMISSION_KEY, format!("{written} {}", order.parse::<u64>().unwrap() + 1));
    for (restored, voting_then) in [(false, 1), (true, 0)] {
        instance.cut_off();
        settle().await; // until that is noticed
        if restored {
            instance.restore(Data::Saved);
        }
        instance.resume();
        sleep(secs(4)).await; // connected again, and long before a quarantine would end
        assert!(redlock.instances()[0].connected);
        assert_eq!(voting(&redlock), voting_then, "restored: {restored}");
    }
}
