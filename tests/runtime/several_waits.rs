//! Several waits of one client for the same lock, and waits for several locks, in the order between clients (P24–P27).

use redquorum::testing::Cluster;
use redquorum::{Guard, Holder, Redlock};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::succession::{AT_ONCE, Fleet, busy_line, in_at_once, waits};
use crate::support::{TIMEOUT, ms, secs, settle, timed};

async fn held(client: &Redlock, name: &str) -> Guard {
    client.lock(name).try_acquire().await.unwrap()
}

/// Begins to wait, for a holder or for several resources; returns once that is known to whoever is in the way.
async fn waits_for(client: &Redlock, names: &[&str], holder: Option<&str>) -> JoinHandle<Guard> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let lock = client.lock(names);
    let lock = holder.map_or(lock.clone(), |holder| lock.holder(Holder::from(holder)));
    let task = tokio::spawn(async move { lock.acquire().await.unwrap() });
    sleep(ms(5)).await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_woken_when_another_task_of_its_client_lets_the_lock_go() {
    let fleet = Fleet::new();
    let client = fleet.client().await;
    let guard = held(&client, "a").await;
    let holder = waits_for(&client, &["a"], Some("h")).await;
    sleep(secs(10)).await; // its pauses are long by now
    guard.release().await.unwrap();
    in_at_once(holder).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_and_a_lock_on_more_get_in_beside_busy_lines_of_their_own_client() {
    for (names, holder) in [(&["a"][..], Some("h")), (&["a", "b"], None)] {
        let fleet = Fleet::new();
        let client = fleet.client().await;
        let workers = ["a", "b"].map(|name| busy_line(&client, name, 4));
        sleep(secs(1)).await;
        for _ in 0..3 {
            let waiting = waits_for(&client, names, holder).await;
            drop(timeout(secs(5), waiting).await.expect("in vain for 5 s").unwrap());
        }
        workers.into_iter().flatten().for_each(|worker| worker.abort());
    }
}

/// What is kept for its client the next ask of that client takes, whoever it is for.
#[tokio::test(start_paused = true)]
async fn another_wait_of_a_busy_client_does_not_keep_other_clients_out() {
    for (names, holder) in [(&["a"][..], Some("h")), (&["a", "b"], None)] {
        let fleet = Fleet::new();
        let (one, two) = (fleet.client().await, fleet.client().await);
        let _b = held(&two, "b").await;
        let workers = if holder.is_some() {
            let client = one.clone();
            vec![tokio::spawn(async move {
                loop {
                    let _guard = client.lock("a").acquire().await.unwrap();
                    sleep(secs(1)).await;
                }
            })]
        } else {
            busy_line(&one, "a", 4)
        };
        sleep(secs(1)).await;
        let (names, client) = (names.to_vec(), one.clone());
        let other = tokio::spawn(async move {
            loop {
                drop(waits_for(&client, &names, holder).await.await);
            }
        });
        sleep(secs(60)).await;
        for _ in 0..3 {
            let next = waits(&two).await;
            drop(timeout(secs(5), next).await.expect("in vain for 5 s").unwrap());
        }
        other.abort();
        workers.into_iter().for_each(|worker| worker.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_wait_gives_up_does_not_go_round_among_those_of_its_client() {
    let fleet = Fleet::new();
    let (one, two, four) = (fleet.client().await, fleet.client().await, fleet.client().await);
    let (guard, _b, _c) = (held(&one, "a").await, held(&one, "b").await, held(&one, "c").await);
    let _more = [waits_for(&two, &["a", "b"], None).await, waits_for(&two, &["a", "c"], None).await];
    let alone = waits(&four).await;
    sleep(secs(10)).await;
    guard.release().await.unwrap();
    let (guard, took) = timed(alone).await;
    assert!(took < TIMEOUT + AT_ONCE, "{took:?}");
    let before = two.stats().acquire_rounds;
    sleep(secs(20)).await;
    let rounds = two.stats().acquire_rounds - before;
    assert!(rounds < 100, "{rounds}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_comes_after_its_client_has_won_gives_nothing_away() {
    for _ in 0..3 {
        let cluster = Cluster::new(3);
        let client = async || cluster.builder().connect().await.unwrap();
        let (one, two, three) = (client().await, client().await, client().await);
        cluster.instance(2).slow_down(ms(5), ms(5));
        let guard = held(&one, "a").await;
        let line = waits(&two).await;
        let holder = waits_for(&two, &["a"], Some("h")).await;
        sleep(ms(20)).await;
        let next = waits(&three).await;
        sleep(ms(20)).await;
        guard.release().await.unwrap();
        let guard = line.await.unwrap();
        sleep(ms(150)).await;
        holder.abort();
        sleep(secs(2)).await;
        guard.release().await.unwrap();
        drop(in_at_once(next).await);
    }
}

/// Its own waits get nothing any more.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_lets_its_lock_go_to_others() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.client().await, fleet.client().await);
    let guard = held(&one, "a").await;
    let mut unpolled = Box::pin(one.lock("a").holder(Holder::from("h")).acquire());
    assert!(timeout(ms(50), &mut unpolled).await.is_err());
    let next = waits(&two).await;
    sleep(secs(5)).await;
    let shutdown = {
        let one = one.clone();
        tokio::spawn(async move { one.shutdown(secs(1)).await })
    };
    settle().await;
    drop(guard);
    drop(in_at_once(next).await);
    shutdown.await.unwrap().unwrap();
}

/// It costs its client a turn, and no more.
#[tokio::test(start_paused = true)]
async fn a_wait_that_nobody_polls_does_not_take_the_wake_ups_of_the_others_of_its_client() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.client().await, fleet.client().await);
    let guard = held(&one, "a").await;
    let mut unpolled = Box::pin(two.lock("a").holder(Holder::from("h")).acquire());
    assert!(timeout(ms(50), &mut unpolled).await.is_err());
    let next = waits(&two).await;
    drop(guard);
    drop(next.await.unwrap());
    sleep(secs(1)).await;
    for _ in 0..3 {
        let guard = held(&one, "a").await;
        let next = waits(&two).await;
        guard.release().await.unwrap();
        in_at_once(next).await.release().await.unwrap();
        sleep(secs(1)).await;
    }
}

/// It had told others that the lock went on to the next.
#[tokio::test(start_paused = true)]
async fn a_client_that_has_the_lock_again_without_having_waited_serves_those_who_wait() {
    let fleet = Fleet::new();
    let (one, two, three) = (fleet.client().await, fleet.client().await, fleet.client().await);
    let guard = held(&one, "a").await;
    let next = waits(&two).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    sleep(ms(50)).await;
    let guard = held(&one, "a").await;
    let next = waits(&three).await;
    sleep(ms(300)).await;
    guard.release().await.unwrap();
    in_at_once(next).await.release().await.unwrap();
}

/// A wait for more gave up what had been kept for it, and with it those whom its client was to serve.
#[tokio::test(start_paused = true)]
async fn a_wait_for_more_does_not_give_away_what_its_client_has() {
    let fleet = Fleet::new();
    let (one, two, three) = (fleet.client().await, fleet.client().await, fleet.client().await);
    let (first, _second) = (held(&one, "a").await, held(&one, "b").await);
    let _more = waits_for(&two, &["a", "b"], None).await;
    let next = waits(&three).await;
    first.release().await.unwrap();
    sleep(ms(20)).await; // it is kept for the second client
    let guard = held(&two, "a").await;
    sleep(ms(700)).await;
    guard.release().await.unwrap();
    let (guard, took) = timed(next).await;
    assert!(took < 3 * AT_ONCE, "{took:?}");
    drop(guard.unwrap());
}

/// Each of those for more keeps it in vain, and then it is the other one's turn.
#[tokio::test(start_paused = true)]
async fn waits_for_more_do_not_pass_a_lock_round_among_themselves() {
    let fleet = Fleet::new();
    let patient = async || fleet.client_with(secs(2)).await;
    let (one, two, three, four) = (patient().await, patient().await, patient().await, patient().await);
    let (guard, _b, _c) = (held(&one, "a").await, held(&one, "b").await, held(&one, "c").await);
    let _first = waits_for(&two, &["a", "b"], None).await;
    let _second = waits_for(&three, &["a", "c"], None).await;
    let alone = waits(&four).await;
    guard.release().await.unwrap();
    let (alone, took) = timed(timeout(secs(60), alone)).await;
    assert!(alone.is_ok() && took < secs(10), "{took:?}");
}

/// Also where one instance is late with its news, which come while it asks.
#[tokio::test(start_paused = true)]
async fn what_is_kept_in_vain_goes_on_within_half_an_instance_timeout() {
    let cluster = Cluster::new(3);
    let client = async || cluster.builder().connect().await.unwrap();
    let (one, two, three) = (client().await, client().await, client().await);
    cluster.instance(2).slow_down(ms(5), ms(5));
    let (guard, _b) = (held(&one, "a").await, held(&one, "b").await);
    let _more = waits_for(&two, &["a", "b"], None).await;
    sleep(ms(20)).await;
    let alone = waits(&three).await;
    sleep(ms(20)).await;
    guard.release().await.unwrap();
    let (alone, took) = timed(alone).await;
    assert!(took < ms(180), "{took:?}");
    drop(alone.unwrap());
}
