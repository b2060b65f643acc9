//! Code of callers that runs where the library wakes them: wakers that do what they like, or panic.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{Guard, Holder, Redlock, Renewal};
use tokio::time::{sleep, timeout};
use tracing::Level;

use crate::events::{listen, panic_at, told};
use crate::support::{OUT_OF_MEMORY, held, ms, renewing, secs, settle, timed};

/// Nothing else takes nearly as long as this in the time of people.
const STUCK: Duration = secs(60);

/// When it wakes, another thread drops a guard, which takes every mutex that a drop takes.
#[derive(Default)]
struct DropsGuards {
    guards: Mutex<Vec<Guard>>,
    stuck: AtomicUsize,
    woken: AtomicUsize,
}

impl Wake for DropsGuards {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        let guard = self.guards.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (done, is_done) = channel();
        thread::spawn(move || {
            drop(guard);
            done.send(())
        });
        let is_stuck = is_done.recv_timeout(STUCK).is_err();
        self.stuck.fetch_add(usize::from(is_stuck), Ordering::SeqCst);
    }
}

/// Polls once with a waker that drops guards of other locks.
async fn wait_with<T>(redlock: &Redlock, mut future: Pin<&mut impl Future<Output = T>>) -> Arc<DropsGuards> {
    let waker = Arc::new(DropsGuards::default());
    for name in ["b", "c", "d", "e"] {
        let guard = held(redlock, name).await;
        waker.guards.lock().unwrap().push(guard);
    }
    let mine = Waker::from(Arc::clone(&waker));
    assert!(future.as_mut().poll(&mut Context::from_waker(&mine)).is_pending());
    waker
}

fn assert_woken(waker: &DropsGuards) {
    assert!(waker.woken.load(Ordering::SeqCst) > 0);
    assert_eq!(waker.stuck.load(Ordering::SeqCst), 0, "a waker ran under a mutex");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_end_of_a_lease_is_woken_by_its_release_under_no_mutex() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let lease = guard.lease();
    let mut lost = pin!(lease.lost());
    let waker = wait_with(&redlock, lost.as_mut()).await;
    drop(guard);
    assert_woken(&waker);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_end_of_a_lease_is_woken_by_its_expiry_under_no_mutex() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().connect().await.unwrap();
    let guard = redlock.lock("a").renew(Renewal::Off).try_acquire().await.unwrap();
    let mut lost = pin!(guard.lost());
    let waker = wait_with(&redlock, lost.as_mut()).await;
    sleep(secs(20)).await;
    assert_woken(&waker);
}

/// Without pushes it is the answers to a renewal that tell.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_end_of_a_lease_is_woken_by_answers_to_a_renewal_under_no_mutex() {
    let cluster = Cluster::new(3);
    let redlock = cluster.builder().without_watched_keys().connect().await.unwrap();
    let guard = held(&redlock, "a").await;
    let mut lost = pin!(guard.lost());
    let waker = wait_with(&redlock, lost.as_mut()).await;
    cluster.instances().for_each(|instance: &TestInstance| assert!(instance.remove("a")));
    sleep(secs(5)).await;
    assert!(!guard.is_valid());
    assert_woken(&waker);
}

struct Panics;

impl Wake for Panics {
    #[expect(clippy::panic, reason = "it is what is tested")]
    fn wake(self: Arc<Self>) {
        panic!("a waker of a caller");
    }
}

/// Joins the line for "a" with a waker that panics.
fn begin_to_wait<'a>(redlock: &'a Redlock) -> Pin<Box<dyn Future<Output = Guard> + 'a>> {
    let mut waits: Pin<Box<dyn Future<Output = Guard> + 'a>> =
        Box::pin(async { redlock.lock("a").acquire().await.unwrap() });
    let waker = Waker::from(Arc::new(Panics));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    waits
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_nobody_else_in_the_line_from_the_lock() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held(&elsewhere, "a").await;
    let panics = begin_to_wait(&redlock);
    let next = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    drop(guard);
    let guard = next.await.unwrap().unwrap(); // the first is offered it, and does not poll
    drop((panics, guard));
    sleep(secs(1)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_nobody_else_from_being_told_of_a_shutdown() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let _guard = held(&elsewhere, "a").await;
    let _panics = [begin_to_wait(&redlock), begin_to_wait(&redlock)];
    let told = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    redlock.shutdown(secs(1)).await.unwrap();
    let error = tokio::time::timeout(ms(1), told).await.unwrap();
    assert!(matches!(error, Ok(Err(redquorum::AcquireError::ClientUnusable(_)))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_while_the_lock_is_handed_over_leaves_it_to_the_next() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let panics = begin_to_wait(&redlock);
    let next = tokio::spawn(redlock.lock("a").acquire());
    settle().await;
    drop(guard);
    drop(next.await.unwrap().unwrap());
    drop(panics);
    sleep(secs(1)).await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_ends_no_renewals_of_others() {
    let (cluster, redlock) = renewing(3).await;
    let (gone, kept) = (held(&redlock, "a").await, held(&redlock, "b").await);
    let mut lost = Box::pin(gone.lost());
    let waker = Waker::from(Arc::new(Panics));
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    cluster.instances().for_each(|instance: &TestInstance| assert!(instance.remove("a")));
    sleep(secs(5)).await;
    assert!(!gone.is_valid());
    drop(lost); // or its timer would wake it
    sleep(secs(30)).await;
    assert!(kept.is_valid());
}

#[tokio::test(start_paused = true)]
async fn whoever_listens_to_the_log_and_panics_ends_no_renewals_of_others() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    let (gone, kept) = (held(&redlock, "a").await, held(&redlock, "b").await);
    panic_at("lease lost: no quorum can have kept it");
    cluster.instances().for_each(|instance: &TestInstance| assert!(instance.remove("a")));
    sleep(secs(5)).await;
    assert!(!gone.is_valid());
    cluster.instances().for_each(|instance| instance.cut_off());
    panic_at("not renewed, will be tried again");
    sleep(secs(3)).await;
    cluster.instances().for_each(|instance| instance.resume());
    sleep(secs(30)).await;
    assert!(kept.is_valid());
    let told = told();
    assert_eq!(
        told.iter().filter(|line| line.contains("that was called from here has panicked")).count(),
        2,
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_nobody_from_being_woken_in_their_turn() {
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held(&elsewhere, "a").await;
    let lock = redlock.lock("a").holder(Holder::from("h"));
    let mut waiting = Box::pin(lock.acquire());
    assert!(timeout(ms(50), &mut waiting).await.is_err());
    let waker = Waker::from(Arc::new(Panics));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(guard);
    settle().await;
    drop(waiting);
    sleep(ms(10)).await; // it has let the lock go for others
    let guard = held(&elsewhere, "a").await;
    let next = tokio::spawn(async move { redlock.lock("a").acquire().await.unwrap() });
    sleep(secs(5)).await; // its pauses are long by now
    drop(guard);
    let (guard, took) = timed(next).await;
    assert!(took < ms(50), "{took:?}");
    drop(guard.unwrap());
}

/// Each connection has a task of its own.
#[tokio::test(start_paused = true)]
async fn whoever_listens_to_the_log_and_panics_ends_no_connection_for_good() {
    listen(Level::INFO);
    let (cluster, redlock) = renewing(3).await;
    settle().await;
    for message in ["disconnected", "connected"] {
        panic_at(message);
        cluster.instance(0).cut_off();
        settle().await;
        assert!(!redlock.instances()[0].connected);
        cluster.instance(0).resume();
        sleep(secs(5)).await;
        assert!(redlock.instances()[0].connected, "{message}");
    }
    assert!(told().iter().filter(|line| line.contains("that was called from here has panicked")).count() >= 1);
}

/// It is woken when there is news of a connection.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_ends_no_connection_for_good() {
    let cluster = Cluster::new(3);
    cluster.instances().for_each(|instance| instance.cut_off());
    let redlock = cluster.builder().build().unwrap();
    let mut waiting = Box::pin(redlock.wait_connected(secs(5)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()); // it wakes itself once
    let waker = Waker::from(Arc::new(Panics));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    sleep(secs(1)).await;
    drop(waiting);
    cluster.instances().for_each(TestInstance::resume);
    sleep(secs(5)).await;
    assert!(redlock.instances().iter().all(|instance| instance.connected));
}

/// Answers are looked at in the task that renews, and in the one that releases.
#[tokio::test(start_paused = true)]
async fn an_answer_over_which_somebody_panics_ends_no_renewals_and_no_releases() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    let (kept, released) = (held(&redlock, "a").await, held(&redlock, "b").await);
    for let_go in [None, Some(released)] {
        panic_at("it refuses requests for a reason of its own");
        cluster.instances().for_each(|instance| instance.refuse(OUT_OF_MEMORY));
        drop(let_go);
        sleep(secs(4)).await;
        cluster.instances().for_each(TestInstance::resume);
        sleep(secs(4)).await;
    }
    sleep(secs(30)).await;
    assert!(kept.is_valid());
    assert_eq!(cluster.keys(), ["a"]);
}

/// A wait is a task of the client; what listens to its events is not.
#[tokio::test(start_paused = true)]
async fn a_wait_whose_task_panics_goes_on() {
    listen(Level::DEBUG);
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    let guard = held(&elsewhere, "a").await;
    let waits = |redlock: &Redlock| {
        let redlock = redlock.clone();
        tokio::spawn(async move { redlock.lock("a").acquire().await.unwrap() })
    };
    let (first, second) = (waits(&redlock), waits(&redlock));
    sleep(ms(50)).await;
    panic_at("acquire round");
    sleep(secs(2)).await; // it asks, and panics
    assert!(told().iter().any(|line| line.starts_with("a task that waits for a lock has panicked")));
    drop(guard);
    let token = first.await.unwrap().fencing_token();
    let guard = second.await.unwrap();
    assert!(guard.fencing_token() > token);
    drop(guard);
    sleep(secs(1)).await;
    assert!(cluster.keys().is_empty());
}

/// By then nobody else knows of the lease.
#[tokio::test(start_paused = true)]
async fn whoever_listens_to_the_log_and_panics_keeps_no_lock_from_being_given_or_released() {
    listen(Level::DEBUG);
    let (cluster, redlock) = renewing(3).await;
    let elsewhere = cluster.builder().connect().await.unwrap();
    for (name, message) in [("a", "acquired"), ("b", "won"), ("c", "asks")] {
        panic_at(message);
        let guard = redlock.lock(name).acquire().await.unwrap();
        assert!(guard.release().await.unwrap().was_still_held, "{message}");
    }
    let guard = held(&elsewhere, "a").await;
    let waits = tokio::spawn(async move { redlock.lock("a").acquire().await.unwrap() });
    sleep(ms(50)).await;
    panic_at("wakes the next");
    drop(guard);
    let (guard, took) = timed(waits).await;
    assert!(took < secs(1), "{took:?}");
    panic_at("shut down: the leases that were held have ended");
    drop(guard);
    let _kept = held(&elsewhere, "b").await;
    elsewhere.shutdown(secs(5)).await.unwrap();
    assert!(cluster.keys().is_empty());
}
