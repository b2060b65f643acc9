//! P10: an instance in quarantine grants nothing new, and keeps what it has.

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{AdmissionStatus, ExtendError, Guard, Redlock};
use tokio::time::sleep;

use crate::support::{cluster_of, held, how_many_have, ms, renewing, secs, settle, until_voting};

fn in_quarantine(redlock: &Redlock) -> usize {
    let waits = |admission: &AdmissionStatus| matches!(admission, AdmissionStatus::Quarantine(_));
    redlock.instances().iter().filter(|known| waits(&known.admission)).count()
}

fn first_three(cluster: &Cluster, happens: impl Fn(&TestInstance)) {
    cluster.instances().take(3).for_each(happens);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_outlives_flushes_of_another_database_on_all_instances() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    for _ in 0..12 {
        cluster.instances().for_each(TestInstance::flush_another_database);
        sleep(secs(3)).await;
        assert!(guard.is_valid());
    }
    assert_eq!((in_quarantine(&redlock), how_many_have(&cluster, "a")), (5, 5));
    assert!(redlock.lock("b").try_acquire().await.is_err(), "nothing new is granted");
    until_voting(&redlock, 5).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_outlives_a_step_of_the_clock_of_one_instance_after_the_other() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    for instance in cluster.instances() {
        instance.set_clock_forward(secs(5));
        sleep(secs(2)).await;
        assert!(guard.is_valid());
    }
    assert_eq!(in_quarantine(&redlock), 5);
    sleep(secs(12)).await;
    assert!(guard.is_valid());
    assert_eq!(how_many_have(&cluster, "a"), 5);
}

/// A majority goes on as another process, or after a time as a replica, with all of its data.
async fn keeps_nothing(happens: impl Fn(&TestInstance)) {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(TestInstance::save);
    first_three(&cluster, happens);
    sleep(secs(2)).await;
    assert_eq!((in_quarantine(&redlock), how_many_have(&cluster, "a")), (3, 5));
    let extended = guard.extend().await;
    assert!(matches!(extended, Err(ExtendError::Unconfirmed { .. })), "{extended:?}");
    assert!(guard.is_valid(), "until it runs out");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_restarted_with_all_data_keeps_no_lease() {
    keeps_nothing(|instance| instance.start(Data::Present)).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_a_replica_in_between_keeps_no_lease() {
    keeps_nothing(|instance| instance.resynchronise(Data::Saved)).await;
}

/// What a lease rests on after a flush of another database is forgotten in the quarantine.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_missing_in_quarantine_is_not_set_and_ends_the_lease() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let first_two = || cluster.instances().take(2);
    first_two().for_each(TestInstance::flush_another_database);
    sleep(secs(4)).await; // a renewal
    assert!(guard.is_valid());
    first_two().for_each(|instance| assert!(instance.remove("a")));
    sleep(secs(4)).await;
    assert!(!guard.is_valid(), "at one moment only one of three had it");
    assert_eq!(how_many_have(&cluster, "a"), 0);
}

/// The vote of the acquire is older than the ttl: nobody knows what became of the key meanwhile.
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_older_than_the_ttl_keeps_nothing() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    let value = cluster.instance(0).value("a").unwrap();
    // Two instances hear no extend, and another program sets the key there again when it has expired.
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    sleep(secs(6)).await;
    guard.extend().await.unwrap();
    sleep(secs(5)).await;
    cluster.instances().take(2).for_each(|instance| instance.set("a", value.clone()));
    cluster.instances().for_each(TestInstance::resume);
    until_voting(&redlock, 5).await;
    cluster.instances().for_each(TestInstance::flush_another_database);
    settle().await;
    sleep(ms(100)).await;
    guard.extend().await.unwrap();
    assert_eq!(in_quarantine(&redlock), 5);
    assert!(cluster.instance(2).remove("a"));
    let extended = guard.extend().await;
    assert!(matches!(extended, Err(ExtendError::Unconfirmed { .. })), "two of five keep it: {extended:?}");
}

/// This client has no earlier vote for it.
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_attached_in_quarantine() {
    let (cluster, redlock) = cluster_of(3).await;
    let detached = held(&redlock, "a").await.detach();
    cluster.instances().for_each(TestInstance::flush_another_database);
    settle().await;
    assert_eq!(in_quarantine(&redlock), 3);
    let attached = redlock.attach(&detached).await;
    assert!(matches!(attached, Err(ExtendError::Unconfirmed { .. })), "{attached:?}");
    assert_eq!(how_many_have(&cluster, "a"), 3);
}

/// The lease is the same: its next guard has what instances have voted for the first one.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_handed_over_is_kept() {
    let (cluster, redlock) = renewing(3).await;
    let first = held(&redlock, "a").await;
    let next = tokio::spawn(redlock.lock("a").acquire());
    sleep(ms(100)).await;
    cluster.instances().for_each(TestInstance::flush_another_database);
    settle().await;
    drop(first);
    let next: Guard = next.await.unwrap().unwrap();
    assert_eq!(in_quarantine(&redlock), 3);
    sleep(secs(9)).await;
    next.extend().await.unwrap();
}
