//! P5, P6: what may have been set is released, also later; pending releases are sent again, and a shutdown waits for them.

use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{AcquireError, Admission};

use crate::support::{TIMEOUT, cluster_of, hang_first, held, how_many_have, ms, secs, settle, timed, until_voting};

#[tokio::test(start_paused = true)]
async fn grants_that_arrive_after_a_loss_are_released_at_once() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(3).for_each(|instance| assert!(instance.set_if_absent("a", "foreign", ms(100))));
    cluster.instances().skip(3).for_each(|instance| instance.slow_down(ms(150), ms(0)));
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(result.is_err() && took.is_zero());
    tokio::time::sleep(ms(149)).await;
    assert_eq!(how_many_have(&cluster, "a"), 0);
    tokio::time::sleep(ms(7)).await;
    assert_eq!(how_many_have(&cluster, "a"), 0, "released right behind, without waiting for the answer");
    assert_eq!(cluster.instance(4).requests().release, 1);
}

#[tokio::test(start_paused = true)]
async fn what_refused_a_try_is_sent_no_release() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().for_each(|instance| assert!(instance.set_if_absent("a", "foreign", ms(100))));
    cluster.instance(3).slow_down(ms(1), ms(1));
    cluster.instance(4).lose_replies(1);
    assert!(redlock.lock("a").try_acquire().await.is_err());
    tokio::time::sleep(secs(1)).await;
    let releases: Vec<_> = cluster.instances().map(|instance| instance.requests().release).collect();
    assert_eq!(releases, [0, 0, 0, 0, 1], "only where it is not known what became of the try");
}

#[tokio::test(start_paused = true)]
async fn unknown_replies_are_released_after_a_loss() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instances().take(3).for_each(|instance| instance.lose_replies(1));
    let result = redlock.lock("a").try_acquire().await;
    assert!(matches!(result, Err(AcquireError::NoQuorum { .. })), "{result:?}");
    until_voting(&redlock, 5).await;
    tokio::time::sleep(ms(200)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_acquire_that_is_carried_out_late_is_released_behind_it() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(700), ms(0)));
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(result.is_err());
    assert_eq!(took, TIMEOUT);
    let mut taken = 0;
    for _ in 0..100 {
        tokio::time::sleep(ms(10)).await;
        taken += usize::from(!cluster.keys().is_empty());
    }
    // The release is sent when the acquire has timed out.
    assert!((1..=21).contains(&taken), "for {taken} times 10 ms");
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_arrives_behind_its_own_release_sets_nothing() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
    let breaking = cluster.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ms(10)).await;
        breaking.instances().for_each(|instance| instance.break_connections(ms(500)));
    });
    let (result, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(matches!(result, Err(AcquireError::NoQuorum { .. })), "{result:?}");
    assert_eq!(took, ms(10));
    for _ in 0..70 {
        tokio::time::sleep(ms(10)).await;
        assert!(cluster.keys().is_empty());
    }
    cluster.instances().for_each(TestInstance::resume);
    assert!(redlock.lock("a").try_acquire().await.is_ok(), "the next try proposes a larger token");
}

#[tokio::test(start_paused = true)]
async fn a_debt_is_paid_when_the_instance_comes_back_before_the_key_expires() {
    for how in [None, Some(Hang::Stopped), Some(Hang::RequestsLost)] {
        let (cluster, redlock) = cluster_of(3).await;
        let guard = held(&redlock, "a").await;
        let instance = cluster.instance(0);
        how.map_or_else(|| instance.cut_off(), |how| instance.hang(how));
        drop(guard);
        tokio::time::sleep(secs(5)).await;
        instance.resume();
        assert_eq!(instance.keys(), ["a"], "it has it still");
        until_voting(&redlock, 3).await;
        tokio::time::sleep(ms(110)).await; // one pause between two tries, which may just have begun
        assert!(cluster.keys().is_empty(), "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_by_hand_is_sent_again_where_it_could_not_be_sent() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instance(0).cut_off();
    settle().await; // so that nothing is sent there
    assert!(guard.release().await.unwrap().was_still_held);
    cluster.instance(0).resume();
    assert_eq!(cluster.instance(0).keys(), ["a"], "it has it still");
    until_voting(&redlock, 3).await;
    tokio::time::sleep(ms(110)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_debt_is_forgotten_once_the_key_has_expired() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instance(0).cut_off();
    drop(guard);
    tokio::time::sleep(secs(22)).await;
    assert_eq!(redlock.shutdown(ms(0)).await, Ok(Vec::new()));
    let released = cluster.instance(0).requests().release;
    cluster.instance(0).resume();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(cluster.instance(0).requests().release, released);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_names_what_it_could_not_release() {
    let (cluster, redlock) = cluster_of(5).await;
    let guards = [held(&redlock, "a").await, held(&redlock, "b").await];
    cluster.instance(1).cut_off();
    cluster.instance(3).hang(Hang::Stopped);
    drop(guards);
    let (result, took) = timed(redlock.shutdown(secs(10))).await;
    assert!(took <= secs(1), "those out of reach are not waited for: {took:?}");
    let left = result.unwrap(); // a quorum has confirmed both
    let left: Vec<_> = left.iter().map(|left| (left.address.as_str(), left.releases, left.cause.is_some())).collect();
    assert_eq!(left, [("memory:1", 2, true), ("memory:3", 2, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_an_error_where_a_lock_may_still_be_held() {
    let (cluster, redlock) = cluster_of(3).await;
    let (other, guard) = (held(&redlock, "a").await, held(&redlock, "b").await);
    cluster.instance(0).cut_off();
    drop(other);
    settle().await; // all but one have confirmed that
    cluster.instance(1).hang(Hang::Stopped);
    drop(guard);
    let error = redlock.shutdown(secs(10)).await.unwrap_err();
    let left: Vec<_> = error.unreleased.iter().map(|left| (left.address.as_str(), left.releases)).collect();
    assert_eq!(left, [("memory:0", 2), ("memory:1", 1)]);
    assert!(error.to_string().contains("until it expires: memory:0 has 2 pending ("), "{error}");
    assert!(error.to_string().contains("; memory:1 has 1 pending (silent: "), "{error}");
    cluster.instance(1).resume();
    until_voting(&redlock, 2).await;
    let left = redlock.shutdown(secs(10)).await.unwrap();
    assert_eq!(left.len(), 1, "a quorum has confirmed both: {left:?}");
    tokio::time::sleep(secs(22)).await;
    assert_eq!(redlock.shutdown(ms(0)).await, Ok(Vec::new()), "what was left has expired");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drains() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(70), ms(30)));
    drop(guard);
    let (result, took) = timed(redlock.shutdown(secs(1))).await;
    assert_eq!((result, took), (Ok(Vec::new()), ms(100)));
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_held_across_a_shutdown_releases_nothing_any_more() {
    let (cluster, redlock) = cluster_of(3).await;
    let guards = [held(&redlock, "a").await, held(&redlock, "b").await];
    assert_eq!(redlock.shutdown(secs(1)).await, Ok(Vec::new()));
    assert!(cluster.keys().is_empty());
    let sent = cluster.requests().release;
    let [released, dropped] = guards;
    assert!(!released.release().await.unwrap().was_still_held);
    drop(dropped);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(cluster.requests().release, sent);
}

#[tokio::test(start_paused = true)]
async fn a_hung_instance_does_not_pile_up_requests() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 1, Hang::Stopped);
    for _ in 0..500 {
        held(&redlock, "a").await.release().await.unwrap();
        tokio::time::sleep(ms(10)).await;
    }
    // What is sent within one instance timeout, until the instance is known to be silent.
    assert!(cluster.instance(0).requests().total() <= 2 * 25, "{:?}", cluster.instance(0).requests());
}

#[tokio::test(start_paused = true)]
async fn an_extend_that_arrives_behind_its_own_release_sets_nothing() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
    assert!(tokio::time::timeout(ms(10), guard.extend()).await.is_err());
    cluster.instances().for_each(|instance| instance.break_connections(ms(500)));
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
    until_voting(&redlock, 3).await;
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
    for _ in 0..70 {
        tokio::time::sleep(ms(10)).await;
        assert!(cluster.keys().is_empty());
    }
}

/// P33: the release of a reader leaves no tombstone. Nothing is late, as the broken connections are ended first (P28); without admission,
/// where they are not, a renewal that is late puts the reader back, for a ttl.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_behind_the_release_of_its_reader_is_kept_out_with_its_connection() {
    let ttl = secs(2);
    for (admission, comes_back) in [(Admission::On, false), (Admission::Off, true)] {
        let cluster = Cluster::new(3);
        let redlock = cluster.builder().ttl(ttl).admission(admission).connect().await.unwrap();
        let guard = redlock.rw_lock("a").try_read().await.unwrap();
        cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
        assert!(tokio::time::timeout(ms(10), guard.extend()).await.is_err());
        cluster.instances().for_each(|instance| instance.break_connections(ms(500)));
        cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
        settle().await; // so that connections which are broken are known to be
        assert!(redlock.wait_connected(secs(1)).await.is_ok());
        tokio::time::sleep(ms(200)).await;
        assert!(guard.release().await.unwrap().was_still_held);
        assert!(cluster.keys().is_empty());
        tokio::time::sleep(ms(500)).await;
        assert_eq!(!cluster.keys().is_empty(), comes_back, "{admission:?}");
        let other = cluster.builder().admission(admission).connect().await.unwrap();
        let (written, took) = timed(other.rw_lock("a").write()).await;
        let longest = if comes_back { ttl + secs(1) } else { ms(0) }; // the last pause of a waiter (P27)
        assert!(written.is_ok() && took <= longest, "{admission:?}: {took:?}");
    }
}

/// P6: the tombstone is as old as the release, however long the lease was held, and its token may be below the floor (P13).
#[tokio::test(start_paused = true)]
async fn the_tombstone_of_a_lease_that_was_held_for_longer_than_tokens_are_kept_stops_what_is_late() {
    let ttl = secs(2);
    for (admission, held_for) in [(Admission::Off, 1), (Admission::Off, 200), (Admission::On, 200)] {
        let cluster = Cluster::new(3);
        let redlock = cluster.builder().ttl(ttl).max_ttl(ttl).admission(admission).connect().await.unwrap();
        let guard = held(&redlock, "a").await;
        tokio::time::sleep(secs(held_for)).await;
        let is_forgotten = cluster.instances().all(|instance| instance.floor() > Some(guard.fencing_token()));
        assert_eq!(is_forgotten, held_for > 100);
        cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
        assert!(tokio::time::timeout(ms(10), guard.extend()).await.is_err());
        cluster.instances().for_each(|instance| instance.break_connections(ms(2_500)));
        cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
        settle().await; // so that connections which are broken are known to be
        assert!(redlock.wait_connected(secs(1)).await.is_ok());
        assert!(guard.release().await.unwrap().was_still_held);
        // What is late meets a later lease's token, too.
        held(&redlock, "a").await.release().await.unwrap();
        tokio::time::sleep(ms(2_700)).await;
        assert!(cluster.keys().is_empty(), "{admission:?}, held for {held_for} s");
    }
}

/// The first copy is granted on one instance, the others are stale, the repeat is under way when the
/// connections break: the release deletes the first copy and must still stop the repeat.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_arrives_behind_the_release_of_its_first_copy_sets_nothing() {
    let (cluster, ahead) = cluster_of(3).await;
    cluster.instance(0).cut_off();
    ahead.lock("a").try_acquire().await.unwrap().release().await.unwrap();
    cluster.instance(0).resume();
    let behind = cluster.builder_with_wall_clock_behind(secs(3600)).connect().await.unwrap();
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
    let breaking = cluster.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ms(60)).await;
        assert_eq!(breaking.instance(0).keys(), ["a"], "the first copy");
        breaking.instances().for_each(|instance| instance.break_connections(ms(500)));
        breaking.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
    });
    let result = behind.lock("a").try_acquire().await;
    assert!(matches!(result, Err(AcquireError::NoQuorum { .. })), "{result:?}");
    until_voting(&behind, 3).await;
    tokio::time::sleep(ms(200)).await;
    for _ in 0..70 {
        tokio::time::sleep(ms(10)).await;
        assert!(cluster.keys().is_empty());
    }
}

/// P28: the second breaks at each step of its login, so also when what it asks to end the first with is lost.
#[tokio::test(start_paused = true)]
async fn nothing_comes_late_over_any_of_several_connections_that_broke() {
    for second_hears_until in (20..500).step_by(20) {
        let (cluster, redlock) = cluster_of(3).await;
        cluster.instances().for_each(|instance| instance.slow_down(secs(3), ms(0)));
        let breaking = cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(10)).await;
            breaking.instances().for_each(|instance| instance.break_connections(ms(0)));
            breaking.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
            tokio::time::sleep(ms(second_hears_until)).await;
            breaking.instances().for_each(|instance| instance.hang(Hang::RequestsLost));
            tokio::time::sleep(ms(60)).await;
            breaking.instances().for_each(|instance| instance.break_connections(ms(0)));
            breaking.instances().for_each(TestInstance::resume);
        });
        assert!(redlock.lock("a").try_acquire().await.is_err());
        for _ in 0..100 {
            tokio::time::sleep(ms(50)).await;
            assert!(cluster.keys().is_empty(), "the second heard for {second_hears_until} ms");
        }
    }
}
