//! The blocking client: threads without a runtime, on servers in the process.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed; threads wait in real time"
)]

mod forked;

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redquorum::blocking::Redlock;
use redquorum::testing::Cluster;
use redquorum::{AcquireError, Builder, LeaseView, Loss, Renewal, RunError};

const SECOND: Duration = Duration::from_secs(1);

fn connected(cluster: &Cluster, with: impl FnOnce(Builder) -> Builder) -> Redlock {
    Redlock::connect(with(cluster.builder())).unwrap()
}

fn free(cluster: &Cluster, name: &str) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < SECOND {
        if cluster.instances().all(|instance| instance.value(name).is_none()) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Takes a lock away from its holder. A quorum is enough for it to be held, and once two have lost it the holder
/// releases the third itself.
fn take_away(cluster: &Cluster, name: &str) {
    while !cluster.instances().all(|instance| instance.value(name).is_some()) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(cluster.instances().filter(|instance| instance.remove(name)).count() >= 2);
}

#[test]
fn one_thread_at_a_time_has_the_lock() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder);
    let (inside, times) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..20 {
                    let guard = redlock.lock("a").acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    times.fetch_add(1, Ordering::SeqCst);
                    assert!(guard.release().unwrap().was_still_held);
                }
            });
        }
    });
    assert_eq!(times.into_inner(), 160);
    assert!(free(&cluster, "a"));
}

#[test]
fn a_lease_is_renewed_while_its_holder_computes() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder.ttl(2 * SECOND));
    let guard = redlock.lock("a").acquire().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < SECOND * 9 / 2 {
        std::hint::spin_loop();
    }
    assert!(guard.is_valid());
    assert!(redlock.lock("a").try_acquire().is_err());
}

#[test]
fn a_loss_is_told_by_callback_and_to_what_waits_for_it() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder);
    let guard = redlock.lock("a").acquire().unwrap();
    let (told, losses) = mpsc::channel();
    guard.on_lost(move |loss| told.send(loss).unwrap());
    assert!(guard.lost_within(Duration::from_millis(20)).is_none());
    let other = redlock.clone();
    thread::spawn(move || other.shutdown(SECOND));
    assert!(matches!(guard.lost_within(20 * SECOND), Some(Loss::ShutDown)));
    assert!(matches!(losses.recv_timeout(20 * SECOND), Ok(Loss::ShutDown)));
    assert!(matches!(redlock.lock("b").try_acquire(), Err(ref error) if error.kind() == "shut_down"));
}

#[test]
fn work_runs_on_the_calling_thread_and_is_skipped_where_another_has_the_lock() {
    let cluster = Cluster::new(3);
    let (redlock, other) = (connected(&cluster, |builder| builder), connected(&cluster, |builder| builder));
    let here = thread::current().id();
    let run = redlock.lock("a").run(|lease| (lease.is_valid(), thread::current().id())).unwrap();
    assert_eq!(run, (true, here));
    assert!(free(&cluster, "a"));
    let guard = redlock.lock("a").acquire().unwrap();
    assert!(other.lock("a").try_run(|_| ()).unwrap().is_none());
    drop(guard);
    let lock = other.lock("a").wait_at_most(20 * SECOND);
    assert!(lock.run(|_| ()).is_ok() && lock.run(|_| ()).is_ok(), "it can be used again");
    let limit = Duration::from_millis(50);
    let guard = redlock.lock("a").acquire().unwrap();
    let refused = other.lock("a").wait_at_most(limit).run(|_| ());
    assert!(matches!(refused, Err(RunError::Acquire(AcquireError::DeadlinePassed { .. }))), "{refused:?}");
    drop(guard);
}

#[test]
fn work_whose_lock_was_lost_meanwhile_is_no_success() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder);
    let lose = |lease: LeaseView| {
        take_away(&cluster, "a");
        while lease.is_valid() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let run = redlock.lock("a").run(lose);
    assert!(matches!(run, Err(RunError::Lost(Loss::Gone { .. }))), "{run:?}");
    let run = redlock.lock("a").try_run(lose);
    assert!(matches!(run, Err(RunError::Lost(Loss::Gone { .. }))), "{run:?}");
}

#[test]
fn what_the_last_handle_lets_go_is_released_before_it_returns() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder);
    let guard = redlock.lock("a").acquire().unwrap();
    drop(redlock);
    assert!(guard.is_valid(), "a guard keeps its client");
    drop(guard);
    assert!(cluster.instances().all(|instance| instance.value("a").is_none()));
}

#[test]
fn the_last_handle_may_be_dropped_by_a_callback() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder);
    let guard = Arc::new(redlock.lock("a").acquire().unwrap());
    let (told, losses) = mpsc::channel();
    let kept = Arc::clone(&guard);
    guard.on_lost(move |_| {
        drop(kept);
        told.send(()).unwrap();
    });
    drop(guard);
    cluster.instances().for_each(|instance| instance.flush());
    losses.recv_timeout(20 * SECOND).unwrap();
    drop(redlock);
}

#[test]
fn settings_that_cannot_work_are_refused_and_no_thread_stays() {
    let refused = Redlock::build(redquorum::Redlock::builder().instances(["ftp://127.0.0.1"]));
    assert!(refused.is_err());
    let unreachable = redquorum::Redlock::builder()
        .instances(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"])
        .connect_timeout(Duration::from_millis(50));
    assert!(Redlock::connect(unreachable).is_err());
}

#[test]
fn a_lock_that_was_detached_goes_on_in_another_client() {
    let cluster = Cluster::new(3);
    let (one, two) = (connected(&cluster, |builder| builder), connected(&cluster, |builder| builder));
    let guard = one.lock("a").acquire().unwrap();
    let token = guard.fencing_token();
    let lease = guard.detach();
    drop(one);
    assert!(two.lock("a").try_acquire().unwrap_err().is_contended());
    let guard = two.attach(&lease).unwrap();
    assert_eq!(guard.fencing_token(), token);
    assert!(guard.release().unwrap().was_still_held);
    assert!(free(&cluster, "a"));
}

#[test]
fn several_locks_are_held_together_and_taken_apart() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder.ttl(4 * SECOND));
    let all = redlock.lock_all(["b", "a"]).wait_at_most(SECOND).acquire().unwrap();
    let contended = redlock.lock_all(["c", "b"]).try_acquire().unwrap_err();
    assert!(contended.is_contended(), "{contended}");
    assert!(all.is_valid() && all.remaining() <= 4 * SECOND && all.extend().unwrap() > 2 * SECOND);
    assert!(all.lost_within(Duration::ZERO).is_none() && free(&cluster, "c"));
    assert!(all.fencing_token("a").is_some() && all.fencing_token("c").is_none());
    let mut guards = all.into_guards();
    assert!(guards.pop().unwrap().release().unwrap().was_still_held);
    assert!(free(&cluster, "b") && guards[0].is_valid());
    drop(guards);
    assert!(free(&cluster, "a"));
    assert_eq!(redlock.lock_all(["a", "b"]).run(|leases| leases.leases().len()).unwrap(), 2);
    let lost = redlock.lock_all(["a", "b"]).run(|_| {
        take_away(&cluster, "a");
        thread::sleep(3 * SECOND);
    });
    assert!(matches!(lost, Err(RunError::Lost(_))), "{lost:?}");
    assert!(free(&cluster, "a") && free(&cluster, "b"));
    assert!(redlock.lock_all(["a", "b"]).try_acquire().unwrap().release().unwrap().was_still_held);
}

#[test]
fn permits_are_numbered_and_never_more_than_there_are() {
    let cluster = Cluster::new(3);
    let redlock = connected(&cluster, |builder| builder.ttl(4 * SECOND));
    let semaphore = redlock.semaphore("a", 2).wait_at_most(20 * SECOND);
    assert_eq!(semaphore.permits(), 2);
    let (one, two) = (semaphore.acquire().unwrap(), semaphore.try_acquire().unwrap());
    assert!(one.index() != two.index() && one.is_valid() && two.extend().unwrap() > 2 * SECOND);
    assert!(semaphore.try_acquire().unwrap_err().is_contended());
    assert!(semaphore.inspect().unwrap().iter().all(|permit| permit.holder().is_some()));
    let waiting = thread::spawn(move || semaphore.acquire().map(|permit| permit.index()));
    thread::sleep(Duration::from_millis(50));
    let index = one.index();
    assert!(one.release().unwrap().was_still_held);
    assert_eq!(waiting.join().unwrap().unwrap(), index);
    assert!(two.into_guard().release().unwrap().was_still_held);
    assert!(free(&cluster, "a#0") && free(&cluster, "a#1"));
}

#[test]
fn a_thread_leads_and_another_sees_it() {
    let cluster = Cluster::new(3);
    let (redlock, worker) =
        (connected(&cluster, |builder| builder.ttl(4 * SECOND)), connected(&cluster, |builder| builder));
    let (election, asked) = (redlock.election("e"), worker.election("e"));
    let mut observer = asked.observe().unwrap();
    assert!(asked.leader().unwrap().is_none() && observer.next_within(SECOND / 20).is_none());
    let leadership = election.campaign("me").unwrap();
    assert_eq!((leadership.info(), observer.next().unwrap().token), ("me", leadership.fencing_token()));
    leadership.resign().unwrap();
    let mut begun = 0;
    let token = election.lead("again", |lease| {
        begun += 1;
        if begun == 1 {
            take_away(&cluster, "e");
            thread::sleep(2 * SECOND);
        }
        lease.fencing_token()
    });
    assert!(begun == 2 && token.is_ok() && free(&cluster, "e") && asked.leader().unwrap().is_none());
}

/// Carries a future out on this thread, which is in no runtime.
fn on_this_thread<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn every_future_of_a_client_works_on_a_thread_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_cluster, redlock) = runtime.block_on(async {
        let cluster = Cluster::new(3);
        let redlock = cluster.builder().build().unwrap();
        (cluster, redlock)
    });
    on_this_thread(redlock.wait_connected(30 * SECOND)).unwrap();
    let guard = on_this_thread(redlock.lock("a").acquire()).unwrap();
    let held = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(guard);
    });
    drop(on_this_thread(redlock.lock_all(["a", "b"]).acquire()).unwrap());
    held.join().unwrap();
    let pause = Duration::from_millis(20);
    let work = async |_lease: LeaseView| thread::spawn(move || thread::sleep(pause)).join().unwrap();
    on_this_thread(redlock.lock("c").run(work)).unwrap();
    let short = redlock.lock("d").ttl(SECOND / 5).renew(Renewal::Off);
    let guard = on_this_thread(short.acquire()).unwrap();
    assert!(matches!(on_this_thread(guard.lost()), Loss::Expired { .. }));
    assert!(on_this_thread(redlock.lock("d").wait_at_most(30 * SECOND).acquire()).is_ok());
    assert_eq!(on_this_thread(redlock.election("e").leader()).unwrap(), None);
    on_this_thread(redlock.shutdown_gracefully(SECOND, SECOND)).unwrap();
}
