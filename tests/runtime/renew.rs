//! P8, P19: leases are renewed until they are released, and no longer.

use redquorum::testing::simulation::table_sizes;
use redquorum::testing::{Cluster, Hang, TestInstance};
use redquorum::{Loss, Renewal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, hang_first, held, how_many_have, ms, renewing, secs, settle, timed, until_voting};

/// The first renewal of a lease of 10 s: a third later, on a grid of 25 ms. So are all that follow.
const FIRST: u64 = 3_325;

/// How long a lease of 10 s is valid.
const VALID: u64 = 9_898;

fn extends(cluster: &Cluster) -> Vec<usize> {
    cluster.instances().map(|instance| instance.requests().extend).collect()
}

/// Looks at `instance` every millisecond for `millis`; gives when extends reached it.
async fn when_extended(instance: &TestInstance, millis: u64) -> Vec<u64> {
    let (mut seen, mut times) = (instance.requests().extend, Vec::new());
    for now in 0..millis {
        for _ in 0..4 {
            tokio::task::yield_now().await; // what is due now comes first
        }
        let extends = instance.requests().extend;
        times.extend((seen..extends).map(|_| now));
        seen = extends;
        sleep(ms(1)).await;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_by_default_every_third_of_its_ttl_for_as_long_as_it_is_held() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    for second in 1..=100 {
        sleep(secs(1)).await;
        assert!(guard.remaining() > ms(VALID - FIRST), "after {second} s");
    }
    assert_eq!(extends(&cluster), [100_000 / usize::try_from(FIRST).unwrap(); 5]);
    assert_eq!(how_many_have(&cluster, "a"), 5);
    assert!(guard.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
}

/// Else a lease would be renewed later and later over a slow link.
#[tokio::test(start_paused = true)]
async fn a_renewal_is_counted_from_when_the_one_before_was_sent() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(40), ms(40)));
    let _guard = held(&redlock, "a").await;
    sleep(ms(33_320)).await;
    assert_eq!(cluster.requests().extend, 10 * 3);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_no_scripts_is_sent_again_as_soon_as_they_are_there() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    sleep(ms(FIRST - 500)).await;
    cluster.instances().for_each(TestInstance::forget_scripts);
    sleep(ms(550)).await;
    assert!(guard.remaining() > ms(VALID - 100), "{:?}", guard.remaining());
    assert_eq!(extends(&cluster), [1; 5], "the others could not be carried out");
}

/// P13: the floor is above it, so no smaller one is granted, not even by a client whose clock is behind.
#[tokio::test(start_paused = true)]
async fn a_token_is_forgotten_also_while_its_lock_is_held_and_a_later_one_is_larger() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().connect().await.unwrap();
    let (a, b) = (held(&redlock, "a").await, held(&redlock, "b").await);
    sleep(secs(300)).await;
    assert!(a.is_valid() && b.is_valid());
    for instance in cluster.instances() {
        let kept = ["a", "b"].map(|name| instance.fencing_token(name));
        assert_eq!(kept, [None, None], "and no renewal stores it again");
    }
    let last = a.fencing_token();
    drop(a);
    let late = cluster.builder_with_wall_clock_behind(secs(600)).connect().await.unwrap();
    assert!(held(&late, "a").await.fencing_token() > last);
}

/// More than are looked at in one go.
#[tokio::test(start_paused = true)]
async fn a_client_that_connects_removes_old_tokens() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().connect().await.unwrap();
    let recent = held(&redlock, "a").await.fencing_token();
    let names: Vec<String> = (1..1000).map(|number| format!("old {number}")).collect();
    for instance in cluster.instances() {
        names.iter().zip(1_u32..).for_each(|(name, score)| instance.set_token_score(name, score.into()));
    }
    let _other = cluster.builder().connect().await.unwrap();
    sleep(secs(1)).await;
    assert!(cluster.instances().all(|instance| names.iter().all(|name| instance.fencing_token(name).is_none())));
    assert_eq!(cluster.instance(0).fencing_token("a"), Some(recent));
}

#[tokio::test(start_paused = true)]
async fn renewal_can_be_turned_off_and_on_for_a_client_and_for_a_lock() {
    let cluster = Cluster::new(3);
    for of_client in [Renewal::Auto, Renewal::Off] {
        let redlock = cluster.builder().renew(of_client).connect().await.unwrap();
        for of_lock in [None, Some(Renewal::Auto), Some(Renewal::Off)] {
            let lock = redlock.lock("a");
            let lock = if let Some(renewal) = of_lock { lock.renew(renewal) } else { lock };
            let before = cluster.requests().extend;
            let guard = lock.try_acquire().await.unwrap();
            sleep(secs(20)).await;
            let renews = of_lock.unwrap_or(of_client) == Renewal::Auto;
            assert_eq!(guard.is_valid(), renews, "{of_client:?} {of_lock:?}");
            assert_eq!(cluster.requests().extend > before, renews, "{of_client:?} {of_lock:?}");
            assert!(guard.release().await.is_ok());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_not_renewed_past_its_longest_hold() {
    for longest in [60, 8] {
        let cluster = Cluster::new(5);
        let of_client = cluster.builder().max_hold(secs(60)).connect().await.unwrap();
        let lock = of_client.lock("a");
        let lock = if longest == 60 { lock } else { lock.max_hold(secs(longest)) };
        let guard = lock.try_acquire().await.unwrap();
        let (loss, took) = timed(guard.lost()).await;
        assert!(matches!(loss, Loss::MaxHold), "{loss:?}");
        let renewals = longest * 1_000 / FIRST;
        assert_eq!(took, ms(renewals * FIRST + VALID), "from the last renewal");
        assert!(took <= secs(longest + 10), "as documented");
        assert_eq!(extends(&cluster), [usize::try_from(renewals).unwrap(); 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_tried_again_every_tenth_and_the_lease_goes_on() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    let times = when_extended(cluster.instance(4), 7_500).await;
    assert_eq!(times, [FIRST, FIRST + 1_000, FIRST + 2_000, FIRST + 3_000, FIRST + 4_000]);
    assert_eq!(guard.remaining(), ms(VALID - 7_500), "nothing was gained and nothing lost (P8)");
    cluster.instances().for_each(TestInstance::resume);
    let times = when_extended(cluster.instance(4), 10_000).await;
    // Connections come back at times of their own, and what they missed is looked at at once: never later than this.
    assert_eq!(times.first(), Some(&(FIRST + 5_000 - 7_500)), "{times:?}");
    // Times are on a grid of 25 ms (P19).
    assert!(times.len() >= 3 && times.windows(2).all(|pair| pair[1] - pair[0] <= FIRST + 25), "{times:?}");
    assert!(guard.is_valid());
}

/// Not from when it was known to have failed, an instance timeout later.
#[tokio::test(start_paused = true)]
async fn a_retry_is_counted_from_when_the_renewal_before_was_sent() {
    let (cluster, redlock) = renewing(5).await;
    let _guard = held(&redlock, "a").await;
    sleep(ms(FIRST - 1)).await; // so that nothing else shows before that they hang
    hang_first(&cluster, 3, Hang::Stopped);
    let times = when_extended(cluster.instance(4), 4_500).await;
    assert_eq!(times, [1, 1_001, 2_001, 3_001, 4_001]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_minority_does_not_end_a_lease() {
    for how in [Hang::Stopped, Hang::RepliesLost, Hang::RequestsLost] {
        let (cluster, redlock) = renewing(5).await;
        let guard = held(&redlock, "a").await;
        hang_first(&cluster, 2, how);
        assert!(timeout(secs(100), guard.lost()).await.is_err(), "{how:?}");
        assert!(guard.remaining() >= ms(VALID - FIRST), "{how:?}");
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_majority_ends_a_lease_when_its_validity_has_passed_and_not_before() {
    for how in [Hang::Stopped, Hang::RepliesLost, Hang::RequestsLost] {
        for renewed in [false, true] {
            let (cluster, redlock) = renewing(5).await;
            let guard = held(&redlock, "a").await;
            let ends = if renewed { FIRST + VALID } else { VALID };
            let hangs = if renewed { 5_000 } else { 0 };
            sleep(ms(hangs)).await;
            hang_first(&cluster, 3, how);
            // The renewal came on its grid of 25 ms (P19).
            let left = guard.remaining();
            assert!(ms(ends - hangs - 25) < left && left <= ms(ends - hangs), "{how:?}: {left:?}");
            sleep(left - ms(1)).await;
            assert!(guard.is_valid(), "{how:?}");
            let (loss, took) = timed(guard.lost()).await;
            assert_eq!((took, guard.is_valid()), (ms(1), false), "{how:?}");
            let Loss::Expired { reports } = loss else { panic!("{loss:?}") };
            assert_eq!(reports.len(), 5, "{how:?}: {reports:?}");
        }
    }
}

/// No answer at all, not even that there is none, before the validity has passed.
#[tokio::test(start_paused = true)]
async fn a_loss_while_the_only_renewal_is_on_its_way_has_its_reports() {
    let (cluster, redlock) = renewing(3).await;
    let guard = redlock.lock("a").ttl(ms(200)).try_acquire().await.unwrap();
    hang_first(&cluster, 2, Hang::Stopped);
    let (loss, took) = timed(guard.lost()).await;
    assert_eq!(took, ms(196));
    assert!(matches!(&loss, Loss::Expired { reports } if reports.len() == 3), "{loss:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_after_a_release_whenever_that_comes() {
    // Before, at and after the instant of a renewal, and while it is on its way.
    for at in [FIRST - 1, FIRST, FIRST + 1, FIRST + 10, FIRST + 69, FIRST + 70, 2 * FIRST] {
        for by_drop in [false, true] {
            let (cluster, redlock) = renewing(3).await;
            let guard = held(&redlock, "a").await;
            cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(20)));
            sleep(ms(at)).await;
            if by_drop {
                drop(guard);
            } else {
                assert!(guard.release().await.unwrap().was_still_held);
            }
            sleep(TIMEOUT).await;
            let sent = extends(&cluster);
            assert!(sent.iter().all(|sent| *sent as u64 <= at / FIRST), "at {at}: {sent:?}");
            for _ in 0..30 {
                assert!(cluster.keys().is_empty(), "at {at}");
                sleep(ms(500)).await;
            }
            assert_eq!(extends(&cluster), sent, "at {at}");
            assert_eq!(redlock.shutdown(secs(1)).await, Ok(Vec::new()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_behind_the_release_sets_nothing() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(0)));
    sleep(ms(FIRST + 5)).await;
    cluster.instances().for_each(|instance| instance.break_connections(ms(500)));
    cluster.instances().for_each(|instance| instance.slow_down(ms(0), ms(0)));
    until_voting(&redlock, 3).await;
    assert_eq!(extends(&cluster), [0; 3], "still on its way");
    assert!(guard.release().await.unwrap().was_still_held);
    for _ in 0..70 {
        assert!(cluster.keys().is_empty());
        sleep(ms(10)).await;
    }
    assert_eq!(extends(&cluster), [0; 3], "its connection was ended");
}

#[tokio::test(start_paused = true)]
async fn instances_that_come_and_go_do_not_hasten_renewals() {
    let (cluster, redlock) = renewing(5).await;
    let guard = redlock.lock("a").ttl(secs(1)).try_acquire().await.unwrap();
    let flapping = cluster.clone();
    tokio::spawn(async move {
        for step in 0.. {
            flapping.instances().take(3).for_each(TestInstance::cut_off);
            sleep(ms(40)).await;
            flapping.instances().take(3).for_each(TestInstance::resume);
            sleep(ms(710 + step % 31)).await;
        }
    });
    let times = when_extended(cluster.instance(4), 60_000).await;
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(guard.is_valid(), "a quorum is there most of the time");
    assert!(pauses.iter().all(|pause| *pause >= 100), "{pauses:?}");
    assert!(pauses.contains(&100), "some have failed: {pauses:?}");
}

/// Counter-example: the renewal was put down for a third after the last success, which had passed.
#[tokio::test(start_paused = true)]
async fn an_extend_by_hand_that_fails_does_not_hasten_renewals() {
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    sleep(ms(FIRST + 100)).await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    sleep(ms(FIRST)).await; // the second renewal has just failed
    let (mut by_hand, before) = (0, cluster.instance(4).requests().extend);
    for _ in 0..20 {
        assert!(guard.extend().await.is_err());
        by_hand += 1;
        sleep(ms(40)).await;
    }
    assert_eq!(cluster.instance(4).requests().extend - before - by_hand, 0, "none is due for 900 ms");
    sleep(ms(200)).await;
    assert_eq!(cluster.instance(4).requests().extend - before - by_hand, 1);
}

#[tokio::test(start_paused = true)]
async fn an_extend_by_hand_puts_the_next_renewal_off() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    for _ in 0..30 {
        sleep(secs(3)).await;
        assert!(guard.extend().await.is_ok());
    }
    assert_eq!(extends(&cluster), [30; 3], "all of them by hand");
    assert_eq!(guard.extend_to(secs(10)).await.unwrap(), ms(VALID));
    sleep(ms(FIRST)).await;
    settle().await;
    assert_eq!(extends(&cluster), [32; 3]);
}

/// After a pause of the process tens of thousands may be due. Sent together, they wait for longer than the instance timeout, and all
/// other requests with them.
#[tokio::test(start_paused = true)]
async fn of_leases_that_are_due_together_so_many_are_renewed_at_once() {
    let (cluster, redlock) = renewing(1).await;
    let names = (0..5_000).map(|number| number.to_string());
    let mut acquires: JoinSet<_> =
        names.map(|name| redlock.lock(name)).map(|lock| async move { lock.acquire().await.unwrap() }).collect();
    let mut leases = Vec::new();
    while let Some(lease) = acquires.join_next().await {
        leases.push(lease.unwrap());
    }
    sleep(ms(FIRST - 100)).await;
    hang_first(&cluster, 1, Hang::Stopped);
    sleep(ms(150)).await;
    let has = |(name, _): &(_, _)| *name == "requests that one connection has yet to answer";
    let queue = || table_sizes(&redlock).into_iter().find(has).unwrap().1;
    assert_eq!(queue(), 4_096);
    cluster.instance(0).resume();
    sleep(ms(1)).await;
    assert_eq!(queue(), 0);
    assert_eq!(extends(&cluster), [5_000]);
    assert!(leases.iter().all(|lease| lease.remaining() > ms(VALID - 100)));
}

/// Counter-example: the lease was lost when the last came back, naming the one that was repaired first, which had the key. A quorum had
/// had it at every moment.
#[tokio::test(start_paused = true)]
async fn a_lease_outlives_an_outage_that_begins_as_another_one_ends() {
    for count in [3, 5] {
        let cluster = Cluster::new(count);
        let redlock = cluster.builder().connect().await.unwrap();
        let spare = count / 2;
        let (first, last) = (1..=spare, spare + 1..count);
        first.clone().for_each(|index| cluster.instance(index).cut_off());
        let guard = held(&redlock, "a").await;
        first.clone().for_each(|index| cluster.instance(index).resume());
        last.clone().for_each(|index| cluster.instance(index).cut_off());
        sleep(secs(20)).await;
        assert_eq!(guard.redundancy().held_on, spare + 1);
        last.for_each(|index| cluster.instance(index).resume());
        assert!(timeout(secs(20), guard.lost()).await.is_err(), "of {count}");
        assert_eq!(how_many_have(&cluster, "a"), count);
    }
}
