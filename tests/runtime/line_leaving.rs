//! P24: a client that leaves the line, at whatever point, or is not polled, leaves no trace and holds nobody up.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redquorum::testing::Hang;
use redquorum::{AcquireError, Guard, Redlock};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, hang_first, held, ms, renewing, secs, settle, timed};

type Acquire<'a> = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + 'a>>;

/// Polls once, with a waker that does nothing.
fn poll(acquire: &mut Acquire<'_>) -> Option<Result<Guard, AcquireError>> {
    match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn begin<'a>(redlock: &'a Redlock, name: &'a str) -> Acquire<'a> {
    let mut acquire: Acquire<'a> = Box::pin(redlock.lock(name).acquire());
    assert!(poll(&mut acquire).is_none());
    acquire
}

/// The first of three in line is dropped after so many polls, each after the client's tasks have gone on; before, during
/// or after its turn.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_after_any_poll_leaves_the_lock_to_the_next() {
    for is_held_before in [false, true] {
        for polls in 1..40 {
            let (cluster, redlock) = renewing(3).await;
            settle().await;
            let tasks = Handle::current().metrics().num_alive_tasks();
            let mut guard = if is_held_before { Some(held(&redlock, "a").await) } else { None };
            cluster.instances().for_each(|instance| instance.slow_down(ms(1), ms(1)));
            let mut first = Some(begin(&redlock, "a"));
            let (mut second, mut third) = (begin(&redlock, "a"), begin(&redlock, "a"));
            let mut has_it = None;
            for step in 1..60 {
                tokio::task::yield_now().await;
                if step % 3 == 0 {
                    sleep(ms(1)).await;
                }
                if step == 15 {
                    drop(guard.take());
                }
                if step == polls {
                    first = None;
                }
                if let Some(result) = first.as_mut().and_then(poll) {
                    (has_it, first) = (Some(result.unwrap()), None);
                }
                if step == polls + 1 {
                    has_it = None;
                }
            }
            drop((guard, has_it, first));
            let (got, took) = timed(&mut second).await;
            assert!(took <= ms(250), "{polls}: {took:?}");
            let token = got.as_ref().unwrap().fencing_token();
            drop(got);
            let (got, _) = timed(&mut third).await;
            assert!(got.as_ref().unwrap().fencing_token() > token, "{polls}");
            drop(got);
            sleep(secs(1)).await;
            assert!(cluster.keys().is_empty(), "{polls}");
            assert_eq!(Handle::current().metrics().num_alive_tasks(), tasks, "{polls}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_offered_to_one_who_leaves_goes_to_the_next_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (first, second) = (begin(&redlock, "a"), tokio::spawn(redlock.lock("a").acquire()));
    settle().await;
    let sent = cluster.requests();
    drop(guard); // offered to the first, who is not polled
    settle().await;
    assert!(!second.is_finished());
    drop(first);
    let (second, took) = timed(timeout(secs(1), second)).await;
    assert!(second.unwrap().unwrap().unwrap().is_valid() && took.is_zero(), "{took:?}");
    assert_eq!(cluster.requests().acquire, sent.acquire);
}

/// It asks for other settings.
#[tokio::test(start_paused = true)]
async fn what_was_offered_to_one_who_leaves_and_the_next_cannot_take_is_released_for_it_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (first, second) = (begin(&redlock, "a"), tokio::spawn(redlock.lock("a").ttl(secs(5)).acquire()));
    settle().await;
    let sent = cluster.requests();
    drop((guard, first)); // it is offered, and then gone before its task could take it
    let (second, took) = timed(timeout(secs(1), second)).await;
    assert!(second.unwrap().unwrap().unwrap().is_valid() && took < ms(50), "{took:?}");
    assert_eq!(cluster.requests().acquire - sent.acquire, 3);
}

#[tokio::test(start_paused = true)]
async fn one_who_misses_its_turn_stands_in_line_again_when_it_is_polled() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let mut first = begin(&redlock, "a");
    let second = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    let third = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    drop(guard);
    let (second, took) = timed(timeout(secs(1), second)).await;
    assert!(took >= ms(200) && took <= ms(401), "{took:?}");
    assert!(poll(&mut first).is_none());
    drop(second);
    let third = third.await.unwrap().unwrap();
    assert!(poll(&mut first).is_none(), "behind the third");
    drop(third);
    settle().await;
    assert!(poll(&mut first).unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn nobody_who_is_not_polled_keeps_the_lock_from_other_clients() {
    let (cluster, redlock) = renewing(3).await;
    let _unpolled = [begin(&redlock, "a"), begin(&redlock, "a"), begin(&redlock, "a")];
    let other = cluster.builder().connect().await.unwrap();
    settle().await;
    let (got, took) = timed(other.lock("a").acquire()).await;
    assert!(got.unwrap().is_valid() && took <= secs(11), "{took:?}");
    sleep(secs(60)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_over_after_a_shutdown() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let waiting = tokio::spawn(redlock.lock("a").acquire());
    let holding = tokio::spawn(async move {
        guard.lost().await;
        guard.release().await
    });
    settle().await;
    let (done, took) = timed(redlock.shutdown(secs(5))).await;
    assert!(done.is_ok() && took <= ms(20), "{took:?}");
    let refused = waiting.await.unwrap();
    assert!(matches!(refused, Err(ref error) if error.kind() == "shut_down"), "{refused:?}");
    assert!(holding.await.unwrap().unwrap().was_still_held, "it was released when its work had stopped");
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_on_offer_at_a_shutdown_is_released() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let mut line = [begin(&redlock, "a"), begin(&redlock, "a")];
    settle().await;
    drop(guard);
    redlock.shutdown(secs(5)).await.unwrap();
    assert!(cluster.keys().is_empty());
    for acquire in &mut line {
        let refused = poll(acquire).unwrap();
        assert!(matches!(refused, Err(ref error) if error.kind() == "shut_down"), "{refused:?}");
    }
}

/// Once, a place that joined a line whose asker was just ending was told that the runtime had ended.
#[test]
fn those_in_line_are_told_of_the_end_of_the_runtime_only_when_it_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (_cluster, redlock, guard) = first.block_on(async {
        let (cluster, redlock) = cluster_of(3).await;
        let guard = held(&redlock, "a").await;
        (cluster, redlock, guard)
    });
    let mut line = [begin(&redlock, "a"), begin(&redlock, "a")];
    drop(first);
    for acquire in &mut line {
        let told = poll(acquire).unwrap();
        assert!(matches!(told, Err(ref error) if error.kind() == "runtime_ended"), "{told:?}");
    }
    runtime().block_on(async {
        let told = redlock.lock("a").acquire().await;
        assert!(matches!(told, Err(ref error) if error.kind() == "runtime_ended"), "{told:?}");
    });
    drop(guard);
}

/// Thousands come and go at random while an instance is hung: a client that stays gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiter_that_stays_gets_the_lock_while_thousands_come_and_go() {
    let (cluster, _) = cluster_of(3).await;
    let redlock = cluster.builder().retry_delay(ms(1), ms(2)).connect().await.unwrap();
    hang_first(&cluster, 1, Hang::RequestsLost);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                let mut got = 0;
                for round in 0..100_u64 {
                    let name = ["a", "b"][usize::from(round % 7 == 0)];
                    for step in 0..4 {
                        // A different number of polls each time.
                        let pause = std::time::Duration::from_micros((round * 37 + step * 11 + task) % 300);
                        let cancelled = tokio::time::timeout(pause, redlock.lock(name).acquire()).await;
                        if let Ok(result) = cancelled {
                            drop(result.unwrap());
                        }
                    }
                    drop(redlock.lock(name).acquire().await.unwrap());
                    got += 1;
                }
                got
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(tokio::time::timeout(secs(300), task).await.unwrap().unwrap(), 100);
    }
}
