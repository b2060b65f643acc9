//! What is logged of the end of a lease: once, as a warning, with the cause.

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{Loss, Redlock};
use tokio::time::sleep;
use tracing::Level;

use crate::events::{listen, told};
use crate::support::{cluster_of, held, ms, renewing, secs, settle};

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_is_told_once_and_why() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    sleep(secs(20)).await;
    drop((guard.lost().await, guard));
    let lines = told();
    let [failed, line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(failed.starts_with("not renewed, will be tried again") && failed.contains("unreachable"), "{failed}");
    assert!(line.contains("validity has passed") && line.contains("resource=\"a\""), "{line}");
    assert!(line.contains("held_for=9.8") && line.contains("ttl=10s") && line.contains("token="), "{line}");
    assert!(
        line.contains("memory:0")
            && line.contains("memory:2")
            && !line.contains("memory:3")
            && line.contains("unreachable"),
        "{line}"
    );

    let (_cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(20)).await;
    drop((guard.lost().await, guard));
    let lines = told();
    assert_eq!(lines, [""; 0], "it was to end, and is not renewed");
    assert_eq!(redlock.stats().lost_by_expiry, 1);

    let (_cluster, redlock) = renewing(3).await;
    let guard = redlock.lock("a").max_hold(secs(5)).try_acquire().await.unwrap();
    sleep(secs(20)).await;
    assert!(matches!(guard.lost().await, Loss::MaxHold));
    drop(guard);
    let lines = told();
    assert!(matches!(lines.as_slice(), [line] if line.contains("as long as its max_hold allows")), "{lines:?}");
    assert_eq!((redlock.stats().lost_by_expiry, redlock.stats().lost_by_max_hold), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_is_told_once_and_one_that_is_given_up_is_not() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    held(&redlock, "a").await.release().await.unwrap();
    drop(held(&redlock, "b").await);
    sleep(secs(20)).await;
    assert_eq!(told(), [""; 0]);
    let guard = held(&redlock, "c").await;
    sleep(secs(1)).await;
    cluster.instances().for_each(|instance| assert!(instance.remove("c")));
    sleep(secs(20)).await;
    drop(guard);
    let lines = told();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("no quorum can have kept it") && line.contains("held_for="), "{line}");
    assert!(line.contains("on=\"memory:0, memory:1"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn the_first_renewal_that_fails_is_told_and_no_other_until_one_succeeds() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    for outage in 1..3 {
        cluster.instances().take(2).for_each(TestInstance::cut_off);
        sleep(secs(5)).await;
        let lines = told();
        let [line] = lines.as_slice() else { panic!("{outage}: {lines:?}") };
        assert!(line.starts_with("not renewed, will be tried again"), "{line}");
        assert!(
            line.contains("resource=\"a\"") && line.contains("remaining=6.") && line.contains("memory:0"),
            "{line}"
        );
        cluster.instances().for_each(TestInstance::resume);
        sleep(secs(10)).await;
        assert!(guard.is_valid() && told().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_leases_that_are_not_renewed_do_not_flood_the_log() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    let names: Vec<String> = (0..300).map(|number| format!("a:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(held(&redlock, name).await);
    }
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    sleep(secs(5)).await;
    let lines = told();
    let failed = lines.iter().filter(|line| line.starts_with("not renewed, will be tried again")).count();
    assert_eq!(failed, 16, "in ten seconds");
}

/// Counter-example: 185 warnings a second, where leases were lost again and again.
#[tokio::test(start_paused = true)]
async fn leases_that_are_lost_all_the_time_do_not_flood_the_log_and_are_counted() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    let mut lost = 0;
    for _ in 0..600 {
        let guard = held(&redlock, "a").await;
        cluster.instances().for_each(|instance| assert!(instance.remove("a")));
        guard.lost().await;
        lost += 1;
        sleep(ms(50)).await;
    }
    let lines = told();
    let counts = lines.iter().map(|line| {
        assert!(line.starts_with("lease lost: no quorum can have kept it"), "{line}");
        line.rsplit_once("times=").unwrap().1.parse::<u64>().unwrap()
    });
    let counts: Vec<u64> = counts.collect();
    assert_eq!(counts.len(), 3 * 16, "in thirty seconds");
    assert_eq!(redlock.stats().lost_by_deletion, lost);
    assert_eq!(
        counts.iter().filter(|count| **count > 1).count(),
        2,
        "each ten seconds tell what was left out: {counts:?}"
    );
    assert!(counts.iter().sum::<u64>() > 2 * lost / 3, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_for_long_without_a_bound_is_told_once() {
    listen(Level::WARN);
    let (_cluster, redlock) = renewing(3).await;
    let guards = [held(&redlock, "a").await, redlock.lock("b").max_hold(secs(3_000)).acquire().await.unwrap()];
    sleep(secs(999)).await;
    assert_eq!(told(), [""; 0]);
    sleep(secs(1_000)).await;
    let lines = told();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("held for long") && line.contains("resource=\"a\"") && line.contains("held_for=100"));
    drop(guards);

    let lock = redlock.lock("c");
    let first = lock.acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire());
    sleep(secs(900)).await;
    drop(first);
    let _next = next.await.unwrap().unwrap();
    sleep(secs(900)).await;
    assert_eq!(told(), [""; 0], "it counts for each guard anew");
    sleep(secs(200)).await;
    let lines = told();
    assert!(matches!(lines.as_slice(), [line] if line.starts_with("held for long")), "{lines:?}");
}

/// After a flush it said that admission was renewed, and in a quarantine at a connect nothing.
#[tokio::test(start_paused = true)]
async fn a_quarantine_is_told_with_its_cause_and_its_time_and_when_it_is_over() {
    listen(Level::INFO);
    let (cluster, redlock): (Cluster, Redlock) = renewing(3).await;
    drop(held(&redlock, "a").await);
    settle().await;
    drop(told());
    let of_first = || {
        let quarantines = |line: &String| line.contains("quarantine") && line.contains("memory:0");
        told().into_iter().filter(quarantines).collect::<Vec<_>>()
    };
    for (disturb, why) in [
        (TestInstance::flush as fn(&TestInstance), "a database of it was flushed"),
        (|instance: &TestInstance| instance.start(Data::Nothing), "it may have forgotten some"),
    ] {
        disturb(cluster.instance(0));
        sleep(secs(3)).await;
        let lines = of_first();
        let [line] = lines.as_slice() else { panic!("{why}: {lines:?}") };
        assert!(line.starts_with("in quarantine, it grants no locks") && line.contains(why), "{line}");
        assert!(line.contains("remaining=9.") || line.contains("remaining=10s"), "{line}");
        sleep(secs(9)).await;
        let lines = of_first();
        assert!(matches!(lines.as_slice(), [line] if line.starts_with("its quarantine is over")), "{why}: {lines:?}");
        sleep(secs(30)).await;
        assert_eq!(of_first(), [""; 0]);
    }
}
