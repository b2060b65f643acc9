//! P21: work that runs while a lock is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, BadRequest, Loss, Renewal, RunError};
use tokio::time::{sleep, timeout};
use tracing::Level;

use crate::events::{listen, told};
use crate::support::{TIMEOUT, cluster_of, hang_first, held, how_many_have, ms, renewing, secs, settle, timed};

/// Says when the work that holds it was dropped.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn is_down(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn work(&self) -> impl Future<Output = ()> + use<> {
        struct Work(Flag);
        impl Drop for Work {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::Relaxed);
            }
        }
        let work = Work(self.clone());
        async move {
            let _work = work;
            std::future::pending().await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_takes_many_ttls_runs_to_its_end_and_gives_its_output() {
    let (cluster, redlock) = renewing(5).await;
    let working = redlock.lock("a").run(async |lease| {
        for _ in 0..100 {
            sleep(secs(1)).await;
            assert!(lease.is_valid());
        }
        lease.fencing_token()
    });
    let (run, took) = timed(working).await;
    assert_eq!(took, secs(100));
    assert!(held(&redlock, "a").await.fencing_token() > run.unwrap());
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_works_own_error_is_its_output() {
    let (cluster, redlock) = renewing(3).await;
    listen(Level::WARN);
    let failed = redlock.lock("a").run(async |_| Err::<(), _>("not today")).await.unwrap();
    assert_eq!(failed, Err("not today"));
    assert_eq!(told(), [""; 0], "all went well with the lock");
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_is_not_begun_without_the_lock() {
    let (cluster, redlock) = renewing(3).await;
    let _guard = held(&redlock, "a").await;
    let begun = AtomicBool::new(false);
    let lock = redlock.lock("a").wait_at_most(secs(1));
    let error = lock.run(async |_| begun.store(true, Ordering::Relaxed)).await.unwrap_err();
    let RunError::Acquire(AcquireError::DeadlinePassed { last, .. }) = error else { panic!("{error:?}") };
    assert!(matches!(*last, AcquireError::Contended(_)), "{last:?}");
    cluster.instances().for_each(TestInstance::cut_off);
    let error = redlock.lock("b").wait_at_most(secs(1)).run(async |_| begun.store(true, Ordering::Relaxed)).await;
    assert!(matches!(error, Err(RunError::Acquire(_))), "{error:?}");
    assert!(!begun.into_inner());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_validity_has_passed_and_not_before() {
    for how in [Hang::Stopped, Hang::RequestsLost] {
        let (cluster, redlock) = renewing(5).await;
        let flag = Flag::default();
        let (other, work) = (redlock.clone(), flag.work());
        let running = tokio::spawn(async move { timed(other.lock("a").run(async |_| work.await)).await });
        settle().await;
        hang_first(&cluster, 3, how);
        sleep(ms(9_897)).await;
        assert!(!flag.is_down());
        sleep(ms(1)).await;
        settle().await;
        assert!(flag.is_down());
        let (error, took) = running.await.unwrap();
        assert!(matches!(error, Err(RunError::Lost(Loss::Expired { .. }))), "{error:?}");
        assert_eq!(took, ms(9_898), "and nobody waits for a release");
        cluster.instances().for_each(TestInstance::resume);
        sleep(secs(2)).await;
        assert!(cluster.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_lock_was_taken_over_and_theirs_is_left_alone() {
    let (cluster, redlock) = renewing(5).await;
    let (other, flag) = (cluster.clone(), Flag::default());
    tokio::spawn(async move {
        sleep(secs(1)).await;
        other.instances().for_each(|instance| instance.set("a", "foreign"));
    });
    let (error, took) = timed(redlock.lock("a").run(async |_| flag.work().await)).await;
    assert!(matches!(error, Err(RunError::Lost(Loss::TakenOver { .. }))), "{error:?}");
    assert!(flag.is_down() && took == secs(1), "{took:?}");
    settle().await;
    assert!(cluster.instances().all(|instance| instance.value("a").as_deref() == Some(b"foreign")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_work_comes_through_and_the_lock_is_released() {
    for before_it_waits in [true, false] {
        let (cluster, redlock) = renewing(3).await;
        let panicked = tokio::spawn(async move {
            let work = async |_| {
                if !before_it_waits {
                    sleep(secs(15)).await;
                }
                panic!("as planned")
            };
            redlock.lock("a").run(work).await
        });
        assert!(panicked.await.unwrap_err().is_panic());
        settle().await;
        assert!(cluster.keys().is_empty());
        let sent = cluster.requests();
        sleep(secs(60)).await;
        assert_eq!(cluster.requests(), sent, "nor is it renewed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_drops_its_work_and_releases_the_lock() {
    let (cluster, redlock) = renewing(3).await;
    let flag = Flag::default();
    assert!(timeout(secs(15), redlock.lock("a").run(async |_| flag.work().await)).await.is_err());
    assert!(flag.is_down());
    settle().await;
    assert!(cluster.keys().is_empty());
    let sent = cluster.requests();
    sleep(secs(60)).await;
    assert_eq!(cluster.requests(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_nobody_confirms_is_logged_and_does_not_hide_the_output() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(5).await;
    let hanging = cluster.clone();
    let work = async |_| {
        hang_first(&hanging, 3, Hang::Stopped);
        Err::<(), _>("the work's own")
    };
    let (run, took) = timed(redlock.lock("a").run(work)).await;
    assert_eq!(run.unwrap(), Err("the work's own"));
    let lines = told();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("its work is done, its release is not confirmed resource=\"a\" token="), "{line}");
    assert!(line.contains("memory:0, memory:1, memory:2: no answer within"), "{line}");
    assert_eq!(took, TIMEOUT);
    cluster.instances().for_each(TestInstance::resume);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_deleted_unseen_is_logged_when_its_work_has_ended() {
    let (cluster, redlock) = cluster_of(3).await;
    let flushing = cluster.clone();
    listen(Level::WARN);
    redlock.lock("a").run(async |_| flushing.instances().for_each(TestInstance::flush)).await.unwrap();
    let mut lines = told();
    lines.retain(|line| !line.starts_with("in quarantine"));
    assert!(
        matches!(lines.as_slice(), [line] if line.starts_with("the lock was gone when its work had ended")),
        "{lines:?}"
    );
    assert_eq!(how_many_have(&cluster, "a"), 0);
}

/// A timer wakes a moment late: the clock decides with each poll.
#[tokio::test(start_paused = true)]
async fn work_is_never_polled_once_its_lock_is_over() {
    let (_cluster, redlock) = cluster_of(3).await;
    for ttl in 100..140 {
        let lock = redlock.lock("a").ttl(ms(ttl)).renew(Renewal::Off);
        let run = lock.run(async |lease| {
            loop {
                sleep(ms(1)).await;
                assert!(lease.is_valid(), "with a ttl of {ttl} ms");
            }
        });
        let run: Result<(), _> = run.await;
        assert!(matches!(run, Err(RunError::Lost(Loss::Expired { .. }))), "{run:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_from_all_for_as_long_as_it_was_to_be_however_soon_its_work_ends() {
    for fails in [false, true] {
        let (_cluster, redlock) = renewing(3).await;
        let other = redlock.lock("a").at_least(secs(60));
        let job = redlock.lock("a").at_least(secs(600));
        let work = async |_| {
            sleep(secs(20)).await;
            if fails { Err("not today") } else { Ok(()) }
        };
        let (done, took) = timed(job.try_run(work)).await;
        assert_eq!((done.unwrap(), took), (Some(if fails { Err("not today") } else { Ok(()) }), secs(20)));
        sleep(secs(579)).await; // from when it was acquired, not from when the work has ended
        assert_eq!(other.try_run(async |_| ()).await.unwrap(), None);
        sleep(secs(8)).await; // 1 % of it, as an instance's clock may be the faster one
        assert_eq!(other.try_run(async |_| sleep(secs(61)).await).await.unwrap(), Some(()), "and it is free then");
        assert!(held(&redlock, "a").await.is_valid(), "released, as the work took longer");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_did_not_end_leaves_no_mark() {
    let (cluster, redlock) = renewing(3).await;
    let job = redlock.lock("a").at_least(secs(600));
    assert!(timeout(secs(1), job.try_run(async |_| sleep(secs(9)).await)).await.is_err());
    settle().await;
    assert!(cluster.keys().is_empty(), "it was dropped");
    let waits = job.run(async |_| panic!("what waits would do it again")).await;
    assert!(matches!(waits, Err(RunError::Acquire(AcquireError::BadRequest(BadRequest::AtLeastWaits)))), "{waits:?}");
    cluster.instances().for_each(TestInstance::cut_off);
    let begun = AtomicBool::new(false);
    let too_long = redlock.lock("a").at_least(secs(11 * 366 * 86_400));
    let result = too_long.try_run(async |_| begun.store(true, Ordering::Relaxed)).await;
    assert!(matches!(result, Err(RunError::Acquire(AcquireError::BadRequest(_)))), "{result:?}");
    assert!(!begun.into_inner());
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_not_confirmed_is_told_of() {
    let (cluster, redlock) = renewing(3).await;
    listen(Level::WARN);
    let cut = async |_| cluster.instances().for_each(TestInstance::cut_off);
    assert_eq!(redlock.lock("a").at_least(secs(600)).try_run(cut).await.unwrap(), Some(()), "the work is done");
    assert!(told().iter().any(|line| line.contains("is not confirmed")), "{:?}", told());
}
