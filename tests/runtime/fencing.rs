//! P12: fencing tokens.

use std::time::Duration;

use redquorum::testing::{Cluster, Data, TestInstance};
use redquorum::{AcquireError, Admission, FencingToken};

use crate::support::{cluster_of, held, ms, secs, timed};

/// A token that a client could have proposed whose wall clock is ahead by so much.
fn token_ahead_by(cluster: &Cluster, ahead: Duration) -> FencingToken {
    let now_us = cluster.instance(0).wall_us();
    FencingToken::propose(now_us + u64::try_from(ahead.as_micros()).unwrap(), None)
}

fn set_token(cluster: &Cluster, resource: &str, score: f64) {
    cluster.instances().for_each(|instance| instance.set_token_score(resource, score));
}

const HOUR: Duration = secs(3600);

#[tokio::test(start_paused = true)]
async fn clients_with_different_wall_clocks_pay_no_second_round_as_they_go_by_the_instances() {
    let (cluster, right) = cluster_of(5).await;
    let behind = cluster.builder_with_wall_clock_behind(HOUR).connect().await.unwrap();
    let ahead = cluster.builder_with_wall_clock_ahead(HOUR).connect().await.unwrap();
    let mut last = None;
    for client in [&right, &behind, &ahead] {
        let guard = held(client, "a").await;
        assert!(Some(guard.fencing_token()) > last);
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        tokio::time::sleep(ms(50)).await; // more than what is known of an instance's clock may be behind it
    }
    assert_eq!(cluster.requests().acquire, 15);
    assert!(last < Some(token_ahead_by(&cluster, secs(2))));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_clock_that_is_ahead_costs_two_more_rounds_for_its_own_resource_only() {
    let (cluster, redlock) = cluster_of(5).await;
    let far = token_ahead_by(&cluster, HOUR);
    set_token(&cluster, "a", far.to_score());
    let (guard, took) = timed(held(&redlock, "a")).await;
    assert_eq!(took, ms(0), "a repeat waits for nobody");
    assert_eq!(cluster.requests().acquire, 15, "the first repeat is told of it, plain commands are not");
    assert_eq!(guard.fencing_token(), far.next_grant());
    let other = held(&redlock, "b").await;
    assert_eq!(cluster.requests().acquire, 20);
    assert!(other.fencing_token() < far, "it is not carried over");
}

/// One instance answers "stale, 9223372036854771712" to whatever is asked, or anything else that is ahead.
#[tokio::test(start_paused = true)]
async fn an_instance_that_lies_about_its_tokens_changes_nothing() {
    let (cluster, redlock) = cluster_of(5).await;
    let lies = [FencingToken::from_number((1 << 63) - 4096).unwrap(), token_ahead_by(&cluster, HOUR)];
    for lie in lies {
        cluster.instance(0).claim_token(lie);
        for name in ["a", "b"] {
            let before = cluster.requests().acquire;
            let guard = held(&redlock, name).await;
            assert_eq!(cluster.requests().acquire - before, 5, "one round");
            assert!(guard.fencing_token() < token_ahead_by(&cluster, secs(2)));
            guard.release().await.unwrap();
        }
        let stored = |instance: &TestInstance| instance.fencing_token("a") < Some(token_ahead_by(&cluster, secs(2)));
        assert!(cluster.instances().skip(1).all(stored));
    }
}

/// Stored a day ahead on one instance, by a client of before or by hand: everybody followed it, and everybody's tokens were a day
/// ahead from then on.
#[tokio::test(start_paused = true)]
async fn one_instance_with_a_token_a_day_ahead_takes_nobody_along() {
    let (cluster, redlock) = cluster_of(3).await;
    let far = token_ahead_by(&cluster, 23 * HOUR);
    for _ in 0..5 {
        cluster.instance(0).set_token_score("a", far.to_score());
        let guard = held(&redlock, "a").await;
        assert!(guard.fencing_token() < token_ahead_by(&cluster, secs(2)));
        guard.release().await.unwrap();
    }
    let near = |instance: &TestInstance| instance.fencing_token("a") < Some(token_ahead_by(&cluster, secs(2)));
    assert!(cluster.instances().skip(1).all(near));
    cluster.instance(1).cut_off();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(&error, AcquireError::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("a fencing token 82") && error.to_string().contains("is 0 s ahead"), "{error}");
    drop(held(&redlock, "b").await);
}

/// With two of the honest ones gone, its vote would be needed.
#[tokio::test(start_paused = true)]
async fn an_instance_that_lies_is_not_followed_where_its_vote_is_needed_either() {
    let (cluster, redlock) = cluster_of(5).await;
    cluster.instance(0).claim_token(FencingToken::from_number((1 << 63) - 4096).unwrap());
    cluster.instance(1).cut_off();
    cluster.instance(2).cut_off();
    let error = redlock.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(&error, AcquireError::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("a fencing token from a clock that reads"), "{error}");
    cluster.instance(0).resume();
    let _guard = held(&redlock, "a").await;
    assert!(cluster.instance(3).fencing_token("a") < Some(token_ahead_by(&cluster, secs(2))));
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_clock_is_apart_from_the_instances_by_more_than_a_day_says_so_and_sends_nothing() {
    let (cluster, right) = cluster_of(5).await;
    for client in [
        cluster.builder_with_wall_clock_ahead(70 * 365 * 24 * HOUR),
        cluster.builder_with_wall_clock_ahead(25 * HOUR),
        cluster.builder_with_wall_clock_behind(25 * HOUR),
    ] {
        let error = client.connect().await.unwrap().lock("a").acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), ("clocks_apart", true));
        let told = error.to_string();
        let readings: Vec<u64> =
            told.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let [own_s, 1970, instances_s] = readings[..] else { panic!("{told}") };
        assert!(own_s.abs_diff(instances_s) > 24 * 3600, "{told}");
    }
    assert_eq!(cluster.requests().total(), 0);
    assert!(held(&right, "a").await.fencing_token() < token_ahead_by(&cluster, secs(2)));
}

/// Of an older client, or set by hand. Once one client has set a sane one, all see that.
#[tokio::test(start_paused = true)]
async fn a_stored_token_that_no_clock_can_have_made_is_as_if_there_were_none() {
    for poison in [
        f64::INFINITY,
        2_251_799_813_685_247.0, // the largest token
        -1.0,
        0.5,
        token_ahead_by(&cluster_of(1).await.0, 25 * HOUR).to_score(),
    ] {
        let (cluster, redlock) = cluster_of(3).await;
        set_token(&cluster, "a", poison);
        // Plain commands do not overwrite what is larger, the repeat does.
        let first = if poison > 1.0 { 6 } else { 3 };
        for requests in [first, first + 3] {
            let guard = held(&redlock, "a").await;
            assert_eq!(cluster.requests().acquire, requests, "{poison}");
            let stored = |instance: &TestInstance| instance.fencing_token("a") == Some(guard.fencing_token());
            assert!(cluster.instances().all(stored), "{poison}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_instance_stores_the_token_of_the_won_round() {
    let (cluster, redlock) = cluster_of(5).await;
    let guard = held(&redlock, "a").await;
    let stored = |instance: &TestInstance| instance.fencing_token("a") == Some(guard.fencing_token());
    assert!(cluster.instances().all(stored));
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_holders_and_clients_and_restarts_that_keep_a_quorum() {
    let (cluster, one) = cluster_of(5).await;
    let two = cluster.builder_with_wall_clock_behind(secs(60)).connect().await.unwrap();
    let mut last = None;
    for step in 0..20 {
        let client = if step % 2 == 0 { &one } else { &two };
        let guard = held(client, "a").await;
        assert!(Some(guard.fencing_token()) > last, "step {step}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        // One instance forgets, the next holder's grants tell it again.
        cluster.instance(step % 5).start(Data::Nothing);
        tokio::time::sleep(secs(12)).await; // after 10 s it may vote again
    }
}

/// The first send sets the key on an instance that is down at the repeat, which is then won or lost.
#[tokio::test(start_paused = true)]
async fn an_instance_that_only_the_first_send_reached_is_released_too() {
    for repeat_is_won in [true, false] {
        let (cluster, redlock) = cluster_of(3).await;
        let only_once = cluster.instance(0);
        let far = token_ahead_by(&cluster, HOUR);
        cluster.instances().skip(1).for_each(|instance| instance.set_token_score("a", far.to_score()));
        cluster.instances().skip(1).for_each(|instance| instance.slow_down(ms(50), ms(0)));
        let breaking = cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(20)).await;
            breaking.instance(0).cut_off();
            if !repeat_is_won {
                tokio::time::sleep(ms(40)).await;
                breaking.instance(1).cut_off();
            }
        });
        let result = redlock.lock("a").try_acquire().await;
        assert_eq!(result.is_ok(), repeat_is_won);
        drop(result);
        tokio::time::sleep(ms(500)).await;
        cluster.instances().for_each(TestInstance::resume);
        assert_eq!(only_once.keys(), ["a"]);
        tokio::time::sleep(secs(2)).await;
        assert!(cluster.keys().is_empty(), "repeat won: {repeat_is_won}");
    }
}

/// Otherwise each try of those who wait for a busy lock would take two rounds.
#[tokio::test(start_paused = true)]
async fn a_waiter_proposes_above_the_token_of_the_holder_that_it_was_refused_by() {
    let (cluster, _) = cluster_of(3).await;
    let redlock = cluster.builder().retry_delay(ms(100), ms(100)).connect().await.unwrap();
    let far = token_ahead_by(&cluster, HOUR);
    set_token(&cluster, "a", far.to_score());
    let guard = held(&cluster.builder().connect().await.unwrap(), "a").await;
    let waiting = tokio::spawn({
        let redlock = redlock.clone();
        async move { redlock.lock("a").acquire().await.unwrap().fencing_token() }
    });
    tokio::time::sleep(ms(550)).await;
    let (token, asked) = (guard.fencing_token(), cluster.requests().acquire);
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap() > token);
    assert_eq!(cluster.requests().acquire - asked, 3, "one round");
}

/// Counter-example: what one instance said while others waited with it was proposed for as long as they
/// waited. Once that was more than a day ahead, the honest ones refused it for good.
#[tokio::test(start_paused = true)]
async fn a_waiter_beside_an_instance_that_lies_gets_the_lock_when_it_is_free() {
    let (cluster, redlock) = cluster_of(5).await;
    for ahead in [20 * HOUR, 30 * HOUR, 40 * HOUR, 47 * HOUR] {
        let other = cluster.builder().connect().await.unwrap();
        let guard = held(&other, "a").await;
        cluster.instance(0).claim_token(token_ahead_by(&cluster, ahead));
        let waiting = tokio::spawn({
            let redlock = redlock.clone();
            async move { redlock.lock("a").wait_at_most(secs(5)).acquire().await.map(|guard| guard.fencing_token()) }
        });
        tokio::time::sleep(secs(1)).await;
        guard.release().await.unwrap();
        let token = waiting.await.unwrap();
        assert!(token.is_ok(), "{ahead:?} ahead: {}", token.unwrap_err());
    }
}

/// Without admission a client knows no clock but its own.
#[tokio::test(start_paused = true)]
async fn instances_grant_no_token_that_no_clock_can_have_made() {
    let (cluster, right) = cluster_of(3).await;
    let ahead = cluster.builder_with_wall_clock_ahead(25 * HOUR).admission(Admission::Off).connect().await.unwrap();
    let error = ahead.lock("a").try_acquire().await.unwrap_err();
    assert!(cluster.requests().acquire > 0, "{error}");
    assert!(cluster.instances().all(|instance| instance.fencing_token("a").is_none()), "{error}");
    assert!(held(&right, "a").await.fencing_token() < token_ahead_by(&cluster, secs(2)));
}

/// P13: what is stored, and the floor, is ahead of all clocks then. Each acquire goes above it, at the price of two rounds more.
#[tokio::test(start_paused = true)]
async fn instances_whose_clocks_are_set_back_by_an_hour_grant_every_lock_after_a_quarantine_and_larger_tokens() {
    for how_many in 1..=3 {
        let (cluster, redlock) = cluster_of(3).await;
        let mut last = None;
        for _ in 0..2 {
            last = last.max(Some(held(&redlock, "a").await.fencing_token()));
            tokio::time::sleep(secs(90)).await; // the floor is above it
        }
        cluster.instances().take(how_many).for_each(|instance| instance.set_clock_back(HOUR));
        // By their clocks their records begin in the future: they wait a quarantine, as after any such step (P29).
        let (guard, took) = timed(redlock.lock("a").wait_at_most(secs(60)).acquire()).await;
        let guard = guard.unwrap();
        assert!(Some(guard.fencing_token()) > last && took < secs(11), "{how_many}: {took:?}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        tokio::time::sleep(secs(20)).await;
        for (name, waits) in [("a", 0), ("new", 0), ("a", 600), ("other", 0), ("a", 3_000)] {
            tokio::time::sleep(secs(waits)).await;
            let before = cluster.requests().acquire;
            let (guard, took) = timed(held(&redlock, name)).await;
            assert!(took < ms(50) && cluster.requests().acquire <= before + 9, "{how_many}, {name}: {took:?}");
            let floors = cluster.instances().map(|instance| instance.floor()).collect::<Vec<_>>();
            assert!(floors.iter().filter(|floor| Some(guard.fencing_token()) > **floor).count() >= 2, "{floors:?}");
            if name == "a" {
                assert!(Some(guard.fencing_token()) > last, "{how_many}");
                last = Some(guard.fencing_token());
            }
        }
    }
}

/// A13: clients' clocks do not count, in whatever order instances forget.
#[tokio::test(start_paused = true)]
async fn instances_that_lose_their_tokens_one_after_the_other_grant_larger_ones_also_to_a_client_whose_clock_is_behind()
{
    let (cluster, redlock) = cluster_of(3).await;
    let behind = cluster.builder_with_wall_clock_behind(HOUR).connect().await.unwrap();
    let mut last = None;
    for round in 0..6 {
        for client in [&redlock, &behind] {
            let token = held(client, "a").await.fencing_token();
            assert!(Some(token) > last, "round {round}");
            last = Some(token);
        }
        cluster.instance(round % 3).start(Data::Nothing);
        tokio::time::sleep(secs(11)).await; // it votes again
        cluster.instance((round + 1) % 3).cut_off();
        let token = held(&behind, "a").await.fencing_token();
        assert!(Some(token) > last, "round {round}, by the one that forgot");
        last = Some(token);
        cluster.instance((round + 1) % 3).resume();
        tokio::time::sleep(secs(1)).await;
    }
}
