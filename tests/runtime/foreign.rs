//! Code of callers that runs where the library wakes them, and tasks of the library that go on after a panic.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{Guard, Redlock, Renewal};
use tokio::time::sleep;
use tracing::Level;

use crate::events::{listen, panic_at, told};
use crate::support::{OUT_OF_MEMORY, held, ms, renewing, secs};

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
async fn a_wait_for_the_end_of_a_lease_is_woken_by_its_release_under_no_mutex() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let lease = guard.lease();
    let mut lost = pin!(lease.lost());
    let waker = wait_with(&redlock, lost.as_mut()).await;
    drop(guard);
    assert_woken(&waker);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_end_of_a_lease_is_woken_by_its_expiry_under_no_mutex() {
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
async fn a_wait_for_the_end_of_a_lease_is_woken_by_answers_to_a_renewal_under_no_mutex() {
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

/// Answers are looked at in the task that renews, and in the one that releases.
#[tokio::test(start_paused = true)]
async fn an_answer_over_which_a_caller_panics_ends_no_renewals_and_no_releases() {
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
