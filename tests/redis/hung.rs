//! P4: instances that hang or are gone. A minority delays nothing, a majority is told at once.

use std::time::Duration;

use redquorum::{Admission, InstanceAnswer, Redlock, ReplyKind};
use redquorum_testkit::{Fleet, Server};

use crate::support::{
    PATIENCE, TIMEOUT, all_vote, alone_on_each_kind, client_of, eventually, fleet_of, free_within, held, ms,
    on_each_kind, pair, ready, release_on_a_bad_day, reports, secs, timed, with_admission,
};

const SAMPLES: usize = if cfg!(debug_assertions) { 200 } else { 1000 };

/// How often a measure is repeated before it counts as a failure: the machine does other things.
const ATTEMPTS: usize = 4;

/// What a busy machine adds to some pair of a few hundred, whatever we do. Far below the timeout.
const NOISE: Duration = ms(4);

/// The 99th percentile of the time that an acquire and a release take together.
async fn p99(redlock: &Redlock) -> Duration {
    let mut took = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        took.push(timed(pair(redlock, "a")).await.1);
    }
    took.sort_unstable();
    took[SAMPLES * 99 / 100]
}

fn are_down(redlock: &Redlock, count: usize) -> bool {
    redlock.instances().iter().take(count).all(|status| !status.connected)
}

/// Goes on acquiring until the client knows that the first `count` instances are down.
async fn notice(redlock: &Redlock, count: usize) {
    let mut noticed = false;
    for _ in 0..400 {
        noticed = are_down(redlock, count);
        if noticed {
            break;
        }
        pair(redlock, "a").await;
        tokio::time::sleep(ms(5)).await;
    }
    assert!(noticed, "{:?}", redlock.instances());
}

/// Measures with all instances and without the first `count`; whether the latter is no slower. Without them the slowest
/// of the others may count, which on a busy machine takes longer than the third of five. So what those need for
/// themselves is measured too.
async fn is_unimpressed(fleet: &Fleet, redlock: &Redlock, count: usize, fail: fn(&Server)) -> bool {
    p99(redlock).await; // warms up
    let healthy = p99(redlock).await;
    let others = Redlock::builder().instances(&fleet.addresses()[count..]).quorum(3).admission(Admission::Off);
    let others = ready(others.instance_timeout(TIMEOUT)).await;
    let alone = p99(&others).await;
    drop(others);
    fleet.iter().take(count).for_each(fail);
    notice(redlock, count).await;
    let without = p99(redlock).await;
    println!("{count} of 5 down: p99 {without:?}, healthy {healthy:?}, the others alone {alone:?}");
    without <= 3 * healthy.max(alone) + NOISE && without < TIMEOUT / 2
}

async fn a_minority_down(fleet: &Fleet, redlock: &Redlock, fail: fn(&Server), heal: fn(&Server)) {
    for count in [1, 2] {
        let mut unimpressed = false;
        for _ in 0..ATTEMPTS {
            unimpressed = is_unimpressed(fleet, redlock, count, fail).await;
            fleet.iter().take(count).for_each(heal);
            all_vote(redlock).await; // without help
            if unimpressed {
                break;
            }
        }
        assert!(unimpressed, "{count} of 5 down slow the others down");
    }
    free_within(PATIENCE, fleet).await;
}

#[test]
fn a_hung_minority_delays_nothing() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(with_admission(&fleet)).await;
        a_minority_down(&fleet, &redlock, |server| server.hang().unwrap(), |server| server.resume().unwrap()).await;
    });
}

#[test]
fn a_killed_minority_delays_nothing() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await; // without admission: they come back empty
        a_minority_down(&fleet, &redlock, |server| server.kill().unwrap(), |server| server.restart().unwrap()).await;
    });
}

#[test]
fn the_first_acquires_after_a_hang_wait_for_nobody_either() {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        fleet.iter().take(2).for_each(|server| server.hang().unwrap());
        let mut took = Vec::new();
        for _ in 0..20 {
            took.push(timed(pair(&redlock, "a")).await.1);
        }
        took.sort_unstable();
        assert!(took[took.len() / 2] < TIMEOUT / 4, "{took:?}");
        fleet.iter().for_each(|server| server.resume().unwrap());
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_hung_majority_is_told_within_the_instance_timeout_and_then_at_once() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        fleet.iter().take(3).for_each(|server| server.hang().unwrap());
        let (result, took) = timed(redlock.lock("a").try_acquire()).await;
        let first = reports(result.unwrap_err());
        assert!(took >= TIMEOUT - ms(10) && took < 2 * TIMEOUT, "{took:?}");
        assert_eq!(first.len(), 5);
        let timed_out = |answer: &InstanceAnswer| matches!(answer, InstanceAnswer::Unknown(cause) if cause.kind() == ReplyKind::TimedOut);
        assert!(first.iter().take(3).all(|report| timed_out(&report.answer)), "{first:?}");
        assert!(first.iter().skip(3).all(|report| report.answer == InstanceAnswer::Granted), "{first:?}");

        let silent = |answer: &InstanceAnswer| matches!(answer, InstanceAnswer::NotSent(cause) if cause.kind() == ReplyKind::Silent);
        let mut fast = Duration::MAX;
        for _ in 0..40 {
            let (result, took) = timed(redlock.lock("a").try_acquire()).await;
            if reports(result.unwrap_err()).iter().take(3).all(|report| silent(&report.answer)) {
                fast = fast.min(took);
            }
        }
        assert!(fast < TIMEOUT / 4, "the best of the tries that knew of the silence took {fast:?}");

        fleet.iter().for_each(|server| server.resume().unwrap());
        all_vote(&redlock).await;
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_killed_majority_is_told_at_once_and_each_cause_is_named() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        fleet.iter().take(3).for_each(|server| server.kill().unwrap());
        assert!(eventually(PATIENCE, || are_down(&redlock, 3)).await);
        let (mut fast, mut said) = (Duration::MAX, Vec::new());
        for _ in 0..5 {
            let (result, took) = timed(redlock.lock("a").try_acquire()).await;
            fast = fast.min(took);
            said = reports(result.unwrap_err());
        }
        assert!(fast < TIMEOUT / 4, "{fast:?}");
        for report in said.iter().take(3) {
            let InstanceAnswer::NotSent(cause) = &report.answer else { panic!("{report}") };
            assert_eq!(cause.kind(), ReplyKind::NotConnected, "{report}");
        }
        fleet.iter().take(3).for_each(|server| server.restart().unwrap());
        all_vote(&redlock).await;
        pair(&redlock, "a").await;
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn a_waiter_gets_the_lock_when_the_majority_comes_back() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = client_of(&fleet).await;
        let before = held(&redlock, "a").await;
        fleet.iter().take(3).for_each(|server| server.hang().unwrap());
        assert!(before.release().await.is_err(), "no quorum can confirm it");
        let waiting = tokio::spawn(redlock.lock("a").wait_at_most(secs(30)).acquire());
        tokio::time::sleep(ms(300)).await;
        assert!(!waiting.is_finished());
        fleet.iter().take(3).for_each(|server| server.resume().unwrap());
        let (guard, took) = timed(waiting).await;
        assert!(took < PATIENCE, "long before the old lock expires: {took:?}");
        // It may have been granted over connections that were just given up for their silence.
        release_on_a_bad_day(guard.unwrap().unwrap()).await;
        free_within(PATIENCE, &fleet).await;
    });
}
