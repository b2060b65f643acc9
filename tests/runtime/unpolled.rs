//! P22: nobody's progress depends on a future that its caller does not poll, and what was won for such
//! a caller does not stay.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redquorum::testing::Hang;
use redquorum::{AcquireError, Guard, Holder};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::support::{TIMEOUT, cluster_of, hang_first, held, how_many_have, ms, renewing, secs, settle, timed};

type Acquire<'a> = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + 'a>>;

/// Polls once, as a `select!` does whose other branch is then busy.
fn begin<'a>(acquire: impl Future<Output = Result<Guard, AcquireError>> + 'a) -> Acquire<'a> {
    let mut acquire: Acquire<'a> = Box::pin(acquire);
    assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    acquire
}

/// The result of a future that has come by now.
fn come(acquire: &mut Acquire<'_>) -> Option<Result<Guard, AcquireError>> {
    match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_nobody_polls_does_not_stand_in_the_way_of_its_holder() {
    let (_cluster, redlock) = cluster_of(3).await;
    let holder = Holder::from("h");
    let acquire = || redlock.lock("a").holder(holder.clone()).wait_at_most(secs(1)).acquire();
    let mut first = begin(acquire());
    let (second, took) = timed(acquire()).await;
    assert!(second.unwrap().is_valid());
    assert!(took < ms(1), "{took:?}");
    assert!(come(&mut first).unwrap().unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_try_waits_for_one_of_its_holder_that_is_under_way_and_shares_what_that_wins() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(75), ms(75)));
    let lock = redlock.lock("a").holder(Holder::from("h"));
    let _first = begin(lock.try_acquire());
    settle().await;
    let (second, took) = timed(lock.try_acquire()).await;
    assert!(second.is_ok() && took == ms(150), "{took:?}");
    assert_eq!(cluster.requests().acquire, 3);
}

#[tokio::test(start_paused = true)]
async fn a_try_waits_for_others_for_two_rounds_at_most() {
    let (cluster, redlock) = cluster_of(3).await;
    hang_first(&cluster, 3, Hang::Stopped);
    let begun = || begin(redlock.lock("a").try_acquire());
    let _under_way = [begun(), begun()];
    sleep(ms(10)).await;
    let _next = [begun(), begun()];
    sleep(ms(10)).await;
    let (last, took) = timed(redlock.lock("a").try_acquire()).await;
    assert!(matches!(last, Err(ref error) if error.kind() == "no_quorum"), "{last:?}");
    assert_eq!(took, 2 * TIMEOUT - ms(20), "the round that was under way, and one for all that had come by then");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_won_for_a_caller_who_does_not_poll_is_not_renewed_and_ends_with_its_ttl() {
    let (cluster, redlock) = renewing(3).await;
    let mut tried = begin(redlock.lock("a").try_acquire());
    let waiting = begin(redlock.lock("b").acquire());
    settle().await;
    assert_eq!((how_many_have(&cluster, "a"), how_many_have(&cluster, "b")), (3, 3));
    sleep(secs(10)).await;
    assert!(cluster.keys().is_empty());
    assert_eq!(cluster.requests().extend, 0);
    let late = come(&mut tried).unwrap();
    assert!(matches!(late, Err(ref error) if error.kind() == "not_polled"), "{late:?}");
    let guard = waiting.await.unwrap();
    assert_eq!(guard.remaining(), ms(9_898), "it was won anew");
}

/// The lease has two guards, and who does not poll keeps neither the lock nor the other's wish to be rid of it.
#[tokio::test(start_paused = true)]
async fn a_shared_lease_that_nobody_polls_does_not_keep_a_lock_that_was_released() {
    for waits in [false, true] {
        let (cluster, redlock) = renewing(3).await;
        let lock = redlock.lock("a").holder(Holder::from("h"));
        let unpolled = if waits { begin(lock.acquire()) } else { begin(lock.try_acquire()) };
        settle().await;
        let guard = lock.acquire().await.unwrap();
        sleep(secs(60)).await;
        assert!(guard.is_valid(), "renewed for the one who polls");
        guard.release().await.unwrap();
        sleep(secs(11)).await;
        assert!(cluster.keys().is_empty());
        assert_eq!(redlock.stats().lost_by_expiry, 0, "nobody had it");
        assert!(redlock.lock("a").try_acquire().await.is_ok());
        let late = unpolled.await;
        if !waits {
            assert!(matches!(late, Err(ref error) if error.kind() == "not_polled"), "{late:?}");
            continue;
        }
        let again = late.unwrap();
        sleep(secs(60)).await;
        assert!(again.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_polled_at_last_has_a_lease_that_is_renewed_from_then_on() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = redlock.lock("a").holder(Holder::from("h"));
    let first = begin(lock.acquire());
    settle().await;
    drop(lock.acquire().await.unwrap());
    sleep(secs(5)).await;
    let again = first.await.unwrap();
    sleep(secs(60)).await;
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_who_does_not_poll_let_expire_is_given_to_the_next_try() {
    let (cluster, redlock) = renewing(3).await;
    let mut waiting = begin(redlock.lock("a").acquire());
    settle().await;
    assert!(redlock.lock("a").try_acquire().await.unwrap_err().is_contended(), "it was won for the first");
    sleep(secs(11)).await;
    let lock = redlock.lock("a");
    let run = lock.try_run(async |lease| lease.is_valid()).await.unwrap();
    assert_eq!(run, Some(true), "nobody has it");
    let guard = lock.try_acquire().await.unwrap();
    assert!(come(&mut waiting).is_none());
    let told = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(told.is_contended() && guard.is_valid(), "{told}");
    drop(guard);
    assert!(waiting.await.unwrap().is_valid());
    settle().await;
    assert!(cluster.keys().is_empty());
}

/// Who waited for it once, and with whom, says nothing to the client that comes later.
#[tokio::test(start_paused = true)]
async fn what_was_in_the_way_of_others_once_refuses_no_try_beside_a_caller_who_does_not_poll() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let _unpolled = begin(redlock.lock("a").acquire());
    sleep(secs(11)).await;
    let guard = held(&elsewhere, "a").await;
    assert!(redlock.lock("a").wait_at_most(ms(50)).acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    sleep(ms(10)).await; // until it is not kept for this client any more
    drop(redlock.lock("a").try_acquire().await.unwrap());
    sleep(secs(1)).await;
    assert!(redlock.lock("a").wait_at_most(Duration::ZERO).acquire().await.is_ok(), "it asks before it gives up");
}

#[tokio::test(start_paused = true)]
async fn a_caller_beside_callers_who_do_not_poll_need_not_wait_for_a_free_lock() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let _unpolled = begin(redlock.lock("a").acquire());
    let waits = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    drop(guard);
    drop(waits.await.unwrap().unwrap());
    for _ in 0..3 {
        sleep(ms(50)).await;
        let (guard, took) = timed(redlock.lock("a").acquire()).await;
        guard.unwrap().release().await.unwrap();
        assert!(took < ms(1), "{took:?}");
    }
}

/// Whether it polls never, or goes away.
#[tokio::test(start_paused = true)]
async fn the_wish_of_a_caller_who_never_had_a_lock_does_not_keep_that_of_another() {
    for goes_away in [false, true] {
        let (_cluster, redlock) = renewing(3).await;
        let lock = || redlock.lock("a").holder(Holder::from("h"));
        let unpolled = begin(lock().acquire());
        settle().await;
        let guard = lock().max_hold(secs(20)).acquire().await.unwrap();
        settle().await;
        let unpolled = (!goes_away).then_some(unpolled);
        sleep(secs(15)).await;
        assert!(guard.is_valid());
        sleep(secs(25)).await;
        assert!(!guard.is_valid(), "{goes_away}");
        drop(unpolled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_what_nobody_has() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = redlock.lock("a").holder(Holder::from("h"));
    let _unpolled = begin(lock.acquire());
    settle().await;
    let guard = lock.acquire().await.unwrap();
    assert_eq!(redlock.stats().held, 1);
    drop(guard);
    assert_eq!(redlock.stats().held, 0);
    let (ended, took) = timed(redlock.shutdown_gracefully(secs(30), secs(1))).await;
    assert!(took < secs(1), "{took:?} {ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_polls_late_gets_no_lease_that_has_too_little_left() {
    for (pause, is_given) in [(ms(7_897), true), (ms(7_899), false)] {
        let (cluster, redlock) = renewing(3).await;
        let mut acquire = begin(redlock.lock("a").try_acquire());
        settle().await;
        sleep(pause).await;
        let result = come(&mut acquire).unwrap();
        assert_eq!(result.is_ok(), is_given, "{result:?}");
        let Ok(guard) = result else {
            settle().await;
            assert!(cluster.keys().is_empty(), "given back");
            continue;
        };
        sleep(secs(60)).await;
        assert!(guard.is_valid(), "renewed from now on");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_won_for_a_caller_who_is_gone_is_released() {
    let (cluster, redlock) = renewing(3).await;
    let acquire = begin(redlock.lock("a").acquire());
    settle().await;
    assert_eq!(how_many_have(&cluster, "a"), 3);
    drop(acquire);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_try_that_is_dropped_has_queued_its_release_by_then_and_leaves_no_task() {
    let (cluster, redlock) = cluster_of(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    settle().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    for name in ["a", "b", "c"] {
        drop(begin(redlock.lock(name).acquire()));
        assert!(redlock.lock(name).try_acquire().await.is_ok(), "the release stands before the next try");
        let holder = || redlock.lock(name).holder(Holder::from("h"));
        drop(begin(holder().acquire()));
    }
    sleep(secs(1)).await;
    assert!(cluster.keys().is_empty());
    assert_eq!(Handle::current().metrics().num_alive_tasks(), tasks);
}

#[tokio::test(start_paused = true)]
async fn an_extend_whose_caller_is_gone_goes_on() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(5)).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(20), ms(20)));
    assert!(tokio::time::timeout(ms(10), guard.extend()).await.is_err());
    sleep(ms(40)).await;
    assert_eq!(guard.remaining(), ms(9_898) - ms(50));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_on_its_way_gives_no_lock_after_a_shutdown() {
    let (cluster, redlock) = cluster_of(3).await;
    let mut unpolled = begin(redlock.lock("won").acquire());
    settle().await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(25), ms(25)));
    let polled = tokio::spawn(redlock.lock("polled").acquire());
    let mut begun = begin(redlock.lock("begun").acquire());
    let mut by_holder = begin(redlock.lock("by a holder").holder(Holder::from("h")).acquire());
    sleep(ms(10)).await;
    let (result, took) = timed(redlock.shutdown(secs(5))).await;
    assert_eq!(result, Ok(Vec::new()));
    assert!(took <= ms(100), "{took:?}");
    assert!(cluster.keys().is_empty(), "what is on its way is given back, and what nobody has polled for");
    assert!(matches!(polled.await.unwrap(), Err(ref error) if error.kind() == "shut_down"));
    for acquire in [&mut unpolled, &mut begun, &mut by_holder] {
        let result = come(acquire).unwrap();
        assert!(matches!(result, Err(ref error) if error.kind() == "shut_down"), "{result:?}");
    }
}

#[test]
fn after_the_runtime_of_a_client_has_ended_its_calls_say_so_at_once() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (_cluster, redlock, guard, released) = first.block_on(async {
        let (cluster, redlock) = cluster_of(3).await;
        let (guard, released) = (held(&redlock, "a").await, held(&redlock, "b").await);
        (cluster, redlock, guard, released)
    });
    drop(first);
    runtime().block_on(async {
        let acquire = |name| redlock.lock(name).acquire();
        let told = tokio::time::timeout(secs(5), acquire("c")).await.unwrap();
        assert!(matches!(told, Err(ref error) if error.kind() == "runtime_ended"), "{told:?}");
        assert!(!told.unwrap_err().is_retryable());
        let told = redlock.lock("c").holder(Holder::from("h")).try_acquire().await;
        assert!(matches!(told, Err(ref error) if error.kind() == "runtime_ended"), "{told:?}");
        let told = guard.extend().await.unwrap_err().to_string();
        assert!(told.contains("runtime") && guard.is_valid(), "{told}");
        let told = released.release().await.unwrap_err().to_string();
        assert!(told.contains("runtime"), "{told}");
        let told = redlock.wait_connected(secs(1)).await.unwrap_err().to_string();
        assert!(told.contains("runtime"), "{told}");
    });
}

#[test]
fn limits_hold_in_another_runtime_while_that_of_the_client_does_not_run() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, other) = (runtime(), runtime());
    let (cluster, redlock) = first.block_on(cluster_of(3));
    other.block_on(async {
        let (waited, took) = timed(redlock.lock("a").wait_at_most(ms(50)).acquire()).await;
        let stalled = |error: &AcquireError| error.kind() == "stalled" && error.is_retryable();
        assert!(matches!(&waited, Err(AcquireError::DeadlinePassed { last, .. }) if stalled(last)), "{waited:?}");
        assert!(took <= ms(50) + 2 * TIMEOUT + ms(5), "{took:?}");
        let permit = redlock.semaphore("s", 2).wait_at_most(ms(900)).acquire().await.unwrap_err();
        assert!(matches!(&permit, AcquireError::DeadlinePassed { last, .. } if stalled(last)), "{permit:?}");
        let (tried, took) = timed(redlock.lock("a").try_acquire()).await;
        assert!(matches!(&tried, Err(error) if stalled(error)), "{tried:?}");
        assert!(took <= 3 * TIMEOUT + ms(5), "{took:?}");
        for limit in [None, Some(ms(50))] {
            let all = redlock.lock_all(["a", "b"]);
            let tried = async {
                match limit {
                    Some(limit) => all.wait_at_most(limit).acquire().await,
                    None => all.try_acquire().await,
                }
            };
            let (tried, took) = timed(tried).await;
            let why = match &tried {
                Err(AcquireError::DeadlinePassed { last, .. }) => last,
                Err(error) => error,
                Ok(_) => unreachable!("no task of the client runs"),
            };
            assert!(stalled(why), "{tried:?}");
            assert!(took <= 3 * TIMEOUT + ms(5), "{took:?}");
        }
    });
    first.block_on(async {
        sleep(secs(1)).await;
        assert!(cluster.keys().is_empty());
        assert!(redlock.lock("a").try_acquire().await.is_ok());
    });
}
