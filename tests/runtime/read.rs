//! P33, P34: readers share a lock, a writer excludes them, and a writer that waits lets in no more of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{AcquireError, BadRequest, Holder, HolderKind, Loss, ReadGuard, Redlock};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::{cluster_of, held, ms, renewing, secs, settle, timed};

async fn all_read(readers: Vec<JoinHandle<Result<ReadGuard, AcquireError>>>) -> Vec<ReadGuard> {
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().unwrap());
    }
    guards
}

async fn reads(redlock: &Redlock) -> ReadGuard {
    redlock.rw_lock("a").try_read().await.unwrap()
}

async fn two_clients() -> (Cluster, Redlock, Redlock) {
    let (cluster, ours) = renewing(5).await;
    let other = cluster.builder().connect().await.unwrap();
    (cluster, ours, other)
}

fn kind(error: &AcquireError) -> HolderKind {
    error.held_by().unwrap().by.kind
}

/// P13: readers have no token, and no floor keeps them out; the writer behind them has one above it.
#[tokio::test(start_paused = true)]
async fn readers_are_let_in_and_stay_whatever_the_floor_is() {
    let (cluster, ours, other) = two_clients().await;
    let first = held(&ours, "a").await.fencing_token();
    settle().await;
    let reader = reads(&ours).await;
    sleep(secs(300)).await;
    assert!(cluster.instances().all(|instance| instance.floor() > Some(first)));
    let second = reads(&other).await;
    assert!(reader.is_valid() && second.is_valid());
    drop((reader, second));
    let late = cluster.builder_with_wall_clock_behind(secs(600)).connect().await.unwrap();
    let guard = late.rw_lock("a").write().await.unwrap();
    assert!(cluster.instances().all(|instance| instance.floor() < Some(guard.fencing_token())));
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_lock_and_exclude_every_lock_of_its_name_until_the_last_has_gone() {
    let (cluster, ours, other) = two_clients().await;
    let (one, second) = (reads(&ours).await, reads(&ours).await);
    let third = reads(&other).await;
    for guard in [&one, &second, &third] {
        assert!(guard.is_valid() && guard.redundancy().held_on >= 3, "{guard:?}");
        assert_eq!(guard.resource(), "a".into());
    }
    for client in [&ours, &other] {
        let error = client.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(kind(&error), HolderKind::Readers, "{error}");
        assert!(error.to_string().contains("readers"), "{error}");
        assert!(matches!(client.rw_lock("a").try_write().await, Err(AcquireError::Contended(_))));
    }
    assert!(cluster.instances().all(|instance| !instance.set_if_absent("a", "theirs", secs(1))));
    assert!(one.release().await.unwrap().was_still_held);
    drop(second);
    settle().await;
    assert!(other.lock("a").try_acquire().await.is_err());
    assert!(third.release().await.unwrap().was_still_held);
    assert!(cluster.keys().is_empty());
    assert!(other.lock("a").try_acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_the_lock_is_named_to_readers() {
    let (cluster, ours, other) = two_clients().await;
    let guard = held(&other, "a").await;
    let error = ours.rw_lock("a").try_read().await.unwrap_err();
    assert_eq!(error.held_by().and_then(|by| by.by.client.clone()), Some(other.client_id()), "{error}");
    assert!(
        other.rw_lock("a").try_read().await.is_err_and(|error| error.held_by().is_some_and(|by| by.in_this_client))
    );
    drop(guard);
    settle().await;
    cluster.instances().for_each(|instance| assert!(instance.set_if_absent("a", "theirs", secs(1))));
    let error = ours.rw_lock("a").try_read().await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    let late = ours.rw_lock("a").wait_at_most(ms(100)).read().await.unwrap_err();
    assert!(matches!(late, AcquireError::DeadlinePassed { .. }) && late.is_contended(), "{late}");
    assert!(ours.rw_lock("a").wait_at_most(secs(5)).read().await.is_ok(), "it has expired");
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_renewed_and_its_loss_shows_with_a_renewal() {
    let (cluster, ours, other) = two_clients().await;
    let (one, second) = (reads(&ours).await, reads(&other).await);
    sleep(secs(60)).await;
    assert!(one.is_valid() && second.is_valid());
    cluster.instances().take(3).for_each(|instance| assert!(instance.remove("a")));
    let (loss, took) = timed(timeout(secs(10), one.lost())).await;
    assert!(matches!(loss, Ok(Loss::Gone { .. })), "{loss:?}");
    assert!(took <= secs(4), "{took:?}");
    assert!(matches!(timeout(secs(10), second.lost()).await, Ok(Loss::Gone { .. })));
    settle().await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_a_minority_has_lost_is_put_back() {
    let (cluster, ours, _other) = two_clients().await;
    let guard = reads(&ours).await;
    settle().await;
    cluster.instances().take(2).for_each(|instance| assert!(instance.remove("a")));
    assert!(guard.extend().await.is_ok());
    settle().await;
    assert_eq!((cluster.keys().len(), guard.redundancy().held_on), (1, 5));
    assert!(cluster.instances().all(|instance| !instance.set_if_absent("a", "theirs", secs(1))));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_lets_in_no_more_readers_and_gets_the_lock_with_the_last() {
    let (cluster, ours, other) = two_clients().await;
    let guard = reads(&ours).await;
    let waiting = tokio::spawn(other.rw_lock("a").write());
    sleep(secs(2)).await;
    for client in [&ours, &other] {
        let error = client.rw_lock("a").try_read().await.unwrap_err();
        assert!(error.is_contended(), "{error}");
    }
    assert_eq!(kind(&ours.rw_lock("a").try_read().await.unwrap_err()), HolderKind::WaitingWriter);
    assert!(guard.is_valid() && guard.extend().await.is_ok(), "it goes on");
    let readers: Vec<_> = (0..8).map(|_| tokio::spawn(ours.rw_lock("a").read())).collect();
    sleep(secs(3)).await;
    assert!(!waiting.is_finished() && readers.iter().all(|reader| !reader.is_finished()));

    drop(guard);
    let (writer, took) = timed(waiting).await;
    let writer = writer.unwrap().unwrap();
    assert!(took <= ms(10), "it was woken: {took:?}");
    sleep(secs(3)).await;
    assert!(writer.is_valid() && readers.iter().all(|reader| !reader.is_finished()));
    drop(writer);
    let (together, took) = timed(all_read(readers)).await;
    assert!(together.iter().all(|guard| guard.is_valid()) && took <= ms(100), "{took:?}");
    drop(together);
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_writer_gets_in_beside_readers_that_come_all_the_time() {
    let (cluster, ours, other) = two_clients().await;
    let read = Arc::new(AtomicUsize::new(0));
    for number in 0..8_u64 {
        let (lock, read) = (if number % 2 == 0 { &ours } else { &other }.rw_lock("a"), Arc::clone(&read));
        tokio::spawn(async move {
            sleep(ms(7 * number)).await;
            while let Ok(guard) = lock.read().await {
                sleep(ms(60)).await;
                read.fetch_add(1, Ordering::Relaxed);
                drop(guard);
            }
        });
    }
    sleep(ms(100)).await;
    for _ in 0..10 {
        let before = read.load(Ordering::Relaxed);
        let (writer, took) = timed(other.rw_lock("a").write()).await;
        let writer = writer.unwrap();
        assert!(took <= ms(250), "the readers that were there, and a few round trips: {took:?}");
        assert!(cluster.instances().filter(|instance| instance.value("a").is_some()).count() >= 3);
        drop(writer);
        sleep(ms(400)).await;
        assert!(read.load(Ordering::Relaxed) >= before + 8, "readers get in behind it");
    }
}

#[tokio::test(start_paused = true)]
async fn many_readers_and_a_writer_of_one_client() {
    let (cluster, ours) = renewing(5).await;
    let lock = ours.rw_lock("a");
    let (guards, took) = timed(futures_util::future::join_all((0..64).map(|_| lock.read()))).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    assert!(took <= ms(10), "{took:?}");
    assert_eq!((ours.stats().held, ours.stats().read), (64, 64));
    sleep(secs(30)).await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    let writer = tokio::spawn(lock.write());
    sleep(ms(500)).await;
    let readers: Vec<_> = (0..64).map(|_| tokio::spawn(lock.read())).collect();
    sleep(secs(1)).await;
    assert!(!writer.is_finished());
    drop(guards);
    let (writer, took) = timed(writer).await;
    assert!(took <= ms(20), "{took:?}");
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    drop(writer.unwrap().unwrap());
    for reader in readers {
        assert!(reader.await.unwrap().is_ok());
    }
    settle().await;
    assert!(cluster.keys().is_empty());
}

/// P25, P34: the others are not known to the writer that goes.
#[tokio::test(start_paused = true)]
async fn of_many_clients_that_wait_to_read_64_are_woken_and_the_others_are_in_within_a_second() {
    let (cluster, ours) = renewing(3).await;
    let guard = held(&ours, "a").await;
    let mut readers = Vec::new();
    for _ in 0..96 {
        let client = cluster.builder().connect().await.unwrap();
        readers.extend((0..2).map(|_| tokio::spawn(client.rw_lock("a").read())));
        sleep(ms(5)).await; // its wait begins after those of the clients before
    }
    sleep(secs(5)).await;
    drop(guard);
    sleep(ms(10)).await;
    let woken = readers.iter().filter(|reader| reader.is_finished()).count();
    assert!(woken >= 2 * 64, "{woken}");
    let (read, took) = timed(all_read(readers)).await;
    assert!(woken < read.len() && took <= secs(1), "{woken} of {}, {took:?}", read.len());
}

#[tokio::test(start_paused = true)]
async fn writers_of_one_client_do_not_keep_its_readers_out_for_ever() {
    let (_cluster, ours) = renewing(3).await;
    let lock = ours.rw_lock("a");
    for _ in 0..4 {
        let lock = lock.clone();
        tokio::spawn(async move {
            while let Ok(guard) = lock.write().await {
                sleep(ms(20)).await;
                drop(guard);
            }
        });
    }
    sleep(ms(100)).await;
    for _ in 0..5 {
        let (reader, took) = timed(lock.read()).await;
        assert!(reader.is_ok() && took <= ms(200), "behind those that were there: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_or_given_up_leaves_no_reader_and_no_mark() {
    let (cluster, ours, other) = two_clients().await;
    drop(timeout(ms(0), ours.rw_lock("a").read()).await);
    settle().await;
    assert!(cluster.keys().is_empty());

    let guard = reads(&ours).await;
    assert!(other.rw_lock("a").try_write().await.is_err());
    let next = reads(&other).await; // a try leaves no mark
    drop(next);
    let late = other.rw_lock("a").wait_at_most(secs(1)).write().await.unwrap_err();
    assert_eq!(kind(&late), HolderKind::Readers, "{late}");
    settle().await;
    drop(reads(&other).await); // its mark has gone
    drop(timeout(secs(1), other.rw_lock("a").write()).await);
    settle().await;
    drop(reads(&other).await);

    let reader = tokio::spawn(ours.rw_lock("a").read());
    let writer = tokio::spawn(other.rw_lock("a").write());
    sleep(secs(1)).await;
    let behind = tokio::spawn(ours.rw_lock("a").read());
    sleep(secs(1)).await;
    assert!(reader.is_finished() && !behind.is_finished());
    writer.abort();
    let (behind, took) = timed(behind).await;
    assert!(behind.unwrap().is_ok() && took <= ms(1_100), "{took:?}");
    drop((guard, reader.await.unwrap().unwrap()));
    sleep(ms(10)).await;
    assert!(cluster.keys().is_empty(), "{:?}", cluster.keys());
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_client_that_is_gone_ends_by_itself() {
    let (cluster, ours, other) = two_clients().await;
    let _guard = reads(&ours).await;
    let writer = tokio::spawn(other.rw_lock("a").write());
    sleep(secs(1)).await;
    cluster.instances().for_each(TestInstance::cut_off);
    writer.abort();
    drop(other);
    settle().await;
    cluster.instances().for_each(TestInstance::resume);
    let (reader, took) = timed(ours.rw_lock("a").read()).await;
    assert!(reader.is_ok() && took <= secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_would_wait_for_itself_is_told_so() {
    let (_cluster, ours) = cluster_of(3).await;
    let lock = ours.rw_lock("a").holder(Holder::from("me"));
    let reader = lock.read().await.unwrap();
    let ordinary = ours.lock("a").holder(Holder::from("me")).wait_at_most(secs(1));
    for refused in [lock.write().await, lock.try_write().await, ordinary.acquire().await, ordinary.try_acquire().await]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, AcquireError::BadRequest(BadRequest::WaitsForItself { .. })), "{error}");
    }
    let (_first, both) =
        (held(&ours, "0").await, ours.lock_all(["0", "a"]).holder(Holder::from("me")).wait_at_most(secs(1)));
    for refused in [both.acquire().await, both.try_acquire().await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, AcquireError::BadRequest(BadRequest::WaitsForItself { .. })), "{error}");
    }
    let again = lock.read().await.unwrap();
    let another = tokio::spawn(ours.rw_lock("a").write());
    sleep(ms(500)).await;
    assert!(matches!(lock.read().await, Err(AcquireError::BadRequest(BadRequest::WaitsForItself { .. }))));
    drop((reader, again));
    drop(another.await.unwrap().unwrap());
    let writer = lock.write().await.unwrap();
    assert!(matches!(lock.read().await, Err(AcquireError::BadRequest(BadRequest::WaitsForItself { .. }))));
    drop(writer);
    assert!(lock.read().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn readers_are_shown_and_can_be_taken_away() {
    let (cluster, ours, other) = two_clients().await;
    let (one, _second) = (reads(&ours).await, reads(&other).await);
    let _writer = tokio::spawn(other.rw_lock("a").write());
    sleep(secs(1)).await;
    let seen = ours.inspect("a").await.unwrap();
    let kinds: Vec<_> = seen.holders.iter().map(|holder| holder.by.kind).collect();
    assert_eq!(kinds, [HolderKind::Reader, HolderKind::Reader, HolderKind::WaitingWriter], "{seen:?}");
    assert!(seen.free_on.is_empty() && seen.unknown.is_empty() && seen.holder().is_some());
    let of_ours = seen.holders.iter().find(|holder| holder.by.client == Some(ours.client_id())).unwrap();
    let forced = ours.force_release("a", &of_ours.by).await.unwrap();
    assert!(forced.is_complete() && forced.released_on.len() == 5, "{forced:?}");
    assert!(matches!(timeout(secs(10), one.lost()).await, Ok(Loss::Gone { .. })));
    let seen = ours.inspect("a").await.unwrap();
    assert!(seen.holders.iter().all(|holder| holder.by.client == Some(other.client_id())), "{seen:?}");
    assert!(cluster.instances().all(|instance| !instance.set_if_absent("a", "theirs", secs(1))));
}

#[tokio::test(start_paused = true)]
async fn readers_are_ended_by_a_shutdown() {
    let (cluster, ours, _other) = two_clients().await;
    let guard = reads(&ours).await;
    let stopping = tokio::spawn(async move { guard.lost().await });
    ours.shutdown(secs(1)).await.unwrap();
    assert!(matches!(stopping.await.unwrap(), Loss::ShutDown));
    assert!(matches!(ours.rw_lock("a").read().await, Err(AcquireError::ClientUnusable(_))));
    assert!(matches!(ours.rw_lock("a").try_read().await, Err(AcquireError::ClientUnusable(_))));
    assert!(cluster.keys().is_empty());
}

/// Counter-example: the client was woken for the writer before the reader, and the reader asked by itself up to a second later.
#[tokio::test(start_paused = true)]
async fn a_reader_behind_a_writer_that_gave_up_is_woken_when_the_lock_is_released() {
    for (has_writer_behind, release_at) in [(false, 1_200), (false, 3_000), (true, 900), (true, 1_700)] {
        let (cluster, waits) = cluster_of(3).await;
        cluster.instances().for_each(|instance| instance.slow_down(ms(1), ms(1)));
        let holds = cluster.builder().connect().await.unwrap();
        let guard = held(&holds, "a").await;
        let gave_up = tokio::spawn(waits.lock("a").wait_at_most(ms(500)).acquire());
        sleep(ms(20)).await;
        let reads = tokio::spawn(waits.rw_lock("a").read());
        sleep(ms(20)).await;
        let behind = has_writer_behind.then(|| tokio::spawn(waits.lock("a").acquire()));
        sleep(ms(release_at)).await;
        drop(guard);
        let (read, took) = timed(reads).await;
        assert!(took < ms(20), "{took:?} after a release at {release_at} ms");
        drop(read.unwrap().unwrap());
        assert!(gave_up.await.unwrap().is_err());
        if let Some(behind) = behind {
            let (written, took) = timed(behind).await;
            assert!(written.unwrap().is_ok() && took < ms(20), "{took:?}");
        }
    }
}
