//! P24: those who wait in one client stand in line, and the lock is handed from one to the next.

use redquorum::testing::simulation::table_sizes;
use redquorum::testing::{Hang, TestInstance};
use redquorum::{AcquireError, Guard, Holder, Loss, Redlock, Renewal};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::{cluster_of, hang_first, held, how_many_have, ms, renewing, secs, settle, timed};

type Waiting = JoinHandle<Result<Guard, AcquireError>>;

fn wait(redlock: &Redlock, name: &str) -> Waiting {
    tokio::spawn(redlock.lock(name).acquire())
}

async fn got(waiting: Waiting) -> Guard {
    waiting.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lock_goes_to_the_next_in_line_without_a_word_to_the_instances() {
    let (cluster, redlock) = renewing(3).await;
    let mut guard = held(&redlock, "a").await;
    let mut line = Vec::new();
    for _ in 0..10 {
        line.push(wait(&redlock, "a"));
        settle().await;
    }
    let sent = cluster.requests();
    for waiting in line {
        let (token, former) = (guard.fencing_token(), guard.lease());
        let (released, took) = timed(guard.release()).await;
        assert!(released.unwrap().was_still_held && took.is_zero());
        assert!(!former.is_valid() && former.remaining().is_zero(), "it has ended before the next begins");
        guard = got(waiting).await;
        assert!(guard.is_valid() && guard.fencing_token() > token);
        assert_eq!(former.fencing_token(), token);
        assert!(!former.is_valid() && matches!(former.lost().await, Loss::GivenUp));
        assert_eq!(how_many_have(&cluster, "a"), 3);
    }
    assert_eq!(cluster.requests(), sent);
    guard.release().await.unwrap();
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_hands_over_as_well_and_observers_learn_it_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (view, next) = (guard.lease(), wait(&redlock, "a"));
    let looks_on = tokio::spawn(async move { view.lost().await });
    settle().await;
    let sent = cluster.requests();
    drop(guard);
    let (told, took) = timed(looks_on).await;
    assert!(matches!(told, Ok(Loss::GivenUp)) && took.is_zero(), "{told:?} after {took:?}");
    assert!(got(next).await.is_valid());
    assert_eq!(cluster.requests(), sent);
}

/// P13: the lease is held for longer than tokens are kept. What is handed over is below the floor, and above all that was granted before.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_also_where_its_token_is_below_the_floor() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let first = guard.fencing_token();
    let next = wait(&redlock, "a");
    sleep(secs(300)).await;
    assert!(cluster.instances().all(|instance| instance.floor() > first.next_in_lease()));
    drop(guard);
    let guard = got(next).await;
    assert_eq!(Some(guard.fencing_token()), first.next_in_lease());
    sleep(secs(60)).await;
    assert!(guard.is_valid() && how_many_have(&cluster, "a") == 3, "it is renewed below the floor");
    assert!(cluster.instance(0).remove("a"));
    sleep(secs(10)).await;
    assert_eq!(how_many_have(&cluster, "a"), 3, "and repaired");
    let last = guard.fencing_token();
    guard.release().await.unwrap();
    let late = cluster.builder_with_wall_clock_behind(secs(600)).connect().await.unwrap();
    assert!(held(&late, "a").await.fencing_token() > last);
}

#[tokio::test(start_paused = true)]
async fn after_sixteen_hand_overs_another_client_gets_its_turn() {
    let (cluster, _) = renewing(3).await;
    let build = || cluster.builder().retry_delay(ms(10), ms(10)).connect();
    let (redlock, other) = (build().await.unwrap(), build().await.unwrap());
    let mut guard = held(&redlock, "a").await;
    let mut line: std::collections::VecDeque<_> = (0..20).map(|_| wait(&redlock, "a")).collect();
    settle().await;
    let elsewhere = wait(&other, "a");
    sleep(ms(25)).await;
    for _ in 0..16 {
        drop(guard);
        settle().await;
        guard = got(line.pop_front().unwrap()).await;
    }
    drop(guard);
    let (elsewhere, took) = timed(elsewhere).await;
    assert!(took <= ms(10), "{took:?}");
    drop(elsewhere.unwrap().unwrap());
    for waiting in line {
        drop(got(waiting).await);
    }
    settle().await;
    assert!(cluster.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_tokens_are_used_up_is_released() {
    let (cluster, _) = renewing(3).await;
    let redlock = cluster.builder().connect().await.unwrap();
    let mut guard = held(&redlock, "a").await;
    let mut rounds = 0;
    for number in 0..10_000 {
        let (sent, token) = (cluster.requests().acquire, guard.fencing_token());
        let waiting = wait(&redlock, "a");
        settle().await;
        drop(guard);
        guard = got(waiting).await;
        assert!(guard.fencing_token() > token, "{number}");
        rounds += (cluster.requests().acquire - sent) / 3;
    }
    assert_eq!(rounds, 10_000 / 4095);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_with_other_terms_gets_a_lease_of_its_own() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let waiting = tokio::spawn(redlock.lock("a").ttl(secs(5)).acquire());
    settle().await;
    let sent = cluster.requests().acquire;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let (guard, took) = timed(got(waiting)).await;
    assert!(took < ms(1), "asked right behind the release: {took:?}");
    assert!(guard.remaining() < secs(5) && guard.fencing_token() > token);
    assert_eq!(cluster.requests().acquire - sent, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_handed_over_only_while_it_is_fresh() {
    for (pause, is_handed_over) in [(ms(500), true), (ms(1_500), false)] {
        let (cluster, redlock) = cluster_of(3).await;
        let guard = held(&redlock, "a").await;
        let waiting = wait(&redlock, "a");
        settle().await;
        sleep(pause).await;
        let sent = cluster.requests().acquire;
        guard.release().await.unwrap();
        let guard = got(waiting).await;
        assert!(guard.remaining() > secs(9));
        assert_eq!(cluster.requests().acquire == sent, is_handed_over);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_over_is_renewed_for_its_new_guard_and_its_longest_time_counts_anew() {
    let (_cluster, redlock) = renewing(3).await;
    let lock = || redlock.lock("a").max_hold(secs(30));
    let first = lock().acquire().await.unwrap();
    let waiting = tokio::spawn(redlock.lock("a").max_hold(secs(30)).acquire());
    sleep(secs(25)).await;
    drop(first);
    let second = got(waiting).await;
    sleep(secs(29)).await;
    assert!(second.is_valid(), "renewed for 30 s from the hand-over");
    let (loss, took) = timed(second.lost()).await;
    assert!(matches!(loss, Loss::MaxHold) && took <= secs(11), "{loss:?} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_ends_the_lease_of_its_present_holder() {
    let (cluster, redlock) = renewing(3).await;
    let first = held(&redlock, "a").await;
    let former = first.lease();
    let waiting = wait(&redlock, "a");
    settle().await;
    drop(first);
    let second = got(waiting).await;
    let (former, second) =
        (tokio::spawn(async move { former.lost().await }), tokio::spawn(async move { second.lost().await }));
    settle().await;
    cluster.instances().take(2).for_each(|instance| assert!(instance.remove("a")));
    assert!(matches!(former.await.unwrap(), Loss::GivenUp));
    let (loss, took) = timed(second).await;
    assert!(matches!(loss.unwrap(), Loss::Gone { .. }) && took <= secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_the_hand_over_counts_for_the_next() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let waiting = wait(&redlock, "a");
    cluster.instances().for_each(|instance| instance.slow_down(ms(50), ms(50)));
    sleep(ms(3_350)).await; // it is on its way
    drop(guard);
    let guard = got(waiting).await;
    assert!(guard.remaining() < secs(7));
    sleep(ms(100)).await;
    assert!(guard.remaining() > secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_lease_that_is_lost_asks_the_instances() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    let waiting = wait(&redlock, "a");
    let (second, took) = timed(got(waiting)).await;
    assert!(took >= secs(9) && took <= ms(10_300), "{took:?}");
    assert!(second.is_valid() && !guard.is_valid());
    let token = second.fencing_token();
    drop(guard); // releases nothing that is not its own
    assert_eq!(how_many_have(&cluster, "a"), 3);
    assert!(second.is_valid() && second.fencing_token() == token);
}

#[tokio::test(start_paused = true)]
async fn a_single_try_is_refused_without_a_request_while_another_task_of_its_client_has_the_lock() {
    let (cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    let sent = cluster.requests();
    let refused = redlock.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(cluster.requests(), sent);
    let AcquireError::Contended(by) = &refused else { panic!("{refused:?}") };
    assert!(by.in_this_client && by.by.label.is_some() && by.waiting_here == 0, "{by:?}");
    assert!(refused.is_retryable() && refused.to_string().contains("in this client"), "{refused}");
    sleep(secs(10)).await;
    let second = redlock.lock("a").try_acquire().await.unwrap();
    assert!(second.is_valid() && !guard.is_valid(), "it sees that the lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_single_try_does_not_overtake_those_in_line() {
    let (cluster, redlock) = cluster_of(3).await;
    let other = held(&cluster.builder().connect().await.unwrap(), "a").await;
    let line: Vec<_> = (0..2).map(|_| wait(&redlock, "a")).collect();
    settle().await;
    let sent = cluster.requests().acquire;
    let refused = redlock.lock("a").try_acquire().await.unwrap_err();
    let AcquireError::Contended(by) = &refused else { panic!("{refused:?}") };
    assert!(!by.in_this_client && by.waiting_here == 2, "{by:?}");
    assert_eq!(cluster.requests().acquire, sent);
    drop(other);
    for waiting in line {
        drop(got(waiting).await);
    }
    settle().await;
    assert!(redlock.lock("a").try_acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_line_ends_with_its_limit_and_names_who_has_the_lock() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let _first = wait(&redlock, "a");
    settle().await;
    let (refused, took) = timed(redlock.lock("a").wait_at_most(ms(50)).acquire()).await;
    assert_eq!(took, ms(50));
    let Err(AcquireError::DeadlinePassed { last, .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(&*last, AcquireError::Contended(by) if by.in_this_client), "{last:?}");
    drop(guard);
}

/// The ask for which it waits past its limit is won, by a client before it in line: nothing is asked any more until that
/// lets the lock go.
#[tokio::test(start_paused = true)]
async fn a_wait_whose_limit_passes_during_the_first_ask_ends_when_one_before_it_gets_the_lock() {
    let (cluster, redlock) = renewing(3).await;
    hang_first(&cluster, 3, Hang::Stopped);
    let first = wait(&redlock, "a");
    settle().await;
    let second = {
        let redlock = redlock.clone();
        tokio::spawn(async move { timed(redlock.lock("a").wait_at_most(ms(5)).acquire()).await })
    };
    sleep(ms(20)).await;
    cluster.instances().for_each(TestInstance::resume);
    let guard = got(first).await;
    sleep(secs(1)).await;
    assert!(guard.is_valid() && second.is_finished(), "it waits until the lock is let go");
    let (refused, took) = second.await.unwrap();
    assert_eq!(took, ms(20));
    let Err(AcquireError::DeadlinePassed { last, .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(&*last, AcquireError::Contended(by) if by.in_this_client), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_does_not_stand_in_line_and_what_it_lets_go_is_asked_for_at_once() {
    let (cluster, redlock) = renewing(3).await;
    let holder = Holder::from("h");
    let guard = redlock.lock("a").holder(holder.clone()).acquire().await.unwrap();
    let waiting = wait(&redlock, "a");
    settle().await;
    let sent = cluster.requests().acquire;
    let again = redlock.lock("a").holder(holder).acquire().await.unwrap();
    assert!(guard.is_valid() && again.is_valid());
    drop(guard);
    settle().await;
    assert!(!waiting.is_finished(), "the other guard has it");
    let token = again.fencing_token();
    drop(again);
    let (guard, took) = timed(got(waiting)).await;
    assert!(took < ms(1) && guard.fencing_token() > token, "{took:?}");
    assert_eq!(cluster.requests().acquire - sent, 3);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_kept_until_they_expire_are_not_handed_over() {
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let waiting = wait(&redlock, "a");
    settle().await;
    guard.keep_for(secs(0)).await.unwrap();
    let (_guard, took) = timed(got(waiting)).await;
    assert!(took >= secs(9), "{took:?}");
}

/// Seed 29 of the simulated world: the line knew for ever who had had the lock.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_whose_keys_were_to_be_kept_is_forgotten() {
    let (_cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(10)).await;
    assert!(matches!(guard.lost().await, Loss::Expired { .. }));
    assert!(guard.keep_for(secs(0)).await.is_err());
    settle().await;
    let left: Vec<_> = table_sizes(&redlock).into_iter().filter(|(_, entries)| *entries > 0).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_line_runs_on_beside_a_hung_instance() {
    let (cluster, redlock) = renewing(3).await;
    hang_first(&cluster, 1, Hang::RequestsLost);
    let line: Vec<_> = (0..100).map(|_| wait(&redlock, "a")).collect();
    let begun = timed(async {
        for waiting in line {
            drop(got(waiting).await);
        }
    });
    let ((), took) = begun.await;
    assert!(took <= ms(10) * 6, "one pause after every 16: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_run_under_a_lock_stands_in_line() {
    let (cluster, redlock) = renewing(3).await;
    let works: Vec<_> = (0..10)
        .map(|number| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                let work = async |lease: redquorum::LeaseView| {
                    sleep(ms(1)).await;
                    (number, lease.fencing_token())
                };
                redlock.lock("a").renew(Renewal::Auto).run(work).await.unwrap()
            })
        })
        .collect();
    let mut done = Vec::new();
    for work in works {
        done.push(work.await.unwrap());
    }
    assert!(done.is_sorted_by(|a, b| a.1 < b.1), "in the order in which they came: {done:?}");
    assert_eq!(cluster.requests().acquire, 3);
}
