//! Permits: never more than there are, passed on within a client and between clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redquorum::testing::{Cluster, Hang};
use redquorum::{AcquireError, BadRequest, Permit, Redlock, Renewal, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::support::{TIMEOUT, hang_first, ms, renewing, secs, settle, timed};

async fn clients(cluster: &Cluster, count: usize) -> Vec<Redlock> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(cluster.builder().connect().await.unwrap());
    }
    clients
}

async fn permits(semaphore: &Semaphore, count: usize) -> Vec<Permit> {
    let mut permits = Vec::new();
    for _ in 0..count {
        permits.push(semaphore.try_acquire().await.unwrap());
    }
    permits
}

fn waiting(semaphore: &Semaphore) -> JoinHandle<Result<Permit, AcquireError>> {
    tokio::spawn(semaphore.acquire())
}

async fn all_free(cluster: &Cluster) {
    sleep(TIMEOUT).await;
    assert_eq!(cluster.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn as_many_as_there_are_permits_have_one_each_with_its_own_index() {
    let (cluster, redlock) = renewing(3).await;
    let other = cluster.builder().connect().await.unwrap();
    let mut all = permits(&redlock.semaphore("a", 5), 3).await;
    all.extend(permits(&other.semaphore("a", 5), 2).await);
    let mut indexes: Vec<u32> = all.iter().map(Permit::index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2, 3, 4]);
    assert_eq!(cluster.keys(), ["a#0", "a#1", "a#2", "a#3", "a#4"]);
    for semaphore in [redlock.semaphore("a", 5), other.semaphore("a", 5)] {
        let error = semaphore.try_acquire().await.unwrap_err();
        assert!(error.is_contended(), "{error}");
    }
    let gone = all.pop().unwrap();
    let index = gone.index();
    assert!(gone.release().await.unwrap().was_still_held);
    assert_eq!(redlock.semaphore("a", 5).try_acquire().await.unwrap().index(), index);
    drop(all);
    all_free(&cluster).await;
}

/// Its guard says that it is lost, and is dropped when its work has stopped.
#[tokio::test(start_paused = true)]
async fn a_permit_whose_lease_was_lost_is_acquired_again_beside_its_guard() {
    let (_cluster, redlock) = renewing(3).await;
    let semaphore = redlock.semaphore("a", 2);
    let lost = permits(&semaphore.clone().renew(Renewal::Off), 2).await;
    sleep(secs(11)).await;
    let both = permits(&semaphore, 2).await;
    assert!(both.iter().all(|permit| permit.is_valid()) && !lost.iter().any(|permit| permit.is_valid()));
    assert!(semaphore.try_acquire().await.unwrap_err().is_contended());
    drop(lost);
    settle().await;
    assert!(both.iter().all(|permit| permit.is_valid()));
    assert!(semaphore.try_acquire().await.unwrap_err().is_contended());
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_had_in_one_round_trip_and_refused_by_one_more_read() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(5), ms(5)));
    let semaphore = redlock.semaphore("a", 3);
    let (permit, took) = timed(semaphore.acquire()).await;
    assert!(took < ms(25), "{took:?}");
    let other = cluster.builder().connect().await.unwrap();
    let (_two, took) = timed(permits(&other.semaphore("a", 3), 2)).await;
    assert!(took < ms(150), "{took:?}");
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_any_index_passes_to_the_next_waiter_of_its_client() {
    let (cluster, redlock) = renewing(3).await;
    let semaphore = redlock.semaphore("a", 6); // more than are waited for where others have them
    let mut held = permits(&semaphore, 6).await;
    let waiters = [(); 6].map(|()| waiting(&semaphore));
    settle().await;
    let rounds = redlock.stats().acquire_rounds;
    assert_eq!(redlock.stats().waiting, 6, "each is counted once");
    for waiter in waiters {
        let former = held.remove(held.len() / 2);
        let (index, token) = (former.index(), former.fencing_token());
        drop(former);
        let next = timeout(ms(1), waiter).await.unwrap().unwrap().unwrap();
        assert_eq!(next.index(), index);
        assert!(next.fencing_token() > token);
        held.push(next);
        settle().await; // the next of the line has its turn
    }
    let stats = redlock.stats();
    assert_eq!((stats.waiting, stats.acquired, stats.handed_over, stats.contended), (0, 12, 6, 0));
    assert_eq!(stats.acquire_rounds, rounds, "hand-overs need no request");
    drop(held);
    all_free(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_another_client_has_the_first_that_is_let_go_at_once() {
    for last in 0..3 {
        let (cluster, redlock) = renewing(3).await;
        let other = cluster.builder().connect().await.unwrap();
        let mut held = permits(&redlock.semaphore("a", 3), 3).await;
        let waiter = waiting(&other.semaphore("a", 3));
        sleep(secs(3)).await;
        assert_eq!((other.stats().waiting, other.stats().acquired), (1, 0));
        let former = held.remove(last);
        let index = former.index();
        let released = former.release().await.unwrap();
        let (next, took) = timed(waiter).await;
        assert!(released.was_still_held && took < ms(20), "{took:?}");
        assert_eq!(next.unwrap().unwrap().index(), index);
        assert_eq!(other.stats().waiting, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_waited_for_is_found_when_it_comes_free() {
    let (cluster, redlock) = renewing(3).await;
    let other = cluster.builder().connect().await.unwrap();
    let mut held = permits(&redlock.semaphore("a", 40), 40).await;
    let waiter = waiting(&other.semaphore("a", 40));
    sleep(secs(2)).await;
    // Nobody waits for most of them: one is found by the next read.
    let released = held.swap_remove(7);
    drop(released);
    let (next, took) = timed(waiter).await;
    assert!(next.unwrap().is_ok() && took <= ms(300), "{took:?}");
    drop(held);
    all_free(&cluster).await;
}

/// Each of the others is waited for at some time, so that its holder knows of the waiter.
#[tokio::test(start_paused = true)]
async fn of_permits_that_come_free_together_a_waiter_keeps_one_and_gives_back_the_others_at_once() {
    let cluster = Cluster::new(3);
    let clients = clients(&cluster, 3).await;
    let [has_all, waits, tries] = [0, 1, 2].map(|client: usize| clients[client].semaphore("a", 4));
    let all = permits(&has_all, 4).await;
    let waiting = waiting(&waits);
    sleep(secs(1)).await; // it waits for each of them
    drop(all);
    let permit = waiting.await.unwrap().unwrap();
    sleep(ms(20)).await;
    assert_eq!(permits(&tries, 3).await.len(), 3);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_only_permit_that_is_let_go_whatever_its_index_however_soon_it_is_taken_again() {
    for permits_in_all in [5, 8, 16] {
        for busy in 0..permits_in_all {
            let cluster = Cluster::new(3);
            cluster.instances().for_each(|instance| instance.slow_down(ms(1), ms(1)));
            let clients = clients(&cluster, 3).await;
            let [long, short, waits] = [0, 1, 2].map(|at: usize| clients[at].semaphore("a", permits_in_all as u32));
            let mut held = permits(&long, permits_in_all).await;
            held.retain(|permit| permit.index() != busy as u32);
            sleep(ms(20)).await;
            let crowd = tokio::spawn(async move {
                while let Ok(permit) = short.acquire().await {
                    sleep(ms(10)).await;
                    drop(permit);
                }
            });
            sleep(ms(100)).await;
            let (next, took) = timed(waits.wait_at_most(secs(60)).acquire()).await;
            let bound = ms(500) + ms(250) * permits_in_all as u32;
            assert!(next.is_ok() && took <= bound, "{busy} of {permits_in_all}: {took:?}");
            crowd.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_than_there_are_permits_among_sixteen_clients() {
    let cluster = Cluster::new(3);
    let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]); // now, and at most
    let mut tasks = JoinSet::new();
    for redlock in clients(&cluster, 16).await {
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            let semaphore = redlock.semaphore("a", 3);
            for _ in 0..20 {
                let permit = semaphore.acquire().await.unwrap();
                let now = inside[0].fetch_add(1, Ordering::SeqCst) + 1;
                inside[1].fetch_max(now, Ordering::SeqCst);
                sleep(ms(5)).await;
                assert!(permit.is_valid());
                inside[0].fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
            redlock
        });
    }
    let clients = timeout(secs(60), tasks.join_all()).await.expect("nobody starves");
    assert_eq!(inside[1].load(Ordering::SeqCst), 3);
    assert_eq!(clients.iter().map(|redlock| redlock.stats().acquired).sum::<u64>(), 320);
    all_free(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn of_many_that_try_at_once_as_many_get_one_as_there_are() {
    let cluster = Cluster::new(5);
    hang_first(&cluster, 2, Hang::Stopped);
    let clients = clients(&cluster, 12).await;
    let mut tasks = JoinSet::new();
    for redlock in &clients {
        tasks.spawn(redlock.semaphore("a", 3).try_acquire());
    }
    let (mut won, mut refused) = (Vec::new(), 0);
    for outcome in tasks.join_all().await {
        match outcome {
            Ok(permit) => won.push(permit),
            Err(error) if error.is_contended() => refused += 1,
            Err(error) => assert_eq!(error.kind(), "split_vote"),
        }
    }
    assert_eq!(won.len(), 3, "{refused} were refused");
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_at_any_moment_leaves_no_key_and_nobody_in_line() {
    let cluster = Cluster::new(3);
    let [redlock, other] = clients(&cluster, 2).await.try_into().unwrap();
    cluster.instances().for_each(|instance| instance.slow_down(ms(2), ms(1)));
    for taken in [0, 2, 3] {
        let held = permits(&other.semaphore("a", 3), taken).await;
        for after in 0..40 {
            let semaphore = redlock.semaphore("a", 3);
            drop(timeout(ms(after), semaphore.acquire()).await);
            drop(timeout(ms(after), semaphore.try_acquire()).await);
        }
        drop(held);
        sleep(secs(1)).await;
        assert_eq!(cluster.keys(), Vec::<String>::new(), "{taken} were taken");
        assert_eq!(redlock.stats().waiting, 0);
    }
    let all = permits(&redlock.semaphore("a", 3), 3).await;
    assert_eq!(all.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_nobody_collects_goes_to_the_next_waiter() {
    let (_cluster, redlock) = renewing(3).await;
    let semaphore = redlock.semaphore("a", 1);
    let held = semaphore.acquire().await.unwrap();
    let mut unpolled = Box::pin(semaphore.acquire());
    assert!(timeout(ms(10), &mut unpolled).await.is_err());
    let next = waiting(&semaphore);
    settle().await;
    drop(held);
    let (next, took) = timed(next).await;
    let next = next.unwrap().unwrap();
    assert!(took <= TIMEOUT + ms(20), "{took:?}");
    drop(next);
    assert!(timeout(secs(1), unpolled).await.unwrap().is_ok(), "it stands in line again when it is polled");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_and_says_who_has_one() {
    let (cluster, redlock) = renewing(3).await;
    let other = cluster.builder().connect().await.unwrap();
    let held = permits(&redlock.semaphore("a", 2), 2).await;
    let semaphore = other.semaphore("a", 2).wait_at_most(ms(300));
    let (first, (second, took)) = tokio::join!(semaphore.acquire(), timed(semaphore.acquire()));
    assert!(took < ms(300) + 2 * TIMEOUT, "{took:?}");
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!((error.kind(), error.is_contended()), ("deadline_passed", true), "{error}");
        assert_eq!(error.held_by().unwrap().resource, "a");
    }
    assert_eq!((other.stats().waiting, other.stats().contended), (0, 2));
    drop(held);
    all_free(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_every_wait() {
    let (_cluster, redlock) = renewing(3).await;
    let semaphore = redlock.semaphore("a", 1);
    let held = semaphore.acquire().await.unwrap();
    let waiters = [waiting(&semaphore), waiting(&semaphore)];
    settle().await;
    redlock.shutdown(secs(1)).await.unwrap();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), "shut_down");
    }
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn what_can_be_no_semaphore_is_refused_at_once_in_clear_words() {
    let (cluster, redlock) = renewing(3).await;
    for (name, permits, words) in [
        ("a", 0, "0 permits were asked for; a semaphore has 1 to 256"),
        ("a", 257, "257 permits were asked for; a semaphore has 1 to 256"),
        ("", 3, "a resource's name is empty"),
    ] {
        let semaphore = redlock.semaphore(name, permits);
        for error in [semaphore.acquire().await.unwrap_err(), semaphore.try_acquire().await.unwrap_err()] {
            assert!(error.to_string().ends_with(words) && !error.is_retryable(), "{error}");
        }
        assert!(semaphore.inspect().await.is_err());
    }
    let error = redlock.semaphore("a", 0).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::BadRequest(BadRequest::Permits { given: 0, most: 256, .. })));
    assert_eq!(cluster.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn of_two_sizes_the_larger_one_rules_and_a_look_shows_who_is_above_the_smaller() {
    let (cluster, redlock) = renewing(3).await;
    let small = cluster.builder().connect().await.unwrap().semaphore("a", 2);
    let held = permits(&redlock.semaphore("a", 4), 4).await;
    assert!(small.try_acquire().await.unwrap_err().is_contended());
    let above = redlock.semaphore("a", 4).inspect().await.unwrap();
    assert!(above.iter().all(|permit| permit.holder().is_some()));
    drop(held.into_iter().filter(|permit| permit.index() < 2).collect::<Vec<_>>());
    sleep(ms(50)).await;
    assert_eq!(permits(&small, 2).await.len(), 2);
}
