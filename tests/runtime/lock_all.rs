//! Several locks that are held together.

use std::pin::pin;

use futures_util::future::{FutureExt, join_all};
use redquorum::testing::{Cluster, TestInstance};
use redquorum::{AcquireError, BadRequest, ExtendError, Holder, Redlock, Renewal};
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, held, how_many_have, ms, renewing, secs, settle, timed};

const BOTH: [&str; 2] = ["a", "b"];

async fn clients(cluster: &Cluster) -> [Redlock; 2] {
    [cluster.builder().connect().await.unwrap(), cluster.builder().connect().await.unwrap()]
}

/// Nobody has any of them.
async fn are_free(cluster: &Cluster, names: &[&str]) {
    sleep(TIMEOUT).await;
    for name in names {
        assert_eq!(how_many_have(cluster, name), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn free_locks_are_had_side_by_side_each_under_a_token_of_its_own() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(5), ms(5)));
    // Of many 16 go at once; all but the first of these wait until they are answered, and share writes.
    for (count, waits, most) in [(3, true, ms(15)), (3, false, ms(15)), (256, true, ms(330)), (256, false, ms(330))] {
        let names: Vec<String> = (0..count).map(|number| format!("n{number:03}")).collect();
        let all = redlock.lock_all(&names).wait_at_most(secs(1));
        let (all, took) = timed(async { if waits { all.acquire().await } else { all.try_acquire().await } }).await;
        let all = all.unwrap();
        assert!(took < most, "{took:?}");
        let locked: Vec<String> = all.resources().iter().map(ToString::to_string).collect();
        assert_eq!(locked, names);
        assert!(all.is_valid() && all.remaining() > secs(5));
        assert_eq!(all.fencing_token("n002"), Some(all.leases().leases()[2].fencing_token()));
        assert_eq!(all.fencing_token("other"), None);
        assert!(all.release().await.unwrap().was_still_held);
        assert_eq!(how_many_have(&cluster, "n255"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_cannot_be_locked_together_are_refused_before_anything_is_sent() {
    let (cluster, redlock) = renewing(3).await;
    let too_many: Vec<String> = (0..257).map(|number| number.to_string()).collect();
    for names in [vec![], vec!["a".to_owned(), "a".to_owned()], vec![String::new()], too_many] {
        for result in [redlock.lock_all(&names).acquire().await, redlock.lock_all(&names).try_acquire().await] {
            assert!(matches!(result, Err(AcquireError::BadRequest(BadRequest::Resource(_)))), "{result:?}");
        }
    }
    let too_long = redlock.lock_all(BOTH).ttl(secs(3600)).acquire().await;
    assert!(matches!(too_long, Err(AcquireError::BadRequest(BadRequest::TtlAboveMax { .. }))), "{too_long:?}");
    are_free(&cluster, &BOTH).await;
}

#[tokio::test(start_paused = true)]
async fn where_one_is_taken_a_try_gives_the_others_back_and_names_it() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let b = held(&other, "b").await;
    let error = one.lock_all(["c", "b", "a"]).try_acquire().await.unwrap_err();
    assert_eq!(error.held_by().unwrap().resource, "b");
    are_free(&cluster, &["a", "c"]).await;
    b.release().await.unwrap();
}

/// A try that is dropped as another thread takes its votes in has its lock for a moment longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_try_is_not_refused_by_what_the_same_caller_has_dropped() {
    let cluster = Cluster::new(3);
    let client = || cluster.builder().instance_timeout(ms(40)).connect(); // it waits an eighth of that for rivals
    let (one, other) = (client().await.unwrap(), client().await.unwrap());
    let _b = held(&other, "b").await;
    for _ in 0..500 {
        let error = one.lock_all(BOTH).try_acquire().await.unwrap_err();
        assert!(error.held_by().is_none_or(|held_by| held_by.resource == "b"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_and_renews_what_comes_before_and_has_its_turn_for_the_rest() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let b = held(&other, "b").await;
    let waiting = one.lock_all(["c", "b", "a"]).acquire();
    let waiting = tokio::spawn(waiting);
    sleep(ms(900)).await;
    assert_eq!([how_many_have(&cluster, "a"), how_many_have(&cluster, "c")], [3, 0], "in the order of the keys");
    let tried = other.lock("a").try_acquire().await;
    assert!(matches!(tried, Err(AcquireError::Contended(_))), "{tried:?}");
    b.release().await.unwrap();
    let (all, took) = timed(waiting).await;
    let all = all.unwrap().unwrap();
    assert!(took < ms(50), "{took:?}");
    let ttl_left = cluster.builder().connect().await.unwrap().lock("z").acquire().await.unwrap().remaining();
    assert!(ttl_left - all.remaining() < ms(50), "what was won first was extended: {:?}", all.remaining());
    assert!(all.leases().leases().iter().all(redquorum::LeaseView::is_valid));
}

/// One that has `b`, and waits for `a`.
#[tokio::test(start_paused = true)]
async fn a_circle_with_a_holder_that_holds_on_does_not_last() {
    for times in 1..=5 {
        let cluster = Cluster::new(3);
        let [one, other] = clients(&cluster).await;
        let b = held(&other, "b").await;
        let waiting = tokio::spawn(one.lock_all(BOTH).acquire());
        sleep(ms(20 * times)).await;
        let (a, took) = timed(timeout(secs(5), other.lock("a").acquire())).await;
        assert!(took < ms(1300), "{took:?}");
        drop((a.expect("in a circle").unwrap(), b));
        let all = timeout(secs(5), waiting).await.expect("it begins again").unwrap().unwrap();
        assert!(all.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_while_others_are_waited_for_is_had_again_with_them() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let b = held(&other, "b").await;
    let waiting = tokio::spawn(one.lock_all(BOTH).acquire());
    sleep(ms(100)).await;
    cluster.instances().for_each(|instance| assert!(instance.remove("a")));
    sleep(ms(700)).await;
    b.release().await.unwrap();
    let all = timeout(secs(3), waiting).await.unwrap().unwrap().unwrap();
    assert!(all.is_valid() && how_many_have(&cluster, "a") >= 2);
}

#[tokio::test(start_paused = true)]
async fn two_in_opposite_orders_of_names_never_wait_for_each_other_for_good() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let work = |client: Redlock, names: [&'static str; 2]| {
        tokio::spawn(async move {
            for _ in 0..50 {
                let all = client.lock_all(names).acquire().await.unwrap();
                assert!(all.is_valid());
                sleep(ms(1)).await;
                all.release().await.unwrap();
            }
        })
    };
    let (one, other) = (work(one, ["a", "b"]), work(other, ["b", "a"]));
    let both = async { (one.await.unwrap(), other.await.unwrap()) };
    timeout(secs(60), both).await.expect("they are in each other's way");
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_for_all_of_them_and_tells_what_stood_in_the_way() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let _b = held(&other, "b").await;
    for limit in [ms(0), ms(300), ms(3000)] {
        let (result, took) = timed(one.lock_all(BOTH).wait_at_most(limit).acquire()).await;
        let Err(AcquireError::DeadlinePassed { waited, last }) = result else { panic!("{result:?}") };
        assert!(limit <= took && took < limit + TIMEOUT && waited <= took, "{limit:?} {took:?} {waited:?}");
        assert_eq!(last.held_by().map(|by| &*by.resource), Some("b"));
        are_free(&cluster, &["a"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_it_is_dropped_nothing_stays_behind() {
    for after in [0, 1, 3, 8, 20, 60, 300, 1050, 1200] {
        let cluster = Cluster::new(3);
        cluster.instances().for_each(|instance| instance.slow_down(ms(1), ms(1)));
        let [one, other] = clients(&cluster).await;
        let b = held(&other, "b").await;
        let waiting = one.lock_all(["a", "b", "c"]).acquire();
        assert!(timeout(ms(after), waiting).await.is_err());
        are_free(&cluster, &["a", "c"]).await;
        b.release().await.unwrap();
        are_free(&cluster, &["b"]).await;
        let all = one.lock_all(["a", "b", "c"]).try_acquire().await.unwrap();
        drop(all);
        are_free(&cluster, &["a", "b", "c"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_loss_is_the_loss_of_all_and_the_others_are_kept_until_they_are_let_go() {
    let (cluster, redlock) = renewing(3).await;
    let all = redlock.lock_all(BOTH).acquire().await.unwrap();
    let lost = async {
        settle().await;
        cluster.instances().for_each(|instance| assert!(instance.remove("b")));
    };
    let (loss, ()) = timeout(secs(10), async { tokio::join!(all.lost(), lost) }).await.unwrap();
    println!("{loss}");
    assert!(!all.is_valid() && all.remaining().is_zero());
    assert!(matches!(all.extend().await, Err(ExtendError::Lost { .. })));
    assert_eq!(how_many_have(&cluster, "a"), 3);
    let [a, b] = <[_; 2]>::try_from(all.into_guards()).unwrap();
    assert!(a.is_valid() && !b.is_valid());
    assert!(a.release().await.unwrap().was_still_held);
    drop(b);
    are_free(&cluster, &BOTH).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_renewed_extended_and_shared_by_a_holder_like_any_lock() {
    let (cluster, redlock) = renewing(3).await;
    let holder = Holder::from("h");
    let all = redlock.lock_all(BOTH).holder(holder.clone()).ttl(secs(2)).acquire().await.unwrap();
    sleep(secs(20)).await;
    assert!(all.is_valid(), "renewed");
    let again = redlock.lock_all(["b", "a", "c"]).holder(holder).acquire().await.unwrap();
    assert_eq!(again.fencing_token("a"), all.fencing_token("a"));
    assert!(again.fencing_token("c") > all.fencing_token("b"));
    assert!(all.extend().await.unwrap() > ms(1900));
    drop(again);
    assert!(all.is_valid());
    drop(all);
    are_free(&cluster, &["a", "b", "c"]).await;

    let unrenewed = redlock.lock_all(BOTH).renew(Renewal::Off).ttl(secs(2)).acquire().await.unwrap();
    let bounded = redlock.lock_all(["x", "y"]).max_hold(secs(3)).ttl(secs(2)).acquire().await.unwrap();
    sleep(ms(2100)).await;
    assert!(!unrenewed.is_valid() && bounded.is_valid());
    sleep(secs(4)).await;
    assert!(!bounded.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait_and_all_that_is_held() {
    let cluster = Cluster::new(3);
    let [one, other] = clients(&cluster).await;
    let _b = held(&other, "b").await;
    let held = one.lock_all(["x", "y"]).acquire().await.unwrap();
    let waiting = tokio::spawn(one.lock_all(BOTH).acquire());
    sleep(ms(100)).await;
    let (down, waited) = tokio::join!(one.shutdown(secs(1)), waiting);
    assert!(matches!(waited.unwrap(), Err(ref error) if error.kind() == "shut_down"));
    down.unwrap();
    assert!(!held.is_valid());
    are_free(&cluster, &["a", "x", "y"]).await;
}

#[tokio::test(start_paused = true)]
async fn work_under_all_of_them_is_given_their_leases_and_ends_with_the_first_loss() {
    let (cluster, redlock) = renewing(3).await;
    let leases = redlock.lock_all(BOTH).run(async |leases| leases).await.unwrap();
    assert_eq!(leases.fencing_tokens().len(), 2);
    are_free(&cluster, &BOTH).await;
    let removes = async {
        sleep(ms(50)).await;
        cluster.instances().for_each(TestInstance::flush);
    };
    let work = redlock.lock_all(BOTH).run(async |_| std::future::pending::<()>().await);
    let (lost, ()) = timeout(secs(10), async { tokio::join!(work, removes) }).await.unwrap();
    assert!(matches!(lost, Err(redquorum::RunError::Lost(_))), "{lost:?}");
}

/// Nothing is held meanwhile, so nothing is given back, and its place in the queue stays.
#[tokio::test(start_paused = true)]
async fn the_first_is_waited_for_in_its_queue_for_as_long_as_it_takes() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().connect().await.unwrap();
    let a = held(&redlock, "a").await;
    let all = tokio::spawn(redlock.lock_all(BOTH).acquire());
    sleep(ms(10)).await;
    let behind = tokio::spawn(redlock.lock("a").acquire());
    sleep(secs(30)).await;
    a.release().await.unwrap();
    let all = timeout(ms(50), all).await.expect("it was first").unwrap().unwrap();
    assert!(!behind.is_finished());
    all.keep_for(secs(3)).await.unwrap();
    assert_eq!([how_many_have(&cluster, "a"), how_many_have(&cluster, "b")], [3, 3]);
    let (kept_out, took) = timed(behind).await;
    assert!(took > ms(2900) && kept_out.unwrap().unwrap().is_valid(), "{took:?}");
    assert_eq!(how_many_have(&cluster, "b"), 0);
}

/// Of many that are not renewed the first has aged by the time of the last.
#[tokio::test(start_paused = true)]
async fn locks_of_which_the_first_has_aged_by_the_time_of_the_last_are_not_given() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().connect().await.unwrap();
    let names: Vec<String> = (0..64).map(|number| format!("n{number:02}")).collect();
    let all = redlock.lock_all(&names).ttl(ms(400));
    cluster.instances().for_each(|instance| instance.slow_down(ms(40), ms(40)));
    let result = all.clone().renew(Renewal::Off).try_acquire().await;
    assert!(matches!(result, Err(ref error) if error.kind() == "too_slow"), "{result:?}");
    let limited = all.clone().renew(Renewal::Off).wait_at_most(secs(3)).acquire().await;
    let Err(AcquireError::DeadlinePassed { last, .. }) = limited else { panic!("{limited:?}") };
    println!("{last}");
    sleep(secs(1)).await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
    let renewed = all.renew(Renewal::Auto).try_acquire().await.unwrap();
    assert!(renewed.is_valid() && renewed.remaining() >= ms(80), "{:?}", renewed.remaining());
}

/// Of them a fifth of the shorter ttl has to be left, not of the own.
#[tokio::test(start_paused = true)]
async fn a_holder_that_shares_a_shorter_lease_is_given_it_with_the_others() {
    let (cluster, redlock) = renewing(3).await;
    let holder = Holder::from("h");
    let short = redlock.lock("a").holder(holder.clone()).ttl(ms(900)).renew(Renewal::Off).acquire().await.unwrap();
    let all = redlock.lock_all(BOTH).holder(holder.clone()).ttl(secs(10)).renew(Renewal::Off);
    let shared = all.try_acquire().await.unwrap();
    assert_eq!(shared.fencing_token("a"), Some(short.fencing_token()));
    drop(shared);
    let waited = all.acquire().await.unwrap();
    assert_eq!(waited.fencing_token("a"), Some(short.fencing_token()));
    drop((waited, short));
    are_free(&cluster, &BOTH).await;
}

/// Counter-example: the first locks were held and renewed without end, here for 600 s.
#[tokio::test(start_paused = true)]
async fn nothing_is_held_for_a_caller_that_does_not_poll() {
    for waits in [true, false] {
        let cluster = Cluster::new(3);
        cluster.instances().for_each(|instance| instance.slow_down(ms(5), ms(5)));
        let [one, other] = clients(&cluster).await;
        let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
        let last = held(&other, "n39").await;
        let all = one.lock_all(&names);
        let mut asks = pin!(async { if waits { all.acquire().await } else { all.try_acquire().await } });
        assert!(timeout(ms(12), &mut asks).await.is_err());
        drop(last);
        sleep(secs(20)).await;
        assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
        match asks.await {
            Ok(all) => assert!(waits && all.is_valid()),
            Err(error) => assert!(!waits && error.is_retryable(), "{error}"),
        }
    }
}

/// Counter-example: guards of leases that the shutdown had ended.
#[tokio::test(start_paused = true)]
async fn locks_that_ended_before_their_caller_polled_again_are_not_given() {
    let (_cluster, redlock) = renewing(3).await;
    let mut tried = Box::pin(redlock.lock_all(BOTH).try_acquire());
    assert!((&mut tried).now_or_never().is_none());
    sleep(ms(10)).await;
    redlock.shutdown(ms(20)).await.unwrap();
    let result = tried.await;
    assert!(result.is_err(), "{result:?}");
}

/// Counter-example: 24 of 40 stayed valid, and were renewed.
#[tokio::test(start_paused = true)]
async fn a_release_of_many_that_is_polled_once_ends_all_of_them() {
    let (cluster, redlock) = renewing(3).await;
    let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    let all = redlock.lock_all(&names).acquire().await.unwrap();
    let leases = all.leases();
    let mut release = Box::pin(all.release());
    assert!((&mut release).now_or_never().is_none());
    assert!(leases.leases().iter().all(|lease| !lease.is_valid()));
    sleep(ms(50)).await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
    assert!(release.await.unwrap().was_still_held);
}

/// Counter-examples: none of 8 to 32 had them, in 100 of 100 rounds; in one of 200, as one had `b` while it tried `a` again and again.
#[tokio::test(start_paused = true)]
async fn of_several_that_try_the_same_free_locks_at_once_one_gets_them() {
    let cluster = Cluster::new(3);
    cluster.instances().zip([1, 2, 4]).for_each(|(instance, way)| instance.slow_down(ms(way), ms(way)));
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(cluster.builder().connect().await.unwrap());
    }
    for round in 0..60 {
        for limit in [None, Some(ms(0))] {
            let of_client = |client: &Redlock| {
                let all = client.lock_all(["a", "b", "c"]);
                async move {
                    match limit {
                        Some(limit) => all.wait_at_most(limit).acquire().await,
                        None => all.try_acquire().await,
                    }
                }
            };
            let results = join_all(clients.iter().map(of_client)).await;
            let won = results.iter().filter(|result| result.is_ok()).count();
            assert_eq!(won, 1, "round {round}, {limit:?}: {results:?}");
            drop(results);
            are_free(&cluster, &["a", "b", "c"]).await;
        }
    }
}
